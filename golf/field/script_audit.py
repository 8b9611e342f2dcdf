"""The audit of a submission's script: its bytes, its imports, and forbidden patterns in its text."""

from __future__ import annotations

import ast
import lzma
import re
import zlib
from collections.abc import Sequence
from pathlib import Path

from golf.challenge import CAP_BYTES
from golf.field.audit import Audit
from golf.field.foreign_run import ForeignRuns
from golf.field.script_reader import NETWORK, Script, imported_packages, read_script, suspicions
from golf.field.submission_json import Claims
from golf.field.text import content_of, text_of
from golf.words import listed

SCRIPT = "train_gpt.py"
SMALLEST_RATIO = 0.1  # compressed bytes over bytes of a program; text that compresses further is none
SMALLEST_PACKED = 0.6  # least share of the compressed script's bytes that it has if it is minified before
SET_VARIABLE = re.compile(r"(?:^|\s)([A-Z][A-Z0-9_]{2,})=")
OF_THE_MACHINE = re.compile("OMP_|CUDA|NCCL|TORCH|PYTORCH|PYTHON|TRITON|HF_|WANDB|LD_|TOKENIZERS_|RUN_ID")
EXPECTED = {"torch", "triton", "numpy", "sentencepiece"}  # packages on every machine that runs such a script
CODE_ENDINGS = (".py", ".so", ".c", ".cpp", ".cu", ".cuh", ".pyx")


def check_script(folder: Path, audit: Audit) -> int | None:
    """Audit the script without running it and return its size in bytes, None if there is no script."""
    if not (path := folder / SCRIPT).is_file():
        audit.unchecked.append(f"code bytes, imports and forbidden patterns: there is no {SCRIPT}")
        return None
    script = read_script(path)
    # Of a script over the cap the size is the fault.
    if script.problem and path.stat().st_size <= CAP_BYTES:
        audit.unusable.append(script.problem)
    if script.tree is None:
        audit.unchecked.append(f"imports and forbidden patterns: {SCRIPT} cannot be read")
        return path.stat().st_size
    if script.layers:
        audit.in_order.append(f"{SCRIPT} unpacks ({', '.join(script.layers)}) to {len(script.text.encode()):,} bytes")
    if script.is_still_packed:
        audit.unchecked.append(f"what {SCRIPT} unpacks and runs: it is packed in a way that is not read here")
    beside = _code_beside(folder, script.tree)
    audit.untrue += [f"{SCRIPT} uses {name} of the folder: all code counts and belongs in it" for name in beside]
    suspected = suspicions(script.tree)
    audit.look_at += [f"{SCRIPT}: {suspicion}" for suspicion in suspected]
    if not (suspected or script.is_still_packed):
        audit.in_order.append(f"no network, no training text in scoring in {SCRIPT}, as far as its text shows")
    _check_packages(folder, script.tree, beside, audit)
    if (unread := _unread_settings(folder, script)) and not script.is_still_packed:
        audit.look_at.append(f"README.md's command sets {listed(unread)}, which {SCRIPT} does not read")
    return path.stat().st_size


def _unread_settings(folder: Path, script: Script) -> list[str]:
    """Return the variables that a command line in the README sets and the script never names."""
    text = text_of(folder / "README.md")
    commands = [line for line in text.replace("\\\n", " ").splitlines() if SCRIPT in line]
    names = dict.fromkeys(name for line in commands for name in SET_VARIABLE.findall(line.partition(SCRIPT)[0]))
    known = script.text.lower()
    # Scripts may read a variable by the name of the setting, which is the same in lower case.
    return [name for name in names if name.lower() not in known and not OF_THE_MACHINE.match(name)]


def _code_beside(folder: Path, tree: ast.Module) -> list[str]:
    """Return modules and code files of the folder that the script imports or names."""
    names = {name for name in imported_packages(tree) if (folder / f"{name}.py").is_file() or (folder / name).is_dir()}
    for text in {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)}:
        is_code = text.endswith(CODE_ENDINGS) and len(text) < 200 and "\n" not in text and text != SCRIPT
        if is_code and (folder / text).is_file():
            names.add(text)
    return sorted(names)


def _check_packages(folder: Path, tree: ast.Module, beside: Sequence[str], audit: Audit) -> None:
    """Add packages that neither requirements.txt nor the README names."""
    others = sorted(imported_packages(tree) - EXPECTED - NETWORK - set(beside))
    told = " ".join(text_of(folder / name) for name in ("requirements.txt", "README.md"))
    # Hyphen and underscore are the same in names of packages.
    told = told.lower().replace("_", "-")
    if missing := [name for name in others if name.lower().replace("_", "-") not in told]:
        audit.look_at.append(f"{SCRIPT} needs {listed(missing)}: neither requirements.txt nor the README names that")


def packed_size(path: Path) -> int:
    """Return the bytes of a file in the smallest usual compressed form."""
    raw = content_of(path, CAP_BYTES)
    return min(len(lzma.compress(raw, preset=9)), len(zlib.compress(raw, 9)))


def check_code_size(size: int, packed_bytes: int, claims: Claims | None, runs: ForeignRuns, audit: Audit) -> None:
    """Compare the script's size with the claimed and the logged one, and with the cap.

    `packed_bytes` are those of the compressed script.
    """
    claimed = claims.figures.get("code_bytes") if claims else None
    logged = sorted({code for run in runs if (code := run.count("code_bytes")) is not None})
    in_logs = f"the logs count {listed([f'{code:,}' for code in logged])}"
    if claimed is not None and claimed.value != size:
        others = f"; {in_logs}" if logged and claimed.value not in logged else " as in the logs" if logged else ""
        audit.untrue.append(f"{claimed.source} is {claimed.value:,.0f}{others}, but {SCRIPT} has {size:,} bytes")
    elif claimed is not None and logged and logged[-1] < packed_bytes:
        # Only a compressed form is so small, and the submission counts the script in full.
        audit.in_order.append(f"{claimed.source} counts {SCRIPT} as it is; {in_logs} bytes of a compressed form")
    elif logged and size not in logged:
        doubt = "they ran another form of it, or it was changed"
        audit.look_at.append(f"{in_logs} bytes of code, {SCRIPT} has {size:,}: {doubt}")
    if not (models := [(v, run) for run in runs if (v := run.value("artifact_bytes")) is not None]):
        if size > CAP_BYTES:
            audit.against_rules.append(f"{SCRIPT} alone is {size - CAP_BYTES:,} bytes over {CAP_BYTES:,}")
        return
    model, run = max(models, key=lambda pair: pair[0])
    over = int(model) + size - CAP_BYTES
    if over > 0 and (run.value("total_bytes") or 0) <= CAP_BYTES:
        excess = f"{run.name}: its model and {SCRIPT} are {over:,} bytes over {CAP_BYTES:,}"
        code = run.count("code_bytes")
        if code is not None and packed_bytes >= size * SMALLEST_RATIO and code >= packed_bytes * SMALLEST_PACKED:
            # Accepted records such as 2026-04-10_VarLenAttn count their script in the compressed form of the log.
            audit.look_at.append(f"{excess}; with the {code:,} bytes of compressed code that its log counts it fits")
        else:
            audit.against_rules.append(excess)
    if over <= 0:
        audit.in_order.append(f"the largest model and {SCRIPT} make {int(model) + size:,} of {CAP_BYTES:,} bytes")
