"""Hydra's launcher for sweeps on this machine: compose the jobs of a batch and hand them to `golf.jobs.sweep`.

Hydra accepts plugins from the namespace package `hydra_plugins` only. The launcher works with every sweeper: a sweeper
asks for batches of overrides and gets the bits per byte of each job back.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType
from hydra.core.utils import JobReturn, JobStatus, setup_globals
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict, read_write

EXIT_INTERRUPTED = 130


class GolfLauncher(Launcher):
    """A launcher that runs each job in its own process, as many at once as the machine has room for."""

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.hydra_context, self.config = hydra_context, config
        # The jobs run in other processes, which never call the task: their rows are added to the task's own here.
        self.rows: list[Any] = getattr(task_function, "rows", [])
        self.composed: dict[tuple[str, ...], DictConfig] = {}

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        # Hydra imports every plugin at its start, so what is slow to import waits until a sweep runs.
        from golf.jobs.launch.process import Interrupted
        from golf.jobs.sweep.batch import run_batch
        from golf.jobs.sweep.jobs import Job
        from golf.jobs.sweep.rounds import DECIDED, run_until_decided

        setup_globals()
        nodes, asked = zip(*self.jobs(job_overrides), strict=True)
        name = Path(self.config.hydra.sweep.dir).name
        in_rounds = any(isinstance(job, Job) and job.cfg.sweep.until == DECIDED for job in asked)
        try:
            if in_rounds:
                results = run_until_decided(asked, name=name, rows=self.rows)
            else:
                results = run_batch(asked, name=name, rows=self.rows, first_batch=initial_job_idx == 0)
        except Interrupted as error:
            raise SystemExit(EXIT_INTERRUPTED) from error
        return [
            JobReturn(overrides, node, status=JobStatus.COMPLETED, _return_value=_score(result))
            for overrides, node, result in zip(job_overrides, nodes, results, strict=True)
        ]

    def jobs(self, job_overrides: Sequence[Sequence[str]]) -> list[tuple[DictConfig, Any]]:
        """Return every job's composed configuration, without Hydra's own part, and its `Job` or `Refused`."""
        nodes = [self._node(overrides) for overrides in job_overrides]
        return [(node, _job(overrides, node)) for overrides, node in zip(job_overrides, nodes, strict=True)]

    def _node(self, overrides: Sequence[str]) -> DictConfig:
        """Return the configuration that `overrides` compose."""
        from golf.settings.composition import without_clock

        # Composing takes Hydra a tenth of a second. Jobs that differ in plain values share one composition, into which
        # the values are written: a thousand jobs then take 11 s of processor time instead of minutes.
        values = [o for o in OverridesParser.create().parse_overrides(list(overrides)) if _is_value(o)]
        # `input_line` is the override as written, by which it is found among the others.
        assert all(o.input_line is not None for o in values)
        rest = tuple(o for o in overrides if o not in {v.input_line for v in values})
        if rest not in self.composed:
            node = self.hydra_context.config_loader.load_sweep_config(self.config, [*without_clock(rest), *rest])
            with read_write(node), open_dict(node):
                del node["hydra"]
            self.composed[rest] = node
        # Each job writes its own values into the composition that it shares.
        node = copy.deepcopy(self.composed[rest])
        for override in values:
            OmegaConf.update(node, override.key_or_group, override.value(), merge=True)
        return node


def _is_value(override: Override) -> bool:
    """Tell whether the override only sets a field of a group, or the seed: neither changes what else is composed."""
    return override.type == OverrideType.CHANGE and ("." in override.key_or_group or override.key_or_group == "seed")


def _job(overrides: Sequence[str], node: DictConfig) -> Any:
    """Return the `Job` that `node` describes, or `Refused` if it is not a valid configuration."""
    from golf.errors import GolfError
    from golf.jobs.sweep.jobs import Job, Refused
    from golf.settings.composition import settled_config
    from golf.settings.overruled import replaced_by_scale

    try:
        cfg, remarks = settled_config(node)
        return Job.of(overrides, cfg, [*remarks, *replaced_by_scale(overrides, cfg)])
    except GolfError as error:
        return Refused(tuple(overrides), str(error))


def _score(result: Any) -> float:
    """Return the bits per byte of `result` for sweepers that search; infinity for a job without a score."""
    return result.final_score.val_bpb if result and result.final_score else float("inf")
