"""Check a GPU machine: numbers, compilation, step times, one run.

    golf gpu-check --report gpu.md

The checks compare the GPU with the CPU and compile the model to one graph that must not be compiled again. Then the
step time of `naive_baseline` is measured, eager and compiled, and the main job runs for --train-seconds. The exit
status is 1 if a check fails. `--device cpu` with small overrides tries the command itself.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from golf.commands.parsing import CommandParser
from golf.errors import GolfError
from golf.paths import ROOT

SEND_BACK = (
    "To have a difference looked at, send this report, `golf doctor`'s lines, and from the main job's run folder "
    "result.json, environment.json and train.log. None of them holds a key."
)


def parser() -> CommandParser:
    """Return the parser of `golf gpu-check`."""
    made = CommandParser("gpu-check", __doc__)
    made.add_argument("overrides", nargs="*", help="overrides of the step times and of the main job")
    made.add_argument("--device", default="cuda", choices=("cuda", "cpu"), help="device to check (default: cuda)")
    made.add_argument("--steps", type=int, default=20, metavar="N", help="steps to time (default: 20)")
    seconds = "length of the main job; 0 leaves it out (default: 600)"
    made.add_argument("--train-seconds", type=float, default=600.0, metavar="S", help=seconds)
    made.add_argument("--report", type=Path, metavar="FILE", help="also write the Markdown to this file")
    return made


def main(arguments: Sequence[str]) -> int:
    """Print the report in Markdown; the exit status is 1 if a check fails, or that of the main job."""
    args = parser().parse_intermixed_args(arguments)
    import torch

    from golf.commands.gpu_measurement import check_compiling, check_kernels, check_memory, check_numbers, step_table

    if args.device == "cuda" and not torch.cuda.is_available():
        raise GolfError("no CUDA device is visible; --device cpu tries the command without one.")
    device = torch.device(args.device)
    name = torch.cuda.get_device_name(0) if args.device == "cuda" else "CPU"
    overrides = [*(args.overrides or ["experiment=naive_baseline", "scale=single_gpu"]), f"launch.device={args.device}"]
    lines = [f"## {name}, torch {torch.__version__}", "", f"`{' '.join(overrides)}`", ""]
    checks = check_numbers(device) + check_kernels(device) + check_compiling(overrides, device)
    # The peak is that of the compiled step before, so this check comes last.
    checks += check_memory([*overrides, "launch.compile=full"], device)
    lines += ["| check | | |", "|---|---|---|"]
    lines += [f"| {what} | {'yes' if ok else 'NO'} | {detail} |" for what, ok, detail in checks]
    lines += ["", *step_table(overrides, device, args.steps)]
    print("\n".join(lines), flush=True)
    status = 0
    if args.train_seconds:
        status, shown = _main_job([*overrides, f"budget.train_seconds={args.train_seconds:g}"])
        lines += shown
    lines += ["", SEND_BACK]
    print(f"\n{SEND_BACK}")
    if args.report:
        args.report.write_text("\n".join(lines) + "\n")
    return status if all(ok for _, ok, _ in checks) else 1


def _main_job(overrides: list[str]) -> tuple[int, list[str]]:
    """Run and print the main job; return its exit status and its lines of Markdown."""
    command = [sys.executable, "golf/train.py", *overrides]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    title = f"`{' '.join(command[1:])}` ended with status {done.returncode}:"
    lines = ["", title, "", "```", done.stdout, "```"]
    print("\n".join([*lines, done.stderr]))
    return done.returncode, lines
