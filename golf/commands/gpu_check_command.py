"""Check a GPU machine: numbers, compiling, ranks, steps, one run.

    golf gpu-check --report gpu.md

The checks compare the GPU with the CPU, compile the model to one graph that must not be compiled again, and sum tensors
over two ranks. Then the step time of `naive_baseline` is measured, eager and compiled, the main job runs for
--train-seconds, and each preset takes some steps, whose time and memory stand beside the plan's. After --minutes no
further preset begins. The exit status is 1 if a check fails. `--device cpu` with small overrides rehearses it.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from golf.commands.parsing import CommandParser
from golf.errors import GolfError
from golf.paths import ROOT
from golf.words import counted

if TYPE_CHECKING:
    import torch

Check = tuple[str, bool, str]  # a row of the report: what is checked, whether it is in order, a detail
SEND_BACK = (
    "To have a difference looked at, send this report, `golf doctor`'s lines, and from the main job's run folder "
    "result.json, environment.json and train.log. None of them holds a key."
)
# The baseline, parallel Muon, the best public record, late averages, eight layers; in the order of what they tell.
PRESETS = ("naive_baseline", "pr593_11l", "records/2026-04-27_caseops_lqer_9hp", "gold6_11l", "single_h100_8l")


class Report:
    """Lines of Markdown, printed and kept in a file as they come, so that a crash loses none of them."""

    def __init__(self, file: Path | None):
        self.file = file
        if file:
            file.write_text("", encoding="utf-8")

    def add(self, *lines: str) -> None:
        print("\n".join(lines), flush=True)
        if self.file:
            with self.file.open("a", encoding="utf-8") as out:
                out.write("\n".join(lines) + "\n")


def main(arguments: list[str]) -> int:
    """Print the report in Markdown; the exit status is 1 if a check fails, or that of the main job."""
    parser = CommandParser("gpu-check", __doc__, presets={"default": ",".join(PRESETS)})
    args, start = parser.parse_intermixed_args(arguments), time.monotonic()
    if args.steps < 1:
        raise GolfError(f"--steps {args.steps} leaves nothing to time: write 1 or more.")
    if args.report and not args.report.absolute().parent.is_dir():
        raise GolfError(f"--report {args.report}: its folder does not exist. Make it first.")
    import torch

    from golf.commands import gpu_measurement as measured
    from golf.commands.gpu_ranks import check_two_ranks

    if args.device == "cuda" and not torch.cuda.is_available():
        raise GolfError("no CUDA device is visible; --device cpu tries the command without one.")
    device = torch.device(args.device)
    name = torch.cuda.get_device_name(0) if args.device == "cuda" else "CPU"
    overrides = [*(args.overrides or ["experiment=naive_baseline", "scale=single_gpu"]), f"launch.device={args.device}"]
    report = Report(args.report)
    report.add(
        f"## {name}, torch {torch.__version__}", "", f"`{' '.join(overrides)}`", "", "| check | | |", "|---|---|---|"
    )
    checks: dict[str, Callable[[], Iterable[Check]]] = {
        "numbers equal the CPU": lambda: measured.check_numbers(device),
        "attention equals float64": lambda: measured.check_kernels(device),
        "compiles once": lambda: measured.check_compiling(overrides, device),
        "two ranks sum alike": lambda: [check_two_ranks(device)],
    }
    passed = True
    for what, check in checks.items():
        passed &= _reported(what, check, report)
    report.add("", "| step | median ms | fastest | slowest | tokens/s |", "|---|---|---|---|---|")
    for mode in ("off", "full"):
        passed &= _step_row(mode, partial(measured.step_row, overrides, device, args.steps, mode), report)
    status = 0
    if args.train_seconds:
        status = _main_job([*overrides, f"budget.train_seconds={args.train_seconds:g}"], report)
    presets = [] if args.presets == "none" else args.presets.split(",")
    if presets:
        # The presets say their own sizes, which a scale and settings from the command line may shrink.
        common = [override for override in overrides if not override.startswith("experiment=")]
        passed &= _presets(presets, common, device, args.steps, start + 60 * args.minutes, report)
    report.add("", f"{(time.monotonic() - start) / 60:.1f} minutes in all.", "", SEND_BACK)
    return status if passed else 1


def _reported(what: str, check: Callable[[], Iterable[Check]], report: Report) -> bool:
    """Report the rows of a check as they come, and an error as a row called `what`; tell whether all is well."""
    well = True
    try:
        for row, ok, detail in check():
            report.add(f"| {row} | {'yes' if ok else 'NO'} | {detail} |")
            well &= ok
    # Compilers and libraries fail in many ways, and the other checks tell more than a traceback.
    except Exception as error:
        report.add(f"| {what} | NO | {one_line(error)} |")
        well = False
    return well


def _step_row(mode: str, row: Callable[[], str], report: Report) -> bool:
    """Report the step times under a compile mode, or why there are none; tell which."""
    try:
        report.add(row())
    except Exception as error:
        report.add(f"| compile={mode} | NO: {one_line(error)} | | | |")
        return False
    return True


def _main_job(overrides: list[str], report: Report) -> int:
    """Run and report the main job; return its exit status."""
    command = ["golf/train.py", *overrides]
    done = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, encoding="utf-8")
    report.add("", f"`{' '.join(command)}` ended with status {done.returncode}:", "", "```", done.stdout, "```")
    print(done.stderr, end="")
    return done.returncode


def _presets(
    presets: Sequence[str], overrides: list[str], device: torch.device, steps: int, end: float, report: Report
) -> bool:
    """Report a row for each preset that begins before the time `end`; tell whether all of those are in order."""
    from golf.commands.gpu_presets import HEADER, measure_preset

    report.add("", f"{counted(steps, 'step')} of each preset, before its late switches:", "", *HEADER)
    found = []
    for preset in presets:
        if time.monotonic() < end:
            found.append(measure_preset(preset, overrides, device, steps))
            report.add(found[-1].row)
    for one in found:
        if one.kernels:
            report.add("", f"{one.preset}: {'; '.join(one.kernels)}")
    if left_out := presets[len(found) :]:
        report.add("", f"Not tried, because --minutes were over: {', '.join(left_out)}.")
    return not any(one.problem for one in found)


def one_line(error: Exception) -> str:
    """Return kind and sentence of `error` for a cell of a table, at most 200 characters of it."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}".replace("|", "/")
