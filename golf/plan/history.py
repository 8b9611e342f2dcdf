"""Finished runs as evidence: what they were, what came out, and what can be measured on their weights once."""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from golf.config import Config, QuantConfig
from golf.errors import GolfError
from golf.model.checkpoint import read_weights
from golf.plan.flops import flops_per_token
from golf.plan.rehearsal import rehearse, rehearse_trained
from golf.plan.spread import measured_sizes
from golf.plan.tensors import shapeless_model, stored_tensors
from golf.run.files import write_json
from golf.run.folder import RunFolder
from golf.run.result import Result, read_result

VERSION = 2  # of what `statistics.json` holds
MOST_RUNS = 200  # the newest ones


@dataclass
class Statistics:
    """Measured on a run's trained weights; kept as `plan_statistics.json` in its folder."""

    sizes: dict[str, float]  # RMS·√columns by role
    ratios: dict[str, float] = field(default_factory=dict)  # by number formats: stored / rehearsed bytes
    version: int = VERSION


@dataclass(frozen=True)
class FinishedRun:
    folder: RunFolder
    config: Config
    result: Result
    environment: dict[str, Any]

    @property
    def machine(self) -> str:
        return machine_of(self.environment)

    def flops_per_step(self) -> float:
        return flops_per_token(self.config, shapeless_model(self.config)).total * self.config.data.train_batch_tokens

    def sizes(self) -> dict[str, float] | None:
        """RMS·√columns of the trained weights by role; None if they are gone."""
        kept = self._kept_statistics()
        return kept.sizes if kept else None

    def ratio(self, quant: QuantConfig, *, store_again: bool) -> float | None:
        """By how much trained weights differ from Gaussian ones when stored under `quant`; None if not known.

        The artifact itself tells if the run was stored so; else its checkpoint is stored again, once, if that may be.
        """
        kept = self._kept_statistics()
        key = json.dumps(asdict(quant), sort_keys=True)
        if kept is None or (key not in kept.ratios and quant != self.config.quant and not store_again):
            return None
        if key not in kept.ratios:
            cfg = replace(self.config, quant=quant)
            tensors = stored_tensors(cfg, shapeless_model(cfg).state_dict())
            rms = {t.role: kept.sizes[t.role] * t.columns**-0.5 for t in tensors if t.role in kept.sizes}
            if quant == self.config.quant:
                stored = float(self.result.artifact_bytes or 0)
            else:
                stored = rehearse_trained(cfg, tensors, read_weights(self.folder.weights)).total
            kept.ratios[key] = stored / rehearse(cfg, tensors, rms).total
            self._keep(kept)
        return kept.ratios[key]

    @property
    def _statistics_path(self) -> Path:
        return self.folder.path / "plan_statistics.json"

    def _kept_statistics(self) -> Statistics | None:
        """Read or, the first time, measured."""
        with contextlib.suppress(OSError, ValueError, TypeError):
            if (kept := Statistics(**json.loads(self._statistics_path.read_text()))).version == VERSION:
                return kept
        try:
            weights = read_weights(self.folder.weights)
            tensors = stored_tensors(self.config, shapeless_model(self.config).state_dict())
            measured = Statistics(measured_sizes(tensors, weights))
        except (GolfError, KeyError):
            return None
        self._keep(measured)
        return measured

    def _keep(self, statistics: Statistics) -> None:
        with contextlib.suppress(GolfError):  # somebody else's folder: measured again next time
            write_json(self._statistics_path, asdict(statistics))


def machine_of(environment: dict[str, Any]) -> str:
    """`golf.run.environment.machine_kind` of the machine that wrote `environment`."""
    if environment.get("gpus"):
        return f"{environment['gpus']}× {environment.get('gpu')}"
    return f"{environment.get('cpu')}, {environment.get('cpu_cores')} cores"


def finished_runs(root: Path) -> list[FinishedRun]:
    """Runs under `root` that left an artifact, newest first; what another version wrote is passed over."""
    results = sorted(root.glob("*/seed*/result.json"), key=lambda p: p.stat().st_mtime, reverse=True)
    found = []
    for path in results[:MOST_RUNS]:
        folder = RunFolder(path.parent)
        try:
            result = read_result(path)
            environment = json.loads((folder.path / "environment.json").read_text())
            if result.artifact_bytes and result.steps:
                found.append(FinishedRun(folder, folder.read_config(), result, environment))
        except (GolfError, OSError, ValueError):
            continue
    return found
