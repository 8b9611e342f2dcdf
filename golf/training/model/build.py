"""Construction of a model: the baseline, the edits of the selected techniques, compiling, models on the meta device."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from golf.errors import GolfError
from golf.settings.config import Config, LaunchConfig, changes_loss, scored_config, techniques, trains_apart
from golf.training.model.documents import separate_documents
from golf.training.model.gpt import GPT, plain_route
from golf.training.model.objective import trained_with
from golf.training.model.route import Routes
from golf.training.model.routed import RoutedGPT
from golf.training.model.slots import check_slots

SPARE_GRAPHS = 4  # sliding scores, calibration, the warm-up of one more length


def build_model(cfg: Config, watch: Callable[[GPT, str], None] | None = None) -> GPT:
    """Build the model of `cfg` on the CPU, initialised from `cfg.seed`. The global random state stays as it is.

    `watch` is called with the model and the technique's name after every edit, and with an empty name before the first.
    """
    # The model is built on the CPU, so no GPU's random state is asked for, which would start CUDA.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(cfg.seed)
        model = new_model(cfg)
        if cfg.model.within_documents:
            separate_documents(model, cfg.data.train_seq_len)
        if watch is not None:
            watch(model, "")
        for technique in techniques(cfg):
            settings = repr(technique)
            technique.edit_model(model, cfg)
            if repr(technique) != settings:
                raise GolfError(f"The technique {technique.name} changes its settings in edit_model: use a local name.")
            if watch is not None:
                watch(model, technique.name)
    if cfg.tech:
        check_slots(model)
    for empty in (p for p in model.parameters() if not p.numel()):
        # Such as the skips of one layer: it gets no gradient, for which DDP would wait.
        empty.requires_grad_(False)
    return model


def new_model(cfg: Config) -> GPT:
    """Return the model of `cfg` before any technique edits it."""
    routes = given_routes(cfg)
    kind: type[GPT] = GPT if routes is None else RoutedGPT
    if changes_loss(cfg):
        kind = trained_with(techniques(cfg), cfg, kind)
    return kind(*((cfg.model,) if routes is None else (cfg.model, routes)))


def build_scored_model(cfg: Config, device: torch.device) -> GPT:
    """Build the model of `cfg` in the arithmetic of scoring, which need not be that of the training."""
    scored = scored_config(cfg) if trains_apart(cfg) else cfg
    if cfg.eval.dtype != cfg.model.compute_dtype:
        scored = dataclasses.replace(scored, model=dataclasses.replace(cfg.model, compute_dtype=cfg.eval.dtype))
    return build_model(scored).to(device).eval()


def routes_of(cfg: Config) -> Routes:
    """Return the routes of `cfg`'s model, computed before any technique edits it."""
    return given_routes(cfg) or Routes(plain_route(cfg.model), {})


def given_routes(cfg: Config) -> Routes | None:
    """Return the routes that a technique gives, None if every block is visited once in its order."""
    for technique in techniques(cfg):
        if routes := technique.routes(cfg):
            return routes
    return None


def compile_for_training(model: GPT, launch: LaunchConfig, graphs: int = 1) -> None:
    """Compile `model(inputs, targets)` in place. Shapes are fixed, and a graph break is an error.

    `graphs` is the number of sets of late switches, each of which has a graph of its own.
    """
    if launch.compile not in ("full", "blocks"):
        return
    # Imported here, because it takes 1.7 s.
    import torch._dynamo

    parts: list[nn.Module] = [model] if launch.compile == "full" else [*model.controls]
    # Training and scoring compile the same code, techniques make blocks differ, and each late switch doubles the forms
    # that a block is compiled for. Beyond the limit a graph is an error.
    most = 2 * graphs + SPARE_GRAPHS if launch.compile == "full" else 16 * len(parts)
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, most)
    for part in parts:
        part.compile(dynamic=False, fullgraph=True)


def compile_for_scoring(model: GPT, launch: LaunchConfig) -> Callable[..., Tensor]:
    """Return `model.token_losses`, compiled as `launch` says."""
    if launch.compile == "full":
        return torch.compile(model.token_losses, dynamic=False, fullgraph=True)
    compile_for_training(model, launch)
    return model.token_losses


class _NoNumbers(TorchFunctionMode):
    """Skip initialisers on the meta device: they have nothing to fill there, and importing them takes two seconds."""

    RANDOM = ("normal_", "uniform_", "trunc_normal_", "kaiming_uniform_")

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") in self.RANDOM:
            return args[0] if args else kwargs["tensor"]
        if func is torch.stack and not kwargs:
            return torch.empty(len(args[0]), *args[0][0].shape)
        return func(*args, **(kwargs or {}))


def shapeless_model(cfg: Config, watch: Callable[[GPT, str], None] | None = None) -> GPT:
    """Build the model of `cfg` on the meta device: names and shapes without numbers. `watch` is `build_model`'s.

    Raises `GolfError` if a technique edits a part that another one has replaced.
    """
    # Shapes are the same under every kernel, and a plan may be for a machine with another.
    cfg = dataclasses.replace(cfg, model=dataclasses.replace(cfg.model, attention="sdpa"))
    try:
        with torch.device("meta"), _NoNumbers():
            return build_model(cfg, watch)
    except AttributeError as error:
        if len(cfg.tech) < 2:
            raise
        # A technique has replaced a module, and another edits the one that was there before.
        raise GolfError(f"The techniques {', '.join(cfg.tech)} do not fit together ({error}): drop one.") from error
