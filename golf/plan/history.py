"""Finished runs as evidence: what they were, what came out, and what can be measured on their weights once."""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from golf.artifact.quant.policy import rounded_to_nearest
from golf.errors import GolfError
from golf.files import write_json
from golf.plan.flops import flops_per_token
from golf.plan.rehearsal import rehearse, rehearse_trained
from golf.plan.spread import measured_sizes
from golf.plan.tensors import matrix_roles, stored_tensors, weights_by_role
from golf.run.folder import RunFolder
from golf.run.result import Result, read_result
from golf.settings.config import Config, QuantConfig, uses_gptq
from golf.training.model.build import shapeless_model
from golf.training.model.weights import read_weights

VERSION = 3  # of what `plan_statistics.json` holds
MOST_RUNS = 200  # the newest ones


@dataclass
class Statistics:
    """Measured on a run's trained weights; kept as `plan_statistics.json` in its folder."""

    sizes: dict[str, float]  # RMS·√columns by role
    gaps: dict[str, dict[str, float]] = field(default_factory=dict)  # by number formats and role, see `golf.plan.gaps`
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

    def was_stored_as(self, quant: QuantConfig) -> bool:
        """Whether its artifact tells what `quant` takes; one that was pruned to fit tells the cap."""
        return quant == self.config.quant and not quant.prune.to_fit

    def gaps(self, quant: QuantConfig) -> dict[str, float] | None:
        """Bits a weight, by role, that trained weights take above Gaussian ones under `quant`; None if they are gone.

        With what GPTQ and repair add if its artifact `was_stored_as` that, else with all codes rounded to the nearest.
        """
        kept = self._kept_statistics()
        if not (own := self.was_stored_as(quant)):
            quant = rounded_to_nearest(quant)
        key = json.dumps(asdict(quant), sort_keys=True)
        if kept is not None and key not in kept.gaps:
            artifact = self.result.artifact_bytes if own and uses_gptq(quant) else None
            try:
                kept.gaps[key] = self._measured_gaps(replace(self.config, quant=quant), kept.sizes, artifact)
            except (GolfError, KeyError):
                return None
            self._keep(kept)
        return kept.gaps.get(key) if kept else None

    def _measured_gaps(self, cfg: Config, sizes: dict[str, float], artifact: int | None) -> dict[str, float]:
        """Each role's own, compressed alone, and an equal share of what makes the whole file larger or smaller."""
        tensors = stored_tensors(cfg, shapeless_model(cfg).state_dict())
        rms = {t.role: sizes[t.role] * t.columns**-0.5 for t in tensors if t.role in sizes}
        trained = read_weights(self.folder.weights)
        gaussian = rehearse(cfg, tensors, rms, apart=True).by_role
        stored = rehearse_trained(cfg, tensors, trained, apart=True).by_role
        weights = weights_by_role(tensors)
        bits = {role: 8 * (stored[role] - gaussian[role]) / weights[role] for role in matrix_roles(tensors)}
        if cfg.quant.codec == "context" and artifact is None:
            return bits
        together = artifact or rehearse_trained(cfg, tensors, trained).total
        alone = sum(bits[role] * weights[role] for role in bits) / 8
        rest = 8 * (together - rehearse(cfg, tensors, rms).total - alone) / max(sum(weights[role] for role in bits), 1)
        return {role: own + rest for role, own in bits.items()}

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
