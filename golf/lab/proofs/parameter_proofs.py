"""Proofs about the parameters of a model: each is used, row by row, and trained by the optimizer for its kind."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor, nn

from golf.errors import GolfError
from golf.settings.config import Config, scored_config, techniques, trains_apart
from golf.training.model.build import shapeless_model
from golf.training.model.gpt import GPT
from golf.training.model.layers import CastedLinear
from golf.training.optim.groups import group_of
from golf.training.optim.matrices import declared_row_counts, matrices_of


def misplaced_parameters(cfg: Config) -> list[str]:
    """Return a sentence for every parameter that an optimizer for another kind of parameter trains.

    Muon orthogonalises, which is meant for matrices between features; a table of embeddings, a gain or the few rows of
    a gate are no such matrices. A matrix may be left to Adam, as some public scripts do. Raises `GolfError` for a
    parameter that no optimizer trains, or that a training loss adds to the network.
    """
    model, selected = shapeless_model(cfg), techniques(cfg)
    scored = shapeless_model(scored_config(cfg)) if trains_apart(cfg) else model
    if added := model.scored_weights().keys() - scored.state_dict().keys():
        raise GolfError(f"{min(added)} belongs to a training loss and no score reads it: put it into training_only.")
    owners: dict[int, str] = {}
    for name, param in model.named_parameters(remove_duplicate=False):
        if (first := owners.setdefault(id(param), name)) != name:
            how = "keep the module in a tuple, (module,), wherever it is used a second time"
            raise GolfError(f"{name} is {first} under a second name, and an artifact has one for each tensor: {how}.")
    head_dim, row_counts = cfg.model.model_dim // cfg.model.num_heads, declared_row_counts(model)
    failures = []
    for name, module, param in _owned(model):
        group = group_of(name, param, selected)
        is_matrix = isinstance(module, nn.Linear) and param.ndim == 2
        rows = min(matrix.shape[0] for matrix in matrices_of([param], row_counts)) if is_matrix else 0
        if group == "matrix" and not is_matrix:
            wrong = "is no weight of an nn.Linear, which Muon is for: list it as scalar"
        elif group == "matrix" and rows < head_dim:
            wrong = f"has fewer rows than a head has channels ({head_dim}), as a gate has: list it as scalar"
        elif group != "embed" and isinstance(module, nn.Embedding):
            wrong = "is a table of embeddings: list it as embed"
        else:
            continue
        failures.append(f"parameter {name} {list(param.shape)} is in the optimizer group {group}, but {wrong}")
    return failures


def unused_parameters(cfg: Config, model: GPT, gradients: dict[str, Tensor | None]) -> list[str]:
    """Return a sentence for every parameter, or row of gains or scales, on which the loss of `model` does not depend.

    A row of a table or matrix may have no gradient on a short text. A row of gains without a gradient is read by no
    layer.
    """
    selected, failures = techniques(cfg), []
    for name, module, param in _owned(model):
        gradient = gradients[name]
        # A model of one layer has no U-net skip, and its skip_weights have no row.
        if not param.numel():
            continue
        if gradient is None or not gradient.any():
            failures.append(f"parameter {name} {list(param.shape)} is used by nothing: the loss does not depend on it")
        elif param.ndim == 2 and group_of(name, param, selected) == "scalar" and not isinstance(module, CastedLinear):
            idle = [i for i, row in enumerate(gradient) if not row.any()]
            if idle:
                rows = f"row {idle[0]}" if len(idle) == 1 else f"rows {', '.join(map(str, idle))}"
                failures.append(f"{rows} of parameter {name} {list(param.shape)}: no layer uses it")
    return failures


def _owned(model: nn.Module) -> Iterator[tuple[str, nn.Module, nn.Parameter]]:
    """Yield the full name of every parameter, the module that owns it, and the parameter."""
    for path, module in model.named_modules():
        for name, param in module.named_parameters(recurse=False):
            yield (f"{path}.{name}" if path else name), module, param
