"""Steps on a fake Apple GPU: `python mps_run.py guard.so` prints the dtypes of the tensors there, or fails.

The device is torch's fake tensors on `mps`, in a process of its own on a CPU build of torch, as in device.py.
"""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.fake_cuda import load_guard, pretend

load_guard(sys.argv[1])

import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch._dynamo  # noqa: E402  # before anything is replaced: it lists torch's functions
import torch.nn.functional as functional  # noqa: E402
from torch import Tensor  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from golf.run.progress import Progress  # noqa: E402
from golf.settings.composition import compose  # noqa: E402
from golf.settings.hardware import Hardware, assumed  # noqa: E402
from golf.training.loop.state import build_state  # noqa: E402
from golf.training.loop.warmup import synthetic_batch  # noqa: E402
from golf.training.ranks import Ranks  # noqa: E402
from golf.training.scoring.tally import Tally  # noqa: E402

MPS = torch.device("mps")
MAC = Hardware(gpus=0, gpu_name="", hopper=False, cpu_cores=8, cpu_bf16=False, cpu_compiler=True, mps=True)
ASKED = ["scale=laptop", "model=4l", "data=pydocs", "launch.device=mps", "optim.grad_clip_norm=1"]
CASES: tuple[list[str], ...] = ([], ["experiment=gold6_11l"])


class Dtypes(TorchDispatchMode):
    """Note the dtypes of results on the device. Raise `RuntimeError` for float64, which Apple's GPUs lack."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else [result]:
            if isinstance(tensor, Tensor) and tensor.device.type == "mps":
                self.seen.add(str(tensor.dtype))
                if tensor.dtype == torch.float64:
                    raise RuntimeError(f"{func} makes float64")
        return result


def attention(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
    """Return attention's shape: torch's own chooses its kernel by a device that is not there."""
    k, v = (t.repeat_interleave(q.size(1) // t.size(1), dim=1) for t in (k, v))
    return torch.softmax(q @ k.transpose(-1, -2), -1) @ v


def main() -> None:
    """Take a step under every set of late switches of each case, and add up a score."""
    pretend()
    functional.scaled_dot_product_attention = attention  # type: ignore[assignment]
    dtypes = Dtypes()
    for overrides in CASES:
        with assumed(MAC):
            cfg = compose([*overrides, *ASKED])
        with FakeTensorMode(allow_non_fake_inputs=True):
            state = build_state(cfg, Ranks(device=MPS))
            with dtypes:
                for active in [state.switches.on, *state.switches.later_sets()]:
                    state.hooks.begin_step(Progress(1, 0.5, 0.5))
                    state.step(functools.partial(synthetic_batch, cfg), 1.0, 0.95, active)
                    state.hooks.after_step(Progress(2, 0.5, 0.5))
                tally = Tally(np.arange(5), np.full(4, 2), Ranks(device=MPS))
                tally.add(np.arange(4), np.full(4, True), torch.zeros(4, device=MPS))
    print(" ".join(sorted(dtypes.seen)))


if __name__ == "__main__":
    main()
