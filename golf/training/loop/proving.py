"""The proofs of a run: before its clock that all that is selected acts, after it that its scores are legal."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from golf.errors import GolfError
from golf.run.progress import Progress
from golf.run.result import Result
from golf.run.runlog import RunLog
from golf.settings.config import Config, has_stages, techniques
from golf.training.data.dataset import Dataset
from golf.training.loop.pace import check_speed
from golf.training.loop.schedule import muon_momentum
from golf.training.loop.state import TrainState
from golf.training.loop.steps import TrainStep
from golf.training.loop.warmup import restored, run_steps, synthetic_batch
from golf.training.ranks import Ranks
from golf.training.services import NOT_PROVED, Services
from golf.words import listed

# Zero-initialised projections let gradients through to what is behind them one step later each.
STEPS_TO_MOVE = 5
TOKENS_TO_MOVE = 64
WHOLE_NUMBERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}  # bytes of a number → dtype
UNPROVEN = "the proofs were switched off by GOLF_PROOFS=off"


def warm_up_and_prove(
    cfg: Config, state: TrainState, dataset: Dataset, log: RunLog, result: Result, services: Services
) -> list[str]:
    """Compile and warm up, measure the pace, and prove that what is selected acts; write into `result` what was found.

    Returns a sentence for every proof that failed, the same on every rank: all ranks have to stop together.
    """
    log.display.update(0.0, "warming up" if cfg.launch.compile == "off" else "compiling, which takes its time once")
    start = time.perf_counter()
    failures = proving_warm_up(cfg, state, log.warmup_step)
    speed = check_speed(cfg, state)
    if speed and speed.warning:
        result.slowdown = speed.slowdown
        if cfg.launch.unfit == "refuse":
            raise GolfError(f"{speed.warning} (launch.unfit=warn runs all the same).")
        log.warning(speed.warning)
        result.warnings.append(speed.warning)
    if services.prove is None:
        log.warning(NOT_PROVED)
        result.warnings.append(NOT_PROVED)
    else:
        failures += services.prove(cfg, state.ranks, dataset) if are_proved() else [UNPROVEN]
    # An optimizer that averages has weights of its own, and its next step undoes what is set at a switch.
    own = [t.name for t in techniques(cfg) if t.name in state.hooks.averagers and t.group_optimizers(cfg)]
    sets = [t.name for t in techniques(cfg) if "at_switch" in vars(type(t))]
    failures += [f"the optimizers of {one} undo what {two} sets at a switch" for one in own for two in sets]
    if apart := unequal_weights(state.model, state.ranks):
        # No step would bring them together.
        failures.append(f"{apart}, before the first step: draw them alike on every rank")
    # The proofs are dealt out to the ranks, so each knows only its own failures.
    failures = list(dict.fromkeys(state.ranks.gather(failures)))
    result.warmup_seconds = time.perf_counter() - start
    for failure in failures:
        log.warning(f"check failed: {failure}")
    return failures


def prove_trained(cfg: Config, state: TrainState, dataset: Dataset, log: RunLog, services: Services) -> list[str]:
    """Prove the scores of the trained weights, outside the clock, and return a sentence for every failure."""
    if services.prove_trained is None or not are_proved():
        return []
    log.display.update(1.0, "proving the scores of the trained weights")
    start = time.perf_counter()
    # Every rank holds the same weights.
    failures = services.prove_trained(cfg, state.final_weights(), dataset, state.ranks)
    failures = list(dict.fromkeys(state.ranks.gather(failures)))
    log.proved_trained(time.perf_counter() - start, failures)
    return failures


def unequal_weights(model: nn.Module, ranks: Ranks) -> str:
    """Return a phrase that names weights which differ between ranks, empty if none does. All ranks have to call."""
    if ranks.world_size == 1:
        return ""
    weights = {name: param.detach() for name, param in model.named_parameters()}
    # Sums of the bits as whole numbers are exact, so equal weights have equal sums on any machine.
    sums = [w.view(WHOLE_NUMBERS[w.element_size()]).sum() for w in weights.values()]
    own = [f"{name}={total}" for name, total in zip(weights, torch.stack(sums).tolist(), strict=True)]
    known = ranks.gather(own)
    others = [known[start : start + len(own)] for start in range(0, len(known), len(own))]
    differing = [name for name, *texts in zip(weights, *others, strict=True) if len(set(texts)) > 1]
    number = f"{len(differing)} of {len(weights)} weights"
    return f"{number} differ between ranks, such as {differing[0]}" if differing else ""


def are_proved() -> bool:
    """Tell whether runs are proved; GOLF_PROOFS=off makes them void."""
    return os.environ.get("GOLF_PROOFS") != "off"


def proving_warm_up(cfg: Config, state: TrainState, on_step: Callable[[int], None]) -> list[str]:
    """Do what `warm_up` does. Return a sentence for each parameter that did not move and each idle switch."""
    if cfg.schedule.warmup_steps == 0:
        return []
    step, first, later = state.step, state.switches.on, state.switches.later_sets()
    # A compiled step has one shape, so only eager ones can be short.
    short = TOKENS_TO_MOVE if cfg.launch.compile == "off" else None
    with restored(step) as weights, _naming_what_has_no_gradient(step):
        run_steps(cfg, state, on_step)
        for _ in range(cfg.schedule.warmup_steps + len(later), STEPS_TO_MOVE):
            step(lambda: synthetic_batch(cfg, short), 1.0, muon_momentum(cfg.optim, 0), first)
        failures = _unmoved(step, weights)
        # Some switches act through values in buffers, which techniques set for the end of the run here.
        state.hooks.begin_step(Progress(1, 1.0, 0.0))
        batch = synthetic_batch(cfg, short)
        if has_stages(cfg) and not short:
            batch = state.stages.cut(batch)
        return failures + _switches_without_effect(step, [first, *later], batch)


@contextlib.contextmanager
def _naming_what_has_no_gradient(step: TrainStep) -> Iterator[None]:
    """Raise `GolfError` with names for the error of DDP, which has the numbers of parameters."""
    try:
        yield
    except RuntimeError as error:
        numbers = re.search(r"did not receive grad for rank \d+: ([\d ]+)", str(error))
        if not numbers:
            raise
        learning = [name for name, param in step.model.named_parameters() if param.requires_grad]
        names = listed([learning[int(number)] for number in numbers[1].split()])
        raise GolfError(
            f"The loss does not depend on {names} in the first steps, and several ranks wait for a gradient: remove "
            "it, or multiply what it does by zero until its late switch (launch.nproc=1 waits for none)."
        ) from error


def _unmoved(step: TrainStep, before: dict[str, Tensor]) -> list[str]:
    """Return a sentence for every parameter that did not move although its learning rate is not zero."""
    # A learning rate of zero is a choice, and such a parameter may stay where it is.
    frozen = {id(p) for part in step.optimizer.parts() if part.lr == 0 for p in part.params}
    named = ((name, p) for name, p in step.model.named_parameters() if id(p) not in frozen)
    # A model of one layer has no U-net skip, and its skip_weights have no row.
    still = [name for name, p in named if p.numel() and torch.equal(p, before[name])]
    return [f"parameter {name} did not move in {STEPS_TO_MOVE} steps" for name in still]


def _switches_without_effect(step: TrainStep, sets: list[tuple[str, ...]], batch: tuple[Tensor, Tensor]) -> list[str]:
    """Return a sentence for every switch that leaves the loss as it is, in the very graphs that will train."""
    inputs, targets = (t.to(step.device) for t in batch)
    losses = {}
    # Sets that the run can reach, so that no graph is compiled for the check alone.
    for active in sets:
        # Equal draws, or dropout would seem to be the effect of a switch.
        torch.manual_seed(0)
        losses[active] = step.model(inputs, targets, active).item()
    pairs = [(name, tuple(n for n in active if n != name), loss) for active, loss in losses.items() for name in active]
    idle = {name for name, others, loss in pairs if losses.get(others) == loss}
    return [f"late switch {name} changed nothing when it was switched on" for name in sorted(idle)]
