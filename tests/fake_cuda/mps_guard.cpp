#include <ATen/detail/MPSHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/FakeGuardImpl.h>

namespace c10::impl {
C10_REGISTER_GUARD_IMPL(MPS, FakeGuardImpl<DeviceType::MPS>)
}
namespace at {
struct MPSHooks : public MPSHooksInterface {
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool hasMPS() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return 1; }
  DeviceIndex getCurrentDevice() const override { return 0; }
};
REGISTER_MPS_HOOKS(MPSHooks)
}
