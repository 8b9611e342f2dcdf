"""Finished runs as evidence of this machine's speed: configurations, results and machines."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from golf.errors import GolfError
from golf.files import read_json
from golf.lab.plan.flops import flops_per_token
from golf.run.environment import kind_of
from golf.run.folder import RunFolder
from golf.run.result import Result, read_result
from golf.settings.config import Config, mean_batch_tokens
from golf.training.model.build import shapeless_model

MOST_RUNS = 200  # newest runs that are read


@dataclass(frozen=True)
class FinishedRun:
    """A run that left an artifact."""

    folder: RunFolder
    config: Config
    result: Result
    machine: str  # its kind, see `golf.run.environment.machine_kind`

    def flops_per_step(self) -> float:
        """Return the floating-point operations of one training step."""
        return flops_per_token(self.config, shapeless_model(self.config)).total * mean_batch_tokens(self.config)


def finished_runs(root: Path) -> list[FinishedRun]:
    """Return the runs under `root` that left an artifact, newest first; unreadable ones are skipped."""
    results = sorted(root.glob("*/seed*/result.json"), key=lambda p: p.stat().st_mtime, reverse=True)
    runs = []
    for path in results[:MOST_RUNS]:
        folder = RunFolder(path.parent)
        try:
            result = read_result(path)
            machine = kind_of(read_json(folder.path / "environment.json"))
            if result.artifact_bytes and result.steps:
                runs.append(FinishedRun(folder, folder.read_config(), result, machine))
        except (GolfError, OSError, ValueError, KeyError):
            continue
    return runs
