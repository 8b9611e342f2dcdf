"""How far a run got that was cut short, as its metrics.jsonl tells."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from golf.run.environment import machine_kind
from golf.run.folder import RunFolder
from golf.run.result import Result
from golf.settings.config import Config

CUT_SHORT = "cut_short"  # event of the last step, which a process writes as it stops


def record_reached(result: Result, cfg: Config, folder: RunFolder) -> None:
    """Write steps, seconds and the last validation into the result of a run that was stopped or crashed.

    A process that was killed told its last logged step only. Nothing changes if there was no step.
    """
    for event in _events(folder.metrics):
        # Later events replace earlier ones, so the last step stays.
        if "step" in event and "train_seconds" in event:
            result.steps, result.train_seconds = event["step"], event["train_seconds"]
            result.tokens_seen = result.steps * cfg.data.train_batch_tokens
        result.train_loss = event.get("train_loss", result.train_loss)
        if event["event"] == "validation":
            result.last_val_step, result.last_val_bpb = event["step"], event["val_bpb"]
    result.budget_train_seconds, result.machine = cfg.budget.train_seconds, machine_kind()
    if result.steps:
        result.step_ms = 1000 * result.train_seconds / result.steps


def _events(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the complete lines of a metrics.jsonl; the last one may have been cut off."""
    with contextlib.suppress(OSError):
        for line in path.read_text(errors="replace").splitlines():
            with contextlib.suppress(ValueError):
                event = json.loads(line)
                if isinstance(event, dict) and "event" in event:
                    yield event
