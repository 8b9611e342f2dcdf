"""Rules that turn the averaged gradients of matrices into updates of the weights.

Both forms of Muon call a rule on the matrices that a rank owns, `[n, r, c]` of one shape, so that a rule knows nothing
of ranks, sharding or clipping. A technique adds its part in `Technique.matrix_rule`, in the order of the techniques:

    return rule.with_after(rescaled, neuron_norm=lambda shape: (shape[0], 1))
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn

from golf.errors import GolfError
from golf.settings.config import Config
from golf.training.optim.muon import (
    Apply,
    MatrixOptimizer,
    decay_and_add,
    nesterov_momentum,
    orthogonalize,
    shape_name,
    tall_factor,
)
from golf.training.optim.named_state import State as Saved

State = Mapping[str, Tensor]  # what a rule keeps, by its own names, float32, zeros before the first step
# (update, averaged gradients, state) → update, all `[n, r, c]`. The state is changed in place.
Edit = Callable[[Tensor, Tensor, State], Tensor]
REPLACED = "A technique replaces Muon, and another one edits or replaces it, too: drop one of them."
ShapeOf = Callable[[torch.Size], tuple[int, ...]]  # shape of a state for one matrix, from the matrix's


@dataclass(frozen=True)
class MatrixRule:
    """Edits around Muon's orthogonalisation, or a function in place of all of it."""

    before: tuple[Edit, ...] = ()  # of the Nesterov momentum
    after: tuple[Edit, ...] = ()  # of the orthogonalised update, before it is scaled by √max(1, r/c)
    replaced_by: Callable[[Tensor, State], Tensor] | None = None  # (averaged gradients, state) → update
    apply: Apply = decay_and_add
    state: Mapping[str, ShapeOf] = field(default_factory=dict)

    def with_before(self, edit: Edit, **state: ShapeOf) -> MatrixRule:
        """Return the rule with a further edit of the momentum. `state` names what it keeps of each matrix."""
        return dataclasses.replace(self, before=(*self.before, edit), state=self._with(state))

    def with_after(self, edit: Edit, **state: ShapeOf) -> MatrixRule:
        """Return the rule with a further edit of the orthogonalised update."""
        return dataclasses.replace(self, after=(*self.after, edit), state=self._with(state))

    def with_apply(self, apply: Apply) -> MatrixRule:
        """Return the rule with another way to decay weights and add updates. Raises `GolfError` for a second one."""
        if self.apply is not decay_and_add:
            raise GolfError("Two techniques replace how matrices decay: drop one of them.")
        return dataclasses.replace(self, apply=apply)

    def replaced(self, update: Callable[[Tensor, State], Tensor], **state: ShapeOf) -> MatrixRule:
        """Return the rule with `update` in place of momentum, orthogonalisation and their edits.

        Raises `GolfError` if there are such edits, which would not be called, or another replacement.
        """
        if self.before or self.after:
            raise GolfError(REPLACED)
        return dataclasses.replace(self, replaced_by=update, state=self._with(state))

    def _with(self, state: Mapping[str, ShapeOf]) -> Mapping[str, ShapeOf]:
        if self.replaced_by:
            raise GolfError(REPLACED)
        if twice := sorted(set(state) & set(self.state)):
            raise GolfError(f"Two rules for matrices keep a state called {twice[0]}: rename one.")
        return {**self.state, **state}


class GroupOptimizer(Protocol):
    """An optimizer of one group of parameters. Every rank has all of it and steps with averaged gradients."""

    params: list[nn.Parameter]
    lr: float  # before the schedule's multiplier
    weight_decay: float

    def step(self, lr_multiplier: float) -> None:
        """Apply one update at `lr · lr_multiplier` to the parameters that have a gradient."""

    def state_dict(self) -> Saved:
        """Return all tensors that steps change besides the parameters, for checkpoints."""

    def load_state_dict(self, state: Saved) -> None:
        """Restore what `state_dict` returned."""

    def state_bytes(self) -> int:
        """Return the bytes of the state after a step. Parameters may be on the meta device."""


# (parameters, learning rate, weight decay) → optimizer
MakeOptimizer = Callable[[list[nn.Parameter], float, float], GroupOptimizer]


def optimizers_of_groups(techniques: Sequence[Any], cfg: Config) -> dict[str, MakeOptimizer]:
    """Return what `techniques` put in place of Golf's optimizers, by group.

    Raises `GolfError` for two of a group, and for a rule of the matrices beside another optimizer of theirs.
    """
    made: dict[str, MakeOptimizer] = {}
    for technique in techniques:
        own = technique.group_optimizers(cfg)
        if twice := sorted(own.keys() & made.keys()):
            raise GolfError(f"Two techniques replace the optimizer of the group {twice[0]}: drop one of them.")
        made |= own
    plain = MatrixRule()
    for technique in techniques if "matrix" in made else ():
        if technique.matrix_rule(plain, cfg) is not plain:
            what = f"tech {technique.name} changes the rule of the matrices, whose optimizer another technique replaces"
            raise GolfError(f"{what}: drop one of them, or leave the matrices to Golf's optimizer.")
    return made


def replaces_muon(techniques: Sequence[Any], cfg: Config) -> bool:
    """Tell whether one of `techniques` updates the matrices by another method than Muon, whose settings then rest."""
    return bool(_rule_of(techniques, cfg).replaced_by) or "matrix" in optimizers_of_groups(techniques, cfg)


def _rule_of(techniques: Sequence[Any], cfg: Config) -> MatrixRule:
    rule = MatrixRule()
    for technique in techniques:
        rule = technique.matrix_rule(rule, cfg)
    return rule


def _checked(update: Tensor, grads: Tensor, state: State, kept: Collection[Tensor]) -> Tensor:
    """Return `update`. Raises `GolfError` unless it is a tensor of the gradients' shape: others would be broadcast.

    So does a tensor of the `state` that is not among the `kept` ones, because the next step would not have it.
    """
    if any(all(tensor is not other for other in kept) for tensor in state.values()):
        raise GolfError("A rule for matrices assigned state[...], which is lost: change its tensors in place (copy_).")
    if getattr(update, "shape", None) != grads.shape:
        returned = f"an update {list(update.shape)}" if isinstance(update, Tensor) else f"a {type(update).__name__}"
        shapes = f"{returned} for gradients {list(grads.shape)}"
        raise GolfError(f"A rule for matrices returned {shapes}: return one of that shape.")
    return update


Form = TypeVar("Form", bound=type[MatrixOptimizer])


def ruled(form: Form, techniques: Sequence[Any], cfg: Config) -> Form:
    """Return `form`, one of the two of Muon, with the rule that `techniques` make in their order."""
    rule = _rule_of(techniques, cfg)

    class Ruled(form):  # type: ignore[misc, valid-type]
        """Muon under a rule. Its state has the rule's own under names like `512x256 NAME`."""

        apply = staticmethod(rule.apply)

        def begin(self, counts: Mapping[torch.Size, int]) -> None:
            """Begin with a state of zeros for `counts` matrices of every shape."""
            super().begin({} if rule.replaced_by else counts)
            for shape, count in counts.items():
                for name, shape_of in rule.state.items():
                    kept = torch.zeros((count, *shape_of(shape)), device=self.params[0].device)
                    self.state[f"{shape_name(shape)} {name}"] = kept

        def update(self, grads: Tensor, momentum: float) -> Tensor:
            """Return the update that the rule makes of this rank's gradients `[n, r, c]` of one shape."""
            shape = shape_name(grads.shape[1:])
            state = {name: self.state[f"{shape} {name}"] for name in rule.state}
            if rule.replaced_by:
                return _checked(rule.replaced_by(grads, state), grads, state, self.state.values())
            raw, kept = grads.clone() if rule.before or rule.after else grads, self.state.values()
            direction = nesterov_momentum(grads, self.state[shape], momentum, self.optim)
            for edit in rule.before:
                direction = _checked(edit(direction, raw, state), grads, state, kept)
            update = orthogonalize(direction, self.optim)
            for edit in rule.after:
                update = _checked(edit(update, raw, state), grads, state, kept)
            return update * tall_factor(grads)

    return Ruled  # type: ignore[return-value]
