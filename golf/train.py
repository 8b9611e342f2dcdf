"""`python golf/train.py [overrides]`: compose, check, run, show. `-m` runs every combination of listed values."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
if Path(sys.path[0] or ".").resolve() == ROOT / "golf":  # run as a script: modules of golf/ are not top-level ones
    sys.path[0] = str(ROOT)
# Idle OpenMP threads go to sleep after some 30 µs instead of milliseconds: beside another busy process a training step
# otherwise takes up to 20 times as long (docs/benchmarks.md). Read when torch is imported.
os.environ.setdefault("GOMP_SPINCOUNT", "10000")

import hydra  # noqa: E402
from hydra.core.hydra_config import HydraConfig  # noqa: E402
from omegaconf import DictConfig  # noqa: E402

from golf.composition import (  # noqa: E402
    COMPOSITION_ERRORS,
    CONF_DIR,
    explain,
    register_techniques,
    settled_config,
    with_scale,
)
from golf.errors import GolfError  # noqa: E402
from golf.launch.launcher import train_and_score  # noqa: E402
from golf.report.summary import print_plan, print_result, print_sweep  # noqa: E402
from golf.run.folder import runs_root  # noqa: E402
from golf.run.result import INTERRUPTED, OK, Result  # noqa: E402

SHOWN_GROUPS = ("experiment", "model", "optim", "schedule", "quant", "data", "eval", "budget", "rules", "scale")
EXIT_NOT_OK, EXIT_USAGE, EXIT_INTERRUPTED = 1, 2, 130
jobs: list[tuple[list[str], Result | None, str]] = []  # overrides, result, error of every job so far


@hydra.main(version_base="1.3", config_path=CONF_DIR, config_name="config")
def main(node: DictConfig) -> float:
    """One job. Returns its bits per byte for sweepers that search; a job without a score is infinitely bad."""
    overrides = list(HydraConfig.get().overrides.task)
    try:
        result = run(node)
    except GolfError as error:
        jobs.append((overrides, None, str(error)))
        print(f"error: {error}", file=sys.stderr)
        return float("inf")
    jobs.append((overrides, result, ""))
    if result.state == INTERRUPTED:
        raise SystemExit(EXIT_INTERRUPTED)
    return result.final_score.val_bpb if result.final_score else float("inf")


def run(node: DictConfig) -> Result:
    """Say what runs, run it, print the table."""
    cfg, remarks = settled_config(node)
    choices = HydraConfig.get().runtime.choices
    print_plan(cfg, {group: choices[group] for group in SHOWN_GROUPS if choices.get(group)}, remarks)
    result, folder = train_and_score(cfg)
    print_result(result, folder.path)
    return result


def command_line() -> int:
    """Exit status: 0 all `ok`, 1 a run that is not, 2 something to mend in the command or its inputs."""
    arguments = with_scale(sys.argv[1:])
    sys.argv[1:] = sorted(arguments, key=lambda a: a not in ("-m", "--multirun"))  # argparse wants it before overrides
    os.environ.setdefault("GOLF_SWEEP_DIR", str(runs_root() / "sweeps"))
    wants_traceback = "HYDRA_FULL_ERROR" in os.environ
    register_techniques()
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra then raises instead of printing its own report
    try:
        main()
    except COMPOSITION_ERRORS as error:
        if jobs or wants_traceback:
            raise
        print(f"error: {explain(error)}", file=sys.stderr)
        return EXIT_USAGE
    finally:
        if len(jobs) > 1:
            print_sweep(jobs)
    if any(result is None for _, result, _ in jobs):
        return EXIT_USAGE
    return 0 if all(result.state == OK for _, result, _ in jobs if result) else EXIT_NOT_OK


if __name__ == "__main__":
    sys.exit(command_line())
