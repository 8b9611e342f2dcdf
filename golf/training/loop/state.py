"""The state of a training run as one object: model and optimizer, late switches, stages, averages of the weights."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from golf.errors import GolfError
from golf.paths import resolve
from golf.settings.config import Config, has_stages, is_packed, stages, uses_gptq
from golf.training.loop.calibration import text_of
from golf.training.loop.stages import Stages
from golf.training.loop.steps import TrainStep
from golf.training.loop.switches import StepHooks, Switches
from golf.training.model.attention import choose_kernel
from golf.training.model.build import build_model, build_scored_model, compile_for_training
from golf.training.model.gpt import GPT
from golf.training.model.kernels.choice import choose_kernels
from golf.training.model.weights import load_weights
from golf.training.optim.groups import build_optimizer
from golf.training.ranks import Ranks


@dataclass(frozen=True)
class TrainState:
    """Everything that training changes. A checkpoint holds it."""

    step: TrainStep  # step with the model and the optimizer
    switches: Switches
    hooks: StepHooks  # with the averages of the weights
    attention: str = ""  # log line that names the attention kernels
    kernels: Sequence[str] = ()  # log lines about the kernels that `launch` asked for
    calibration_model: GPT | None = None  # the one that calibration runs, if there is one, built before the clock

    @functools.cached_property
    def stages(self) -> Stages:
        # Made at first use: the keeper of a run folder asks always, the timed loop of a run in stages.
        return Stages(self.step.cfg, self.step)

    @property
    def model(self) -> GPT:
        return self.step.model

    @property
    def ranks(self) -> Ranks:
        return self.step.ranks

    def final_weights(self) -> dict[str, Tensor]:
        """Return the weights that are scored and exported, see `StepHooks.final_weights`."""
        return self.hooks.final_weights()

    @property
    def model_params(self) -> int:
        kept = self.model.scored_weights()
        return sum(p.numel() for name, p in self.model.named_parameters() if name in kept)


def build_state(cfg: Config, ranks: Ranks) -> TrainState:
    """Build model, optimizer and training step of `cfg` on this rank's device; the first step compiles."""
    model = build_model(cfg)
    if cfg.model.init_from:
        # The optimizer and the averages are built after this, so that they start from these weights.
        load_weights(model, resolve(cfg.model.init_from))
    model.to(ranks.device)
    model.rotary.keep(cfg.data.train_seq_len, like=model.tok_emb.weight)
    if has_stages(cfg):
        # Torch 2.11 may fold the length of pieces, an attribute, into the graph. 2.13 compiles one for each length.
        if is_packed(cfg) and cfg.launch.compile != "off" and torch.__version__ < "2.13":
            raise GolfError("Stages of packed documents need torch 2.13 to be compiled: set launch.compile=off.")
        for stage in stages(cfg):
            model.rotary.keep(stage.seq_len, like=model.tok_emb.weight)
    attention = choose_kernel(ranks.device, cfg)
    asked = cfg.launch.loss_kernel == "triton" or cfg.launch.mlp_kernel == "triton"
    kernels = choose_kernels(model, cfg, ranks) if asked else ()
    calibration_model = build_scored_model(text_of(cfg), ranks.device) if uses_gptq(cfg.quant) else None
    # Optimizers hold the parameters themselves, so they are built after the model has moved to its device.
    optimizer = build_optimizer(cfg, model, ranks)
    lengths = len({stage.seq_len for stage in stages(cfg)}) if has_stages(cfg) else 1
    switches = Switches(cfg)
    compile_for_training(model, cfg.launch, graphs=(1 + len(switches.later_sets())) * lengths)
    step = TrainStep(cfg, model, optimizer, ranks)
    return TrainState(step, switches, StepHooks(cfg, model), attention, kernels, calibration_model)
