"""A record folder out of runs: everything is checked first, and a folder that fails a check is not written."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from golf.artifact.script.bundle import Bundle
from golf.errors import GolfError
from golf.files import new_folder, write_atomic, write_json
from golf.foreign.reference import sentence
from golf.paths import resolve
from golf.report.variants import Variant
from golf.settings.config import Config, RulesConfig
from golf.submission.checks import problems
from golf.submission.clean_env import clean_environment
from golf.submission.manifest import Label, manifest
from golf.submission.readme import readme
from golf.submission.rehearsal import Rehearsal, rehearse
from golf.submission.runs import SubmittedRun, verdict_on

DISTRIBUTIONS = {"torch": "torch", "numpy": "numpy", "sentencepiece": "sentencepiece", "zstandard": "zstandard"}
DISTRIBUTIONS |= {"brotli": "brotli", "numba": "numba"}
STANDARD_TOKENIZERS = "fineweb_*_bpe.model"  # of the challenge's own download


@dataclass(frozen=True)
class Order:
    """What is wanted of an export."""

    label: Label
    rules: RulesConfig
    seeds_wanted: int
    reference: Variant | float | None = None
    is_wrapped: bool = False


def export(runs: Sequence[SubmittedRun], order: Order, target: Path, say: Callable[[str], None] = print) -> Rehearsal:
    """Write the record folder `target` for `runs`; raises `GolfError` with everything that stands against it."""
    if target.exists():
        raise GolfError(f"{target} exists already: remove it or name another folder with --out.")
    cfg = runs[0].cfg
    bundle = Bundle(cfg)
    script = bundle.wrapped if order.is_wrapped else bundle.readable
    script_bytes = len(script.encode())
    if found := problems(runs, script_bytes, order.seeds_wanted):
        raise GolfError("This is no submission yet:\n" + "\n".join(f"  - {problem}" for problem in found))
    packages = requirements(bundle)
    say(f"train_gpt.py: {script_bytes:,} bytes, needs {', '.join(packages)}; training it beside the framework")
    rehearsal = rehearse_both(cfg, script, packages)
    say(f"the same {rehearsal.losses} losses and scores, the same {rehearsal.artifact_bytes:,} bytes of artifact")
    with new_folder(target) as folder:
        _write(folder, runs, order, bundle, script, packages, rehearsal)
    return rehearsal


def requirements(bundle: Bundle) -> list[str]:
    """The distributions that the script imports, by name; the standard library needs none."""
    return [DISTRIBUTIONS[name] for name in bundle.packages if name in DISTRIBUTIONS]


def rehearse_both(cfg: Config, script: str, packages: Sequence[str]) -> Rehearsal:
    """`rehearse` in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="golf-rehearsal-") as name:
        python = clean_environment(Path(name) / "environment", packages)
        return rehearse(cfg, script, python, Path(name))


def _write(
    folder: Path,
    runs: Sequence[SubmittedRun],
    order: Order,
    bundle: Bundle,
    script: str,
    packages: Sequence[str],
    rehearsal: Rehearsal,
) -> None:
    size, reference, verdict = len(script.encode()), order.reference, None
    if reference is not None:
        verdict = verdict_on(runs, reference, order.rules)
    against = f"{reference:g}" if isinstance(reference, float) else reference.label if reference else ""
    write_atomic(folder / "train_gpt.py", script)
    if order.is_wrapped:
        write_atomic(folder / "train_gpt_readable.py", bundle.readable)
    write_json(folder / "submission.json", manifest(runs, order.label, size, against, verdict))
    shown = sentence(verdict, reference, order.rules) if verdict and reference is not None else None
    text = readme(runs, order.label, size, is_wrapped=order.is_wrapped, verdict=shown, rehearsal=rehearsal)
    write_atomic(folder / "README.md", text)
    write_atomic(folder / "requirements.txt", "".join(f"{name}=={_version(name)}\n" for name in packages))
    for run in runs:
        shutil.copy(run.folder.train_log, folder / f"train_seed{run.result.seed}.log")
    tokenizer = resolve(runs[0].cfg.data.tokenizer_path)
    if not tokenizer.match(STANDARD_TOKENIZERS) and tokenizer.is_file():
        shutil.copy(tokenizer, folder / tokenizer.name)


def _version(package: str) -> str:
    """Without a local part such as +cpu, which no registry has."""
    return version(package).partition("+")[0]
