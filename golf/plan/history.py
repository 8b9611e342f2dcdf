"""Finished runs as evidence: configurations, results, and statistics of their weights, which are measured once."""

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
from golf.plan.simulation import simulate, simulate_trained
from golf.plan.tensors import matrix_roles, stored_tensors, weights_by_role
from golf.plan.weight_size import measured_sizes
from golf.run.folder import RunFolder
from golf.run.result import Result, read_result
from golf.settings.config import Config, QuantConfig, uses_gptq
from golf.training.model.build import shapeless_model
from golf.training.model.weights import read_weights

VERSION = 4  # version of the keys of `plan_statistics.json`
MOST_RUNS = 200  # newest runs that are read


@dataclass
class Statistics:
    """Measurements on a run's trained weights, kept as `plan_statistics.json` in its folder."""

    sizes: dict[str, float]  # RMS·√columns by role
    excess_bits: dict[str, dict[str, float]] = field(default_factory=dict)  # by number formats and role
    version: int = VERSION


@dataclass(frozen=True)
class FinishedRun:
    """A run that left an artifact."""

    folder: RunFolder
    config: Config
    result: Result
    environment: dict[str, Any]

    @property
    def machine(self) -> str:
        """Return `golf.run.environment.machine_kind` of the machine that the run was made on."""
        found = self.environment
        if found.get("gpus"):
            return f"{found['gpus']}× {found.get('gpu')}"
        return f"{found.get('cpu')}, {found.get('cpu_cores')} cores"

    def flops_per_step(self) -> float:
        """Return the floating-point operations of one training step."""
        return flops_per_token(self.config, shapeless_model(self.config)).total * self.config.data.train_batch_tokens

    def sizes(self) -> dict[str, float] | None:
        """Return RMS·√columns of the trained weights by role; None if the weights are gone."""
        kept = self._kept_statistics()
        return kept.sizes if kept else None

    def was_stored_as(self, quant: QuantConfig) -> bool:
        """Tell whether the artifact's bytes are those of `quant`."""
        # An artifact that was pruned to fit has the size of the cap, whatever its weights.
        return quant == self.config.quant and not quant.prune.to_fit

    def excess_bits(self, quant: QuantConfig) -> dict[str, float] | None:
        """Return the excess bits of the trained weights under `quant` by role; None if the weights are gone.

        They include what GPTQ and repair add if the artifact `was_stored_as` that; else all codes are rounded to
        nearest.
        """
        kept = self._kept_statistics()
        # Hessians are not kept, so GPTQ cannot be repeated on a checkpoint.
        if not (own := self.was_stored_as(quant)):
            quant = rounded_to_nearest(quant)
        key = json.dumps(asdict(quant), sort_keys=True)
        if kept is not None and key not in kept.excess_bits:
            artifact = self.result.artifact_bytes if own and uses_gptq(quant) else None
            try:
                kept.excess_bits[key] = self._measured_excess(replace(self.config, quant=quant), kept.sizes, artifact)
            except (GolfError, KeyError):
                return None
            self._keep(kept)
        return kept.excess_bits.get(key) if kept else None

    def _measured_excess(self, cfg: Config, sizes: dict[str, float], artifact: int | None) -> dict[str, float]:
        """Return the excess bits by role: each role compressed alone, plus an equal share a weight of the rest.

        The rest is the difference of the whole file, `artifact` bytes if that is known, from its parts.
        """
        tensors = stored_tensors(cfg, shapeless_model(cfg).state_dict())
        # The Gaussian weights get the size of the trained ones, so that only their distribution differs.
        rms = {t.role: sizes[t.role] * t.columns**-0.5 for t in tensors if t.role in sizes}
        trained = read_weights(self.folder.weights)
        gaussian = simulate(cfg, tensors, rms, apart=True).by_role
        stored = simulate_trained(cfg, tensors, trained, apart=True).by_role
        weights = weights_by_role(tensors)
        bits = {role: 8 * (stored[role] - gaussian[role]) / weights[role] for role in matrix_roles(tensors)}
        # Golf's own coder compresses every role alone, so there is no rest.
        if cfg.quant.codec == "context" and artifact is None:
            return bits
        together = artifact or simulate_trained(cfg, tensors, trained).total
        alone = sum(bits[role] * weights[role] for role in bits) / 8
        rest = 8 * (together - simulate(cfg, tensors, rms).total - alone) / max(sum(weights[role] for role in bits), 1)
        return {role: own + rest for role, own in bits.items()}

    @property
    def _statistics_path(self) -> Path:
        return self.folder.path / "plan_statistics.json"

    def _kept_statistics(self) -> Statistics | None:
        """Return the statistics from the run's folder, measured now if they are missing; None without weights."""
        with contextlib.suppress(OSError, ValueError, TypeError):
            # A file of an older version has other keys, and is measured anew like a missing one.
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
        # In a folder without write permission they are measured again next time.
        with contextlib.suppress(GolfError):
            write_json(self._statistics_path, asdict(statistics))


def finished_runs(root: Path) -> list[FinishedRun]:
    """Return the runs under `root` that left an artifact, newest first; unreadable ones are skipped."""
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
