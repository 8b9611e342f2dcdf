"""`python golf/train.py [overrides]`: compose, check, run, show. `-m` runs every combination of listed values.

`+sweep=<name>` runs the sweep of conf/sweep/.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

# Before any other import. A script has golf/ itself on the path, and so finds its neighbour there.
if __name__ == "__main__":
    import_module("golf.start" if __package__ else "start").prepare(sys.argv[1:])

# Modules that import torch or scipy are imported where they are used, so that a mistake is answered without them.
import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from golf.errors import GolfError
from golf.exits import EXIT_INTERRUPTED, EXIT_NOT_OK, EXIT_USAGE, exit_status
from golf.files import DISK_REFUSES, disk_error
from golf.run.code import about_change, code_of_run
from golf.run.folder import RunFolder, finished_run, runs_root
from golf.run.identity import variant_id
from golf.run.result import CRASHED, INTERRUPTED, OK, STOPPED, Result, to_json
from golf.settings.bundles import FLAG, as_setting, bundles_given, on_top
from golf.settings.composition import (
    COMPOSITION_ERRORS,
    CONF_DIR,
    completed,
    refuse_mistakes,
    register_techniques,
    rules_selected,
    settled_config,
    sweep_label,
)
from golf.settings.mistakes import explain, flags_first
from golf.settings.usage import DRY_RUN
from golf.start import set_up
from golf.training.services import SERVICES
from golf.words import answer, outlive_readers, told_on_stderr

if TYPE_CHECKING:
    from golf.run.sweeps import Row
    from golf.settings.config import Config

SHOWN_GROUPS = ("experiment", "model", "optim", "schedule", "quant", "data", "eval", "budget", "rules", "scale")
# Hydra accepts long flags shortened.
MULTIRUN = re.compile(r"-m|--m\w*")
TRACEBACKS = "HYDRA_FULL_ERROR"  # Hydra's variable
UNTIL = re.compile(r"\+*sweep\.until=['\"]?decided['\"]?")
SAME_COMMAND_STARTS_OVER = "The same command starts over, in a new folder beside this one."
SAME_COMMAND_FINISHES = "The same command packs and scores the trained weights; launch.fresh=true trains again."
SAME_COMMAND_RESUMES = "The same command goes on from the last checkpoint; launch.fresh=true starts over."


def command_line(command: Sequence[str] | None = None) -> int:
    """Return the exit status: 0 if all runs are `ok`, 1 if one is not, 2 for a mistake in the command or its inputs.

    `command` is a program's name with its arguments, by default those of this process.
    """
    before, wish = sys.argv[:], os.environ.get(TRACEBACKS)
    # Hydra reads its overrides there, and the records of runs keep them.
    sys.argv[:] = before if command is None else command
    try:
        return _command_line()
    finally:
        sys.argv[:] = before
        # A command that runs several sweeps would take golf's own wish for the user's.
        if wish is None:
            os.environ.pop(TRACEBACKS, None)


def _command_line() -> int:
    set_up()
    outlive_readers()
    # Under torchrun every rank would start all ranks of a run again.
    if "TORCHELASTIC_RUN_ID" in os.environ:
        said = "golf starts its ranks itself: use python, not torchrun, and launch.nproc for their number."
        print(f"error: {said}", file=sys.stderr)
        return EXIT_USAGE
    try:
        arguments, bundles = bundles_given(sys.argv[1:])
        flags, overrides = flags_first(arguments)
        if "--version" in flags:
            from golf.run.environment import golf_version

            print(f"golf {golf_version()}")
            return 0
        # Hydra does not know these flags. Long flags can be shortened.
        if dry := [flag for flag in flags if flag.startswith("--d") and "--dry-run".startswith(flag)]:
            os.environ[DRY_RUN] = "1"
        as_json = [flag for flag in flags if flag.startswith("--j") and "--json".startswith(flag)]
        flags = [flag for flag in flags if flag not in (*dry, *as_json)]
        if (bundles or any(o.lstrip("+").startswith("sweep=") for o in overrides)) and not flags:
            # Setting hydra.mode would do, but then Hydra explains no mistake beside a swept value.
            flags.append("-m")
        several = any(MULTIRUN.fullmatch(flag) for flag in flags)
        for bundle in bundles or [[]]:
            refuse_mistakes([*flags, *on_top(overrides, bundle)], several=several)
        if bundles and any(o.startswith("hydra/sweeper=optuna") for o in overrides):
            raise GolfError(f"A search has no bundles: leave {FLAG} or hydra/sweeper=optuna out.")
        if bundles:
            overrides = [*overrides, as_setting(bundles)]
        if not several and any(UNTIL.fullmatch(override) for override in overrides):
            raise GolfError("sweep.until=decided compares the variants of a sweep: add -m and two values of a setting.")
    except GolfError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_USAGE
    overrides = completed(overrides)
    # Hydra's own help composes nothing, and refuses overrides.
    sys.argv[1:] = flags if "--hydra-help" in flags else [*flags, *overrides]
    task = Task()
    if not as_json:
        return _run_all(overrides, task)
    try:
        with told_on_stderr():
            return _run_all(overrides, task)
    finally:
        errors = [row.error for row in task.rows if row.error]
        print(answer({"dry_run": DRY_RUN in os.environ, **task.told, "errors": errors}))


def name_of(overrides: Sequence[str]) -> str:
    """Return the name of the sweep that completed `overrides` ask for."""
    from golf.run.sweeps import sweep_name

    return sweep_name(sweep_label(overrides), overrides)


def _run_all(overrides: list[str], task: Task) -> int:
    """Let Hydra run the jobs of `sys.argv`, show the table of several, and return the exit status."""
    from golf.run.sweeps import discard_unused, sweep_folder

    name = name_of(overrides)
    # conf/config.yaml takes Hydra's folder from this variable.
    os.environ["GOLF_SWEEP_DIR"] = str(sweep_folder(name))
    # The user's own wish is read before golf sets the same variable.
    wants_traceback = TRACEBACKS in os.environ
    register_techniques()
    # Hydra then raises instead of printing its own report.
    os.environ[TRACEBACKS] = "1"
    # Python 3.14 reads the help of every argument, and hydra-core 1.3.8 gives it one that is no text.
    argparse.ArgumentParser._check_help = lambda *_: None  # type: ignore[attr-defined]
    rows = task.rows
    try:
        hydra.main(version_base="1.3", config_path=CONF_DIR, config_name="config")(task)()
    except COMPOSITION_ERRORS as error:
        # Once a job has run, its overrides were right: such an error is a fault of golf, which needs the traceback.
        if rows or wants_traceback:
            raise
        print(f"error: {explain(error)}", file=sys.stderr)
        return EXIT_USAGE
    except OSError as error:
        # Hydra makes the sweep's folder and writes a file there. Later such errors have sentences of their own.
        if rows or wants_traceback or error.errno not in DISK_REFUSES:
            raise
        print(f"error: {disk_error(sweep_folder(name), error)}", file=sys.stderr)
        return EXIT_USAGE
    except GolfError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_USAGE
    finally:
        # Whatever ended the sweep, the runs that were made until then are shown.
        task.told |= _show_sweep(name, rows, overrides)
        discard_unused(name)
    if any(row.result is None for row in rows):
        return EXIT_USAGE
    return 0 if all(row.result.state == OK for row in rows if row.result) else EXIT_NOT_OK


def _show_sweep(name: str, rows: Sequence[Row], overrides: Sequence[str]) -> dict[str, Any]:
    """Print the table of several runs, send it to the tracker of the runs, and return its values for programs."""
    if len(rows) > 1:
        from golf.lab.report.results import print_sweep
        from golf.lab.sweep.batch import mirror_report

        rules = rules_selected(overrides)
        told = print_sweep(name, [row[:3] for row in rows], rules)
        mirror_report(name, rows, rules)
        return told
    return {}


class Task:
    """The function that Hydra calls for each job, with a row for every job of this command.

    Hydra drops what a task returns and gives the task itself to the launcher. The rows are an attribute of the task,
    so that a launcher which runs jobs in other processes can add theirs.
    """

    # Hydra takes the job's name from the module, which would be `__main__` where this file is the script.
    __module__ = "golf.train"

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.told: dict[str, Any] = {}  # for --json

    def __call__(self, node: DictConfig) -> None:
        """Run the job of a command for a single run. The jobs of a sweep are run by golf's launcher."""
        from golf.launch.launcher import start
        from golf.run.attempts import sound_steps
        from golf.run.summary import print_result
        from golf.run.sweeps import Row

        overrides = list(HydraConfig.get().overrides.task)
        try:
            cfg = plan(node)
            if DRY_RUN in os.environ:
                from golf.lab.sweep.dry_run import run_to_come
                from golf.lab.sweep.jobs import Job

                self.told |= {"runs": [run_to_come(Job.of(overrides, cfg))]}
                print("a dry run: nothing is trained")
                return
            result, folder = start(cfg)
            self.told |= {"folder": folder.path, "result": to_json(result)}
        except GolfError as error:
            self.rows.append(Row(overrides, None, str(error)))
            print(f"error: {error}", file=sys.stderr)
            return
        print_result(result, folder.path)
        if result.state in (INTERRUPTED, CRASHED, STOPPED) and folder.is_trained:
            print(SAME_COMMAND_FINISHES)
        elif result.state in (INTERRUPTED, CRASHED, STOPPED):
            # A checkpoint that is refused has a sentence of its own.
            if sound_steps(folder) >= 0 and "launch.fresh=true" not in result.reason:
                print(SAME_COMMAND_RESUMES)
            elif not folder.has_checkpoint:
                print(SAME_COMMAND_STARTS_OVER)
        # The row comes before the exit, so that the table names an interrupted run, too.
        self.rows.append(Row(overrides, result))
        if result.state == INTERRUPTED:
            raise SystemExit(EXIT_INTERRUPTED)


def plan(node: DictConfig) -> Config:
    """Print the plan of one run and return its configuration. Raises `GolfError` for a run that cannot start here."""
    from golf.launch.launcher import check_start
    from golf.run.summary import print_plan
    from golf.settings.overruled import replaced_by_scale

    cfg, remarks = settled_config(node)
    # Before the plan, which draws samples of the weights and takes seconds.
    check_start(cfg)
    choices = HydraConfig.get().runtime.choices
    if done := finished_run(variant_id(cfg), cfg.seed):
        remarks.append(f"note: {_finished_before(*done)}")
    shown = {group: choices[group] for group in SHOWN_GROUPS if choices.get(group)}
    remarks += replaced_by_scale(HydraConfig.get().overrides.task, cfg)
    print_plan(cfg, shown, [*remarks, *(SERVICES.plan_lines(cfg) if SERVICES.plan_lines else [])])
    return cfg


def _finished_before(result: Result, folder: RunFolder) -> str:
    """Return a sentence about an earlier run of the same variant and seed: a sweep would not run it again."""
    if result.state == STOPPED:
        return f"the same run was stopped by golf stop ({folder.path}); this command goes on with it"
    score = f"{result.final_score.val_bpb:.4f} bits per byte" if result.final_score else result.state
    change = about_change(code_of_run(folder.path), runs_root())
    counts = f"by {change}, and this one will count" if change else "and its result goes on to count in tables"
    return f"the same run has finished before ({score}, {folder.path}), {counts}; this one trains into a new folder"


if __name__ == "__main__":
    sys.exit(exit_status(command_line))
