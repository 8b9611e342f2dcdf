"""Say what this machine can do, and what to type next.

Each line is ok, note or problem, with what to do about it. The command changes nothing. The exit status is 1 if there
is a problem, something that a default run or a GPU of this machine needs.

    golf doctor
    golf doctor --gpu --report gpu.md     # then also the checks of golf gpu-check, whose options may follow
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence

from golf.commands import doctor_gpus, doctor_software, doctor_storage, gpu_check_command
from golf.commands.diagnosis import OK, PROBLEM, Diagnosis, examine
from golf.commands.parsing import CommandParser
from golf.words import answer

CHECKS = {
    "Python": doctor_software.python,
    "packages": doctor_software.packages,
    "torch": doctor_software.torch_itself,
    "CPU": doctor_gpus.cpu_arithmetic,
    "memory": doctor_storage.memory,
    "GPU": doctor_gpus.gpus,
    "flash attention": doctor_software.flash_attention,
    "C++ compiler": doctor_software.compiler,
    "codecs": doctor_software.codecs,
    "Slurm": doctor_software.slurm,
    "W&B": doctor_software.wandb,
    "disk of runs": doctor_storage.runs_disk,
    "disk of data": doctor_storage.data_disk,
    "data": doctor_storage.data,
    "default run": doctor_storage.default_run,
}


def main(arguments: list[str]) -> int:
    """Print a line for each check and the next command; the exit status is 1 if there is a problem."""
    args = CommandParser("doctor", __doc__).parse_args(arguments)
    measure, diagnoses = args.gpu, []
    for subject, check in CHECKS.items():
        diagnoses.append(examine(subject, check))
        # Printed one by one, because a driver or a controller that hangs makes its check take seconds.
        print(diagnoses[-1].line, flush=True, file=sys.stderr if args.json else None)
    if measure is not None:
        print(flush=True)
        return gpu_check_command.main(measure)
    step = next_step(diagnoses)
    print(answer({"checks": diagnoses, "next": step}) if args.json else f"\nnext: {step}")
    return 1 if any(diagnosis.state == PROBLEM for diagnosis in diagnoses) else 0


def next_step(diagnoses: Sequence[Diagnosis]) -> str:
    """Return what to do first about a problem; without one, the command that this machine is made for."""
    if problems := [diagnosis for diagnosis in diagnoses if diagnosis.state == PROBLEM]:
        return f"{problems[0].advice}; then `golf doctor` again"
    from golf.settings.hardware import FINEWEB_VAL, detect

    slurm = any(diagnosis.subject == "Slurm" and diagnosis.state == OK for diagnosis in diagnoses)
    try:
        gpus = detect().gpus
    except Exception:
        # A torch so broken that it cannot be asked is a problem above already.
        gpus = 0
    if not gpus and slurm and shutil.which("sbatch"):
        return "golf submit cluster=slurm_h100 experiment=naive_baseline --dry-run"
    if gpus and not FINEWEB_VAL.exists():
        return "golf data get, then golf doctor --gpu --report gpu.md"
    return "golf train experiment=naive_baseline" if gpus else "golf train"
