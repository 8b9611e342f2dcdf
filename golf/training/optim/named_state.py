"""The base of optimizers: state that is saved, restored and compared by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

State = Mapping[str, Tensor | Sequence[Tensor]]


class NamedState:
    """`state` has every tensor that steps change besides the parameters, as it is before the first step.

    A checkpoint keeps it, and the warm-up puts it back. What an optimizer keeps elsewhere is lost by both, which the
    proof before the clock finds (`training.loop.resume_proof`).
    """

    state: State

    def state_dict(self) -> State:
        return self.state

    def state_bytes(self) -> int:
        """Return the bytes of the state."""
        return sum(tensor.numel() * tensor.element_size() for tensor in _tensors(self.state).values())

    def load_state_dict(self, state: State) -> None:
        """Copy `state`. Raises `ValueError` if it has other names, shapes or dtypes than this optimizer's."""
        own, given = _tensors(self.state), _tensors(state)
        for name in [*own, *given]:
            expected, found = (_kind(tensors.get(name)) for tensors in (own, given))
            if found != expected:
                raise ValueError(f"{name} of {type(self).__name__} is {found} and has to be {expected}")
        for name, tensor in own.items():
            tensor.copy_(given[name])


def _tensors(state: State) -> dict[str, Tensor]:
    named = ((key, [value] if isinstance(value, Tensor) else value) for key, value in state.items())
    return {f"{key}/{i}": tensor for key, tensors in named for i, tensor in enumerate(tensors)}


def _kind(tensor: Tensor | None) -> str:
    return "missing" if tensor is None else f"{tensor.dtype} {list(tensor.shape)}"
