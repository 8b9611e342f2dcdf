"""`python golf/train.py [overrides]`: compose, check, run, show. `-m` runs every combination of listed values.

`+sweep=<name>` runs the sweep of conf/sweep/, `--why A B` says which settings two runs or lists of overrides differ in.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
if Path(sys.path[0] or ".").resolve() == ROOT / "golf":  # run as a script: modules of golf/ are not top-level ones
    sys.path[0] = str(ROOT)
if str(ROOT) not in sys.path:  # started as a module from elsewhere: Hydra looks for hydra_plugins/ along the path
    sys.path.append(str(ROOT))
# Idle OpenMP threads go to sleep after some 30 µs instead of milliseconds: beside another busy process a training step
# otherwise takes up to 20 times as long (docs/benchmarks.md). Read when torch is imported.
os.environ.setdefault("GOMP_SPINCOUNT", "10000")

if __name__ == "__main__" and {"-h", "--help"} & set(sys.argv[1:]):  # before anything that takes time to import
    from golf.settings.usage import usage

    with contextlib.suppress(BrokenPipeError):  # `--help | head`
        print(usage(), flush=True)
    os._exit(0)  # at once: an ordinary exit would try to write what the reader did not want

import hydra  # noqa: E402
from hydra.core.hydra_config import HydraConfig  # noqa: E402
from hydra.types import RunMode  # noqa: E402
from omegaconf import DictConfig  # noqa: E402

from golf.errors import GolfError  # noqa: E402
from golf.jobs.launch.launcher import train_and_score, train_once  # noqa: E402
from golf.jobs.sweep.batch import Row, mirror_report  # noqa: E402
from golf.jobs.sweep.record import discard_unused, sweep_folder, sweep_name  # noqa: E402
from golf.plan.lines import lines_before_run  # noqa: E402
from golf.report.summary import print_plan, print_result  # noqa: E402
from golf.report.sweep_table import print_sweep  # noqa: E402
from golf.report.why import why  # noqa: E402
from golf.run.folder import RunFolder, find_run  # noqa: E402
from golf.run.result import INTERRUPTED, OK, Result  # noqa: E402
from golf.settings.composition import (  # noqa: E402
    COMPOSITION_ERRORS,
    CONF_DIR,
    completed,
    explain,
    refuse_unknown_flags,
    register_techniques,
    rules_selected,
    settled_config,
    sweep_label,
)
from golf.training.loop.quant_gap import gaps_of_run, print_gaps  # noqa: E402

SHOWN_GROUPS = ("experiment", "model", "optim", "schedule", "quant", "data", "eval", "budget", "rules", "scale")
MULTIRUN_FLAGS = ("-m", "--multirun")
EXIT_NOT_OK, EXIT_USAGE, EXIT_INTERRUPTED = 1, 2, 130


class Task:
    """The function that Hydra calls for each job, with a row for every job of this command.

    Hydra drops what a task returns and gives the task itself to the launcher. The rows are an attribute of the task,
    so that a launcher which runs jobs in other processes can add theirs.
    """

    __module__ = "golf.train"  # also where this file is the script: Hydra takes the job's name from it

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def __call__(self, node: DictConfig) -> float:
        """Run one job. Return its bits per byte for sweepers that search; infinity if it has no score."""
        overrides = list(HydraConfig.get().overrides.task)
        try:
            result, folder = run(node)
        except GolfError as error:
            self.rows.append(Row(overrides, None, str(error)))
            print(f"error: {error}", file=sys.stderr)
            return float("inf")
        print_result(result, folder.path)
        self.rows.append(Row(overrides, result))
        if result.state == INTERRUPTED:
            raise SystemExit(EXIT_INTERRUPTED)
        return result.final_score.val_bpb if result.final_score else float("inf")


def run(node: DictConfig) -> tuple[Result, RunFolder]:
    """Print the plan of one run and run it. A job of a sweep that has finished before is not run again."""
    cfg, remarks = settled_config(node)
    choices = HydraConfig.get().runtime.choices
    shown = {group: choices[group] for group in SHOWN_GROUPS if choices.get(group)}
    print_plan(cfg, shown, [*remarks, *lines_before_run(cfg)])
    return train_once(cfg) if HydraConfig.get().mode == RunMode.MULTIRUN else train_and_score(cfg)


def print_quant_gaps(rows: Sequence[Row]) -> None:
    """Print the quantization gaps of each run's checkpoint under every number format, for `+sweep=quant_gap`."""
    for row in rows:
        if row.result and row.result.final_score and (folder := find_run(row.result.variant_id, row.result.seed)):
            print(f"\n{folder.path}\n")
            try:
                print_gaps(gaps_of_run(folder))
            except GolfError as error:
                print(f"error: {error}", file=sys.stderr)


def command_line() -> int:
    """Exit status: 0 all `ok`, 1 a run that is not, 2 something to mend in the command or its inputs."""
    if sys.argv[1:2] == ["--why"]:
        return why(sys.argv[2:])
    arguments = completed(sys.argv[1:])
    if any(a.startswith("sweep=") for a in arguments) and not any(a.startswith("-") for a in arguments):
        arguments.append("-m")  # hydra.mode would do, but then Hydra explains no mistake beside a swept value
    sys.argv[1:] = sorted(arguments, key=lambda a: a not in MULTIRUN_FLAGS)  # argparse wants it before overrides
    name = sweep_name(sweep_label([a for a in arguments if not a.startswith("-")]), arguments)
    os.environ["GOLF_SWEEP_DIR"] = str(sweep_folder(name))
    wants_traceback = "HYDRA_FULL_ERROR" in os.environ
    register_techniques()
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra then raises instead of printing its own report
    task = Task()
    rows = task.rows
    try:
        refuse_unknown_flags(arguments)
        hydra.main(version_base="1.3", config_path=CONF_DIR, config_name="config")(task)()
    except COMPOSITION_ERRORS as error:
        if rows or wants_traceback:
            raise
        print(f"error: {explain(error)}", file=sys.stderr)
        return EXIT_USAGE
    except GolfError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_USAGE
    finally:
        if len(rows) > 1:
            print_sweep(name, [row[:3] for row in rows], rules_selected(arguments))
            mirror_report(name, rows, rules_selected(arguments))
        if any(a.lstrip("+") == "sweep=quant_gap" for a in arguments):
            print_quant_gaps(rows)
        discard_unused(name)
    if any(row.result is None for row in rows):
        return EXIT_USAGE
    return 0 if all(row.result.state == OK for row in rows if row.result) else EXIT_NOT_OK


if __name__ == "__main__":
    sys.exit(command_line())
