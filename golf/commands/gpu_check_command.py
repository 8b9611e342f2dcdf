"""Check a GPU machine: kernels, a step, scoring, presets, a run.

    golf gpu-check --report gpu.md
    golf gpu-check --report gpu.md --parts kernels,step --minutes 3

Every part is a process of its own and takes at most --minutes; a row is written as soon as it is known. The same
command goes on where an earlier one ended: rows that were in order are not tried again. The exit status is 1 if a row
is not in order. `--device cpu` with small overrides rehearses it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, replace

from golf.commands.gpu_part import Order, as_json
from golf.commands.gpu_report import Report, Row
from golf.commands.parsing import CommandParser
from golf.errors import GolfError
from golf.paths import ROOT
from golf.words import duration


@dataclass(frozen=True)
class Part:
    """A part of the check."""

    tasks: str  # module and function that returns its tasks
    heading: str


PARTS = {
    "kernels": Part(
        "golf.commands.gpu_kernels:tasks",
        "every kernel against float64 at the sizes of records, largest relative distances",
    ),
    "numbers": Part("golf.commands.gpu_numbers:tasks", "loss and gradients against the CPU, and two ranks"),
    "step": Part(
        "golf.commands.gpu_steps:step_tasks", "a step, in turns with a public script where `--against` names one"
    ),
    "scoring": Part("golf.commands.gpu_speed:scoring_tasks", "test-time training with low-rank factors"),
    "profile": Part(
        "golf.commands.gpu_speed:profile_tasks", "a step by kernel, with the bytes that the compiler counts"
    ),
    "presets": Part(
        "golf.commands.gpu_steps:preset_tasks", "some steps of each preset, compiled, before its late switches"
    ),
    "run": Part("golf.commands.gpu_steps:run_tasks", "the main job"),
}
# The baseline, parallel Muon, the best public record, late averages, eight layers; in the order of what they tell.
PRESETS = ("naive_baseline", "pr593_11l", "records/2026-04-27_caseops_lqer_9hp", "gold6_11l", "single_h100_8l")
SEND_BACK = (
    "To have a difference looked at, send this report, `golf doctor`'s lines, and from the main job's run folder "
    "result.json, environment.json and train.log. None of them holds a key."
)


def main(arguments: list[str]) -> int:
    """Print the rows as they come; the exit status is 1 if one is not in order."""
    args = CommandParser("gpu-check", __doc__, parts={"default": ",".join(PARTS)}).parse_intermixed_args(arguments)
    parts = args.parts.split(",")
    if unknown := set(parts) - set(PARTS):
        raise GolfError(f"--parts does not know {', '.join(sorted(unknown))}: choose from {', '.join(PARTS)}.")
    if args.steps < 1:
        raise GolfError(f"--steps {args.steps} leaves nothing to time: write 1 or more.")
    if args.report and not args.report.absolute().parent.is_dir():
        raise GolfError(f"--report {args.report}: its folder does not exist. Make it first.")
    overrides = [*(args.overrides or ["experiment=naive_baseline", "scale=single_gpu"]), f"launch.device={args.device}"]
    against = str(args.against.absolute()) if args.against else ""
    order = Order("", "", args.device, overrides, args.steps, args.train_seconds, presets_of(args.presets), against)
    machine = f"{device_name(args.device)}, `{' '.join(overrides)}`"
    report = Report(args.report, machine, {part: PARTS[part].heading for part in PARTS})
    print(f"## {machine}", flush=True)
    for part in parts:
        print(f"\n**{part}**: {PARTS[part].heading}\n\n{report.table(part, kept=True)}", flush=True)
        own = replace(order, part=part, tasks=PARTS[part].tasks, skipped=sorted(report.passed(part)))
        report.leave_out(part, fill(replace(own, postponed=sorted(report.failed(part))), report, 60 * args.minutes))
    print(f"\n{SEND_BACK}")
    return 1 if any(report.failed(part) for part in parts) else 0


def presets_of(names: str | None) -> list[str]:
    """Return the presets of `--presets`: without it all of them, those of `PRESETS` first."""
    if names is not None:
        return [] if names == "none" else names.split(",")
    folder = ROOT / "conf" / "experiment"
    found = sorted(str(path.relative_to(folder).with_suffix("")) for path in folder.rglob("*.yaml"))
    return [*PRESETS, *(name for name in found if name not in PRESETS)]


def device_name(device: str) -> str:
    """Return name of the GPU and version of torch. Raises `GolfError` if either is not there."""
    try:
        import torch
    except ImportError as error:
        raise GolfError(f"torch cannot be imported ({error}): install the build for this machine's driver.") from error
    if device == "cuda" and not torch.cuda.is_available():
        raise GolfError("no CUDA device is visible; --device cpu tries the command without one.")
    name = torch.cuda.get_device_name(0) if device == "cuda" else "CPU"
    return f"{name}, torch {torch.__version__}"


def fill(order: Order, report: Report, seconds: float) -> list[str]:
    """Fill the rows of a part for at most `seconds`; return those that were not reached.

    A row that ends the process costs itself alone: the part is started again for the others.
    """
    end = time.monotonic() + seconds
    while True:
        attempt = _attempt(order, report, end)
        if attempt.is_over:
            why = f"no answer within {duration(seconds)} for this part"
        elif attempt.status == 0:
            return []
        else:
            why = attempt.ended
        # Without an answer the part itself has failed, before its first row.
        failed = attempt.began or ("" if attempt.answered else order.part)
        if failed and (attempt.began or not attempt.is_over):
            report.add(Row(order.part, failed, False, why))
        left = [what for what in attempt.rows if what not in (*attempt.answered, failed)]
        if attempt.is_over or not left:
            return left
        order = order.without(*attempt.answered, failed)


@dataclass(frozen=True)
class Attempt:
    """Outcome of one process that was to fill the rows of a part."""

    rows: list[str]  # all that it was to fill
    answered: list[str]
    began: str  # the row that it was at, empty between rows
    status: int
    last_line: str  # of its errors
    is_over: bool  # the time was

    @property
    def ended(self) -> str:
        """Return how it ended."""
        signalled = self.status < 0
        how = f"was ended by {signal.Signals(-self.status).name}" if signalled else f"ended with status {self.status}"
        return f"its process {how}: {self.last_line}"


def _attempt(order: Order, report: Report, end: float) -> Attempt:
    """Let a process fill the rows of a part until the time `end`."""
    over = threading.Event()
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "golf.commands.gpu_part", as_json(order)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=said,
            encoding="utf-8",
            start_new_session=True,
        )
        timer = threading.Timer(max(0.0, end - time.monotonic()), _end, (process, over))
        timer.start()
        rows, answered, began = list[str](), list[str](), ""
        assert process.stdout is not None
        try:
            for event in map(json.loads, process.stdout):
                rows, began = event.get("rows", rows), event.get("began", "")
                if "what" in event:
                    report.add(Row(order.part, **event))
                    answered.append(event["what"])
            status = process.wait()
        finally:
            timer.cancel()
            _end(process)
        said.seek(0)
        lines = said.read().decode(errors="replace").strip().splitlines() or ["it said nothing"]
    return Attempt(rows, answered, began, status, lines[-1][:200], over.is_set())


def _end(process: subprocess.Popen[str], over: threading.Event | None = None) -> None:
    """End a part and what it started; `over` is set if its time is."""
    if over:
        over.set()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
