"""Record folders of own runs. Everything is checked first; nothing is written if a check fails."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from golf.errors import GolfError
from golf.field.reference import sentence
from golf.files import new_folder, refuse_unwritable, write_atomic, write_json
from golf.lab.report.origin import explained
from golf.lab.report.variants import Variant
from golf.lab.report.verdicts import Verdict, judge
from golf.paths import resolve
from golf.run.result import OK
from golf.settings.config import RulesConfig
from golf.submission.clean_env import clean_environment
from golf.submission.manifest import Label, manifest
from golf.submission.readme import readme
from golf.submission.rehearsal import Rehearsal, rehearse
from golf.submission.runs import SubmittedRun, as_variant
from golf.submission.script.bundle import Bundle

DISTRIBUTIONS = ("torch", "numpy", "sentencepiece", "zstandard", "brotli", "numba")  # named as what they import
STANDARD_TOKENIZERS = "fineweb_*_bpe.model"  # names of tokenizers in the challenge's own download


@dataclass(frozen=True)
class Order:
    """The user's choices for an export."""

    label: Label
    rules: RulesConfig
    seeds_wanted: int
    reference: Variant | float | None = None  # a float is a published score in bits per byte
    is_wrapped: bool = False  # minify and compress the script


def export(runs: Sequence[SubmittedRun], order: Order, target: Path) -> Rehearsal:
    """Write the record folder `target` for `runs` and return the rehearsal of its script.

    Raises `GolfError` with all problems of the runs, or with the first difference between script and framework.
    """
    if target.exists():
        raise GolfError(f"{target} exists already: remove it or name another folder with --out.")
    # The rehearsal takes a minute.
    refuse_unwritable(target)
    cfg = runs[0].cfg
    bundle = Bundle(cfg)
    # The script that is counted is the one that is rehearsed.
    script = bundle.wrapped if order.is_wrapped else bundle.readable.encode()
    script_bytes = len(script)
    # The runs are checked before the rehearsal, which trains a model twice.
    if reasons := problems(runs, script_bytes, order.seeds_wanted):
        raise GolfError("This is no submission yet:\n" + "\n".join(f"  - {problem}" for problem in reasons))
    packages = requirements(bundle)
    print(f"train_gpt.py: {script_bytes:,} bytes, needs {', '.join(packages)}; training it beside the framework")
    with tempfile.TemporaryDirectory(prefix="golf-rehearsal-") as name:
        rehearsal = rehearse(cfg, script, clean_environment(Path(name) / "environment", packages), Path(name))
    print(f"the same {rehearsal.losses} losses and scores, the same {rehearsal.artifact_bytes:,} bytes of artifact")
    with new_folder(target) as folder:
        _write(folder, runs, order, bundle, script, packages, rehearsal)
    return rehearsal


def problems(runs: Sequence[SubmittedRun], script_bytes: int, seeds_wanted: int) -> list[str]:
    """Return a sentence for every reason against submitting `runs` with a script of `script_bytes`."""
    reasons = [f"seed {run.result.seed}: {problem}" for run in runs for problem in _of_run(run, script_bytes)]
    if len(runs) < seeds_wanted:
        reasons.append(f"{len(runs)} of the {seeds_wanted} seeds that the rules want: run more, or say --seeds")
    if len(prints := {run.result.data_fingerprint for run in runs}) > 1:
        reasons.append(f"the seeds were run on {len(prints)} different data sets")
    return reasons


def _of_run(run: SubmittedRun, script_bytes: int) -> list[str]:
    result, budget, reasons = run.result, run.cfg.budget, []
    # The state names an exceeded budget or a failed guard, such as a technique without effect.
    if result.state != OK:
        reasons.append(f"{result.state}: {result.reason}")
    if not run.folder.artifact.is_file():
        return [*reasons, "its artifact is not there any more"]
    # An artifact that was replaced after the run is not the one that was scored.
    if run.artifact_bytes != result.artifact_bytes:
        reasons.append(f"its artifact has {run.artifact_bytes:,} bytes, not the run's {result.artifact_bytes or 0:,}")
    if (total := run.artifact_bytes + script_bytes) > budget.artifact_bytes:
        over = total - budget.artifact_bytes
        reasons.append(f"{total:,} bytes with the script are {over:,} over the cap; --wrap makes the script smaller")
    if budget.train_seconds and result.train_seconds > budget.train_seconds + budget.grace_seconds:
        reasons.append(f"trained {result.train_seconds:.1f} of {budget.train_seconds:g} s")
    if budget.eval_seconds and (result.eval_seconds or 0.0) > budget.eval_seconds:
        reasons.append(f"scored for {result.eval_seconds:.1f} of {budget.eval_seconds:g} s")
    if run.cfg.schedule.warmup_steps == 0:
        reasons.append("schedule.warmup_steps=0 leaves unproven that every parameter moves and every switch works")
    return reasons


def verdict_in_words(verdict: Verdict, mine: Variant, reference: Variant | float, rules: RulesConfig) -> str:
    """Return the verdict as a sentence, and as a second paragraph where the difference comes from, if runs tell it."""
    said, told = sentence(verdict, reference, rules), ""
    if isinstance(reference, Variant):
        told = explained((mine, reference), (), verdict.comparison, rules.confidence)
    return f"{said}.\n\nWhere the difference comes from: {told}" if told else said


def requirements(bundle: Bundle) -> list[str]:
    """Return the names of the distributions that the script imports, the standard library aside."""
    return [name for name in bundle.packages if name in DISTRIBUTIONS]


def _write(
    folder: Path,
    runs: Sequence[SubmittedRun],
    order: Order,
    bundle: Bundle,
    script: bytes,
    packages: Sequence[str],
    rehearsal: Rehearsal,
) -> None:
    size, reference, mine, verdict = len(script), order.reference, as_variant(runs), None
    if reference is not None:
        verdict = judge([mine], reference, order.rules)[mine.id]
    against = reference.label if isinstance(reference, Variant) else f"{reference:g}" if reference else ""
    write_atomic(folder / "train_gpt.py", script)
    if order.is_wrapped:
        write_atomic(folder / "train_gpt_readable.py", bundle.readable)
    write_json(folder / "submission.json", manifest(runs, order.label, size, against, verdict))
    shown = verdict_in_words(verdict, mine, reference, order.rules) if verdict and reference is not None else None
    text = readme(runs, order.label, size, is_wrapped=order.is_wrapped, verdict=shown, rehearsal=rehearsal)
    write_atomic(folder / "README.md", text)
    # Package registries have no versions with a local part such as +cpu.
    pinned = [f"{name}=={version(name).partition('+')[0]}\n" for name in packages]
    write_atomic(folder / "requirements.txt", "".join(pinned))
    for run in runs:
        shutil.copy(run.folder.train_log, folder / f"train_seed{run.result.seed}.log")
    # Graders have the challenge's own tokenizers; any other one is part of the submission.
    tokenizer = resolve(runs[0].cfg.data.tokenizer_path)
    if not tokenizer.match(STANDARD_TOKENIZERS) and tokenizer.is_file():
        shutil.copy(tokenizer, folder / tokenizer.name)
