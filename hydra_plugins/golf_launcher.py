"""Hydra's launcher for sweeps on this machine: compose the jobs of a batch and hand them to `golf.lab.sweep`.

Hydra accepts plugins from the namespace package `hydra_plugins` only. The launcher works with every sweeper: a sweeper
asks for batches of overrides and gets the bits per byte of each job back.
"""

from __future__ import annotations

import copy
import functools
import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType
from hydra.core.utils import JobReturn, JobStatus, setup_globals
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from golf.settings.usage import DRY_RUN

EXIT_INTERRUPTED = 130
MANY = 200  # jobs that take more than a few seconds to compose
SEED = re.compile(r"seed=(\d+)")


class GolfLauncher(Launcher):
    """A launcher that runs each job in its own process, as many at once as the machine has room for."""

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.hydra_context, self.config = hydra_context, config
        # The jobs run in other processes, which never call the task: their rows are added to the task's own here.
        self.rows: list[Any] = getattr(task_function, "rows", [])
        self.told: dict[str, Any] = getattr(task_function, "told", {})
        self.composed: dict[tuple[str, ...], DictConfig] = {}
        self.by_variant: dict[tuple[str, ...], tuple[DictConfig, Any]] = {}

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        # Hydra imports every plugin at its start, so what is slow to import waits until a sweep runs.
        from golf.lab.sweep.batch import run_batch
        from golf.lab.sweep.jobs import Job
        from golf.lab.sweep.rounds import DECIDED, run_until_decided
        from golf.launch.process import Interrupted

        setup_globals()
        nodes, asked = zip(*self.jobs(job_overrides), strict=True)
        name = Path(self.config.hydra.sweep.dir).name
        in_rounds = any(isinstance(job, Job) and job.cfg.sweep.until == DECIDED for job in asked)
        if DRY_RUN in os.environ:
            from golf.lab.sweep.dry_run import show_dry_run

            self.told.update(show_dry_run(asked, name))
            return [JobReturn(o, status=JobStatus.COMPLETED, _return_value=float("nan")) for o in job_overrides]
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
        if len(job_overrides) > MANY:
            # Composing many takes a while, and nothing else is printed before its end.
            print(f"composing {len(job_overrides):,} jobs", flush=True)
        return [self._composed_job(overrides) for overrides in job_overrides]

    def _composed_job(self, overrides: Sequence[str]) -> tuple[DictConfig, Any]:
        """Return the composed configuration of a job and its `Job` or `Refused`."""
        from golf.lab.sweep.jobs import Job

        # A seed changes nothing else in a configuration, so that the seeds of a variant are composed once.
        seeds = [int(match[1]) for o in overrides if (match := SEED.fullmatch(o))]
        key = tuple(o for o in overrides if not SEED.fullmatch(o)) if len(seeds) == 1 else tuple(overrides)
        if key not in self.by_variant:
            node = self._node(overrides)
            # A setting of somebody's own may follow the seed.
            if "seed}" in repr(OmegaConf.to_container(node, resolve=False)):
                return node, _job(overrides, node)
            self.by_variant[key] = node, _job(overrides, node)
        node, job = self.by_variant[key]
        if not isinstance(job, Job) or not seeds:
            return node, replace(job, overrides=tuple(overrides))
        return node, Job.of(overrides, replace(job.cfg, seed=seeds[0]), job.remarks)

    def _node(self, overrides: Sequence[str]) -> DictConfig:
        """Return the configuration that `overrides` compose."""
        from golf.settings.composition import without_clock

        # Composing takes Hydra a tenth of a second. Jobs that differ in plain values share one composition, into which
        # the values are written: a thousand jobs then take 11 s of processor time instead of minutes.
        values = [parsed for o in overrides if _is_value(parsed := _parsed(o))]
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


@functools.cache
def _parsed(override: str) -> Override:
    """Return `override` as Hydra reads it. Jobs of a sweep share most of theirs, and the grammar is slow."""
    return OverridesParser.create().parse_override(override)


def _is_value(override: Override) -> bool:
    """Tell whether the override only sets a field of a group, or the seed: neither changes what else is composed."""
    return override.type == OverrideType.CHANGE and ("." in override.key_or_group or override.key_or_group == "seed")


def _job(overrides: Sequence[str], node: DictConfig) -> Any:
    """Return the `Job` that `node` describes, or `Refused` if it is not a valid configuration."""
    from golf.errors import GolfError
    from golf.lab.sweep.jobs import Job, Refused
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
