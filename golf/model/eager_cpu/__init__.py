"""What eager float32 on a CPU does in a way of its own; every other run leaves these files unused.

torch's separate elementwise kernels and small attention tiles leave a CPU waiting for memory. The functions here do the
same arithmetic in fewer passes, with backward passes of their own. docs/benchmarks.md has what each is worth.
"""

import torch
from torch import Tensor

from golf.model.eager_cpu.attention import attend, suits_attention
from golf.model.eager_cpu.loss import LARGEST_CAP, softcapped_losses
from golf.model.eager_cpu.norm import rms_norm
from golf.model.eager_cpu.rotary import apply_rotary

__all__ = ["LARGEST_CAP", "apply_rotary", "attend", "rms_norm", "softcapped_losses", "suits", "suits_attention"]


def suits(x: Tensor) -> bool:
    """Whether activations like `x` are computed here; a compiler fuses torch's own operations better."""
    return x.device.type == "cpu" and x.dtype == torch.float32 and not torch.compiler.is_compiling()
