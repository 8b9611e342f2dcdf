"""Faster kernels for eager float32 on a CPU. Every other run leaves these files unused.

torch's separate elementwise kernels and small attention tiles leave a CPU waiting for memory. The functions here do the
same arithmetic in fewer passes, with backward passes of their own. docs/benchmarks.md has the gain of each.

A submitted script does without them: it is made for GPUs, and its bytes count. So does GOLF_EAGER_CPU=off.
"""

import os

import torch
from torch import Tensor

OFF = os.environ.get("GOLF_EAGER_CPU") == "off"


def suits_eager_cpu(x: Tensor) -> bool:
    """Tell whether these kernels compute activations like `x`. A compiler fuses torch's own operations better."""
    return not OFF and x.device.type == "cpu" and x.dtype == torch.float32 and not torch.compiler.is_compiling()
