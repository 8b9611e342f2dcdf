"""The proofs of a run: before its clock that all that is selected acts, after it that its scores are legal."""

from __future__ import annotations

import os
import time

from golf.errors import GolfError
from golf.run.result import Result
from golf.run.runlog import RunLog
from golf.settings.config import Config, techniques
from golf.training.data.dataset import Dataset
from golf.training.loop.pace import check_speed
from golf.training.loop.state import TrainState
from golf.training.loop.warmup import proving_warm_up
from golf.training.services import NOT_PROVED, Services

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


def are_proved() -> bool:
    """Tell whether runs are proved; GOLF_PROOFS=off makes them void."""
    return os.environ.get("GOLF_PROOFS") != "off"
