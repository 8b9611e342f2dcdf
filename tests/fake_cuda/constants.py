"""Values that depend on no weight and no batch, and so are not computed within a step: they can be kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.fake_cuda.tensors import memory

if TYPE_CHECKING:
    from torch import Tensor

COMPUTED = ("cos", "sin", "exp", "log", "pow", "rsqrt", "sqrt", "tanh", "sigmoid", "erf", "mm", "cumsum", "sort")
LEAST = 4096  # numbers: fewer cost nothing
DRAWS = ("rand", "normal", "bernoulli", "uniform", "multinomial")


class Constants:
    """Follows memory that was made from nothing but numbers, such as positions."""

    def __init__(self, note: Callable[[str], None]):
        self.note = note
        self.known: set[int] = set()

    def see(self, name: str, given: list[Tensor], made: list[Tensor]) -> None:
        """Note an operation that computes many values out of constants alone."""
        operation, own = name[6:].partition(".")[0], {memory(t) for t in given}
        is_constant = own <= self.known and not operation.startswith(DRAWS)
        if is_constant and given and operation in COMPUTED and sum(t.numel() for t in made) >= LEAST:
            self.note(f"{operation} of {made[0].numel():,} numbers that depend on no weight and no batch")
        for tensor in made:
            if is_constant:
                self.known.add(memory(tensor))
            elif memory(tensor) not in own or operation.endswith("_"):
                # Memory of a tensor that is gone is used again.
                self.known.discard(memory(tensor))
