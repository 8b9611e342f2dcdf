"""The audit of a submission's folder: its faults, what is in order, and what could not be checked.

Runs are read by `submitted_runs`. The parts are audited in `submission_json` (form), `run_audit` (rules), `claims`,
`readme_claims` and `script_audit`; `byte_audit` looks at the tokenizer. This file looks at the logs as a whole.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from pathlib import Path

from golf.challenge import EVAL_SECONDS, OTHER_TRACK, RECORD_TRACK, SEEDS_WANTED, VALIDATION_BYTES
from golf.errors import GolfError
from golf.field.audit import Audit
from golf.field.claims import check_claims
from golf.field.foreign_run import NOTHING_READ, ForeignRun, ForeignRuns, is_unlimited_track
from golf.field.readme_claims import README, check_readme
from golf.field.reference import rows_of_logs, sentence
from golf.field.run_audit import (
    COUNTED_WRONG,
    OLDER_EXPORT,
    SHARDS_ASKED,
    WORSENS,
    implied_bytes,
    rule_faults,
    seed_faults,
    shard_faults,
)
from golf.field.scores import MIXED, QUESTIONED, base_tag
from golf.field.script_audit import SCRIPT, check_code_size, check_script, packed_size
from golf.field.seed_audit import seed_remarks
from golf.field.sidecar_audit import check_preparation
from golf.field.submission_json import NAME, read_claims
from golf.field.submitted_runs import Logs, names_several_seeds, read_logs, submitted
from golf.lab.report.comparison import texts_besides
from golf.lab.report.texts import FINEWEB
from golf.lab.report.variants import Variant
from golf.lab.report.verdicts import BETTER, NO_VERDICT, judge
from golf.settings.config import RulesConfig
from golf.tables import grouped
from golf.words import counted, listed

NOT_CHECKED = (
    "whether the script trains to these scores: nothing was run",
    "legality by behaviour (causality, normalisation, one pass): only the script's own text was read",
)
_APPENDED = re.compile(r"run \d+ of \d+ in one file")
_NOT_COUNTED = ": not counted"


def audit(folder: Path, reference: Variant | float | None, rules: RulesConfig) -> Audit:
    """Audit everything in `folder` but the tokenizer, against `reference` under `rules`. Raises `GolfError` for a path
    that is no folder."""
    if not folder.is_dir():
        raise GolfError(f"{folder} is {'no folder' if folder.exists() else 'not there'}: name a submission's folder.")
    result = Audit(unchecked=list(NOT_CHECKED))
    if not any(folder.iterdir()):
        result.unusable.append("the folder is empty")
        return result
    _check_files(folder, result)
    # The logs are sorted by what is claimed, and claimed sizes are compared with the script, so both come before
    # `check_claims`.
    claims = read_claims(folder, result)
    logs = read_logs(folder, claims, result)
    chosen = submitted(logs, claims)
    code_bytes = check_script(folder, result)
    check_preparation(folder, result)
    _check_logs(logs, chosen.runs, result)
    if code_bytes is not None:
        check_code_size(code_bytes, packed_size(folder / SCRIPT), claims, chosen.runs, result)
    if claims is not None:
        check_claims(logs, chosen, claims, code_bytes, result)
    check_readme(folder, logs, chosen, claims, result)
    track = f"{folder.absolute()} {claims.texts.get('track', '') if claims else ''}"
    _check_seeds_and_machine(logs, chosen.runs, is_unlimited_track(track), result)
    _check_significance(chosen.runs, reference, rules, result)
    return result


def _check_files(folder: Path, audit: Audit) -> None:
    """Add files that every submission has and this one has not."""
    names = [path.name for path in folder.iterdir()]
    for name in (README, NAME, SCRIPT):
        if not (folder / name).exists():
            lowered = {other.lower(): other for other in names}
            similar = [lowered[n] for n in difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=0.9)]
            audit.unusable.append(f"there is no {name}" + (f", but {similar[0]}: rename it" if similar else ""))
        elif name != NAME and not (folder / name).is_file():
            audit.unusable.append(f"{name} is no file")


def _check_logs(logs: Logs, chosen: ForeignRuns, audit: Audit) -> None:
    """Audit the logs. Faults of submitted runs are errors; those of other logs are only to be looked at."""
    beside = [run for run in logs.last if run not in chosen]
    audit.against_rules += _of_each(chosen, lambda run: _rule_faults(run)[0])
    audit.look_at += _of_each(chosen, lambda run: _rule_faults(run)[1])
    audit.look_at += _of_each(beside, rule_faults)
    audit.untrue += _of_each(chosen, _contradictions)
    audit.look_at += _of_each([*chosen, *beside], _doubts)
    audit.look_at += [*_of_each(chosen, _slow_together), *_of_each(chosen, _mixture), *seed_remarks(chosen)]
    audit.untrue += shard_faults(chosen)
    for same in logs.copied:
        names = listed([run.name for run in same])
        if names_several_seeds(same):
            audit.untrue.append(f"{names} are copies of one run: add the log of the other")
        else:
            # Without a second seed in the names no log is missing.
            audit.look_at.append(f"{names} are copies of one run: they count as one")
    _check_appended(logs, chosen, audit)
    _check_seeds(logs, chosen, beside, audit)
    # A log without a score is a fault only where it trained and submission.json has a score for its seed.
    for run in logs.unscored:
        is_fault = run.seed in logs.missing_seeds and run.reason != NOTHING_READ
        (audit.untrue if is_fault else audit.look_at).append(f"{run.name}: {run.reason}")
    _check_text(chosen, audit)


def _rule_faults(run: ForeignRun) -> tuple[list[str], list[str]]:
    """Return the broken rules of a run, and the faults that break none for sure: the organisers' own baseline was
    scored on the older export, a number of shards is a question, and a mixture's loss may be another model's."""
    faults = rule_faults(run)
    is_mixture = run.texts.get("scored_text") == FINEWEB and any(score.kind == MIXED for score in run.scores)
    asked = [f for f in faults if OLDER_EXPORT in f or SHARDS_ASKED in f]
    doubtful = [f for f in faults if f in asked or (COUNTED_WRONG in f and (is_mixture or WORSENS in f))]
    return [fault for fault in faults if fault not in doubtful], doubtful


def _of_each(runs: ForeignRuns, check: Callable[[ForeignRun], list[str]]) -> list[str]:
    """Return the sentences about all runs; the same sentence about several runs comes once."""
    names = grouped((text, run.name) for run in runs for text in check(run))
    return [f"{listed(of)}: {text}" for text, of in names.items()]


def _slow_together(run: ForeignRun) -> list[str]:
    """Return a sentence if scores that fit into the budget one by one are over it together."""
    seconds = run.value("eval_seconds") or 0.0
    if seconds <= EVAL_SECONDS or any("scoring took" in fault for fault in rule_faults(run)):
        return []
    return [f"scoring took {seconds:,.1f} s in all: what the score that counts needs has to fit {EVAL_SECONDS:g} s"]


def _doubts(run: ForeignRun) -> list[str]:
    """Return doubts about the kinds of the run's scores."""
    # A wrong tag breaks no rule: accepted records such as 2026-03-23_LeakyReLU_LegalTTT_ParallelMuon have one.
    doubts = {score.doubt for score in run.scores} - {""}
    return [fault for fault in run.faults if fault in doubts or fault.endswith(_NOT_COUNTED)]


def _mixture(run: ForeignRun) -> list[str]:
    """Return questions about a score whose tag names a mixture, a cache or SLOT, which have often been illegal."""
    tags = [score.tag for score in run.scores if QUESTIONED.search(score.tag.lower())]
    asks = "whether a token's target enters its own prediction, and whether the text is read once"
    remarks = [f"{base_tag(tag)} names a way of scoring that reviewers look into: {asks}" for tag in tags[-1:]]
    sizes = [int(match[1]) for tag in tags if (match := re.search(r"bytes=(\d+)", tag))]
    parts = [size for size in sizes if size < VALIDATION_BYTES]
    return remarks + [f"the mixture scored {size:,} of {VALIDATION_BYTES:,} bytes" for size in parts[-1:]]


def _contradictions(run: ForeignRun) -> list[str]:
    """Return the other faults: sizes that do not add up, a crash after the score, a log that is cut off."""
    others = {*rule_faults(run), *seed_faults(run), *_doubts(run)}
    return [fault for fault in run.faults if fault not in others and not _APPENDED.match(fault)]


def _check_appended(logs: Logs, chosen: ForeignRuns, audit: Audit) -> None:
    """Add files with several runs."""
    # The log of 2026-03-19_MixedQuant_Int6Int8_SlidingWindow is three runs, the last of which was scored.
    for file in dict.fromkeys(run.files[0] for run in logs.earlier):
        if any(run in chosen for run in logs.earlier if run.files[0] == file):
            audit.in_order.append(f"{file} holds the logs of several seeds, one after another")
            continue
        count = 1 + sum(run.files[0] == file for run in logs.earlier)
        audit.look_at.append(f"{file} holds {count} runs, of which the last was read as the one that counts")


def _check_seeds(logs: Logs, chosen: ForeignRuns, beside: ForeignRuns, audit: Audit) -> None:
    """Add seeds that are not those of the file names or of submission.json."""
    # All three logs of 2026-04-30_Random_Linear_Adapter print one seed; so do four of 2026-03-17_LoRA_TTT.
    by_seed = grouped((seed, run.name) for run in chosen if (seed := run.count("seed")) is not None)
    # A seed whose log is a copy or carries another seed's name has a fault of its own, and is not missing as well.
    explained = {run.named_seed for same in logs.copied for run in same}
    for seed, names in by_seed.items():
        if len(names) > 1:
            one = f"they are one seed, not {len(names)}"
            audit.untrue.append(f"{len(names)} logs print seed {seed} ({listed(names)}): {one}")
    for run in chosen:
        if run.is_misnamed:
            explained.add(run.named_seed)
            if len(by_seed[run.count("seed") or 0]) == 1:
                audit.untrue += [f"{run.name}: {fault}" for fault in seed_faults(run)]
    together = [*chosen, *beside]
    alike = {run.seed for run in together} - {None}
    if len(chosen) == 1 and len(beside) > 1 and len(alike) == 1:
        names = [run.name for run in together]
        audit.look_at.append(f"all logs print seed {listed([*alike])} ({listed(names)}): no sample of seeds")
    ended = {run.seed for run in logs.unscored}
    if missing := [seed for seed in logs.missing_seeds if seed not in explained | ended]:
        audit.untrue.append(f"submission.json names seed {listed(missing)}, of which there is no log: add it")


def _check_text(chosen: ForeignRuns, audit: Audit) -> None:
    """Tell whether the logs scored the whole split; keep the bytes that they imply for the tokenizer's audit."""
    known = [run for run in chosen if run.value("val_tokens") and run.value("val_loss")]
    # `run_audit` words every fault about the scored text as so many MB or bytes of text.
    if known and not any("of text" in fault for run in known for fault in rule_faults(run)):
        audit.in_order.append(f"{counted(len(known), 'log')} scored the whole validation split, 151.08 MB of text")
    if known:
        loss, bpb, tokens = (known[0].figures[name].value for name in ("val_loss", "val_bpb", "val_tokens"))
        audit.scored = int(tokens), implied_bytes(loss, bpb, tokens)
    if len(known) < len(chosen):
        why = "no log says" if not known else f"{len(chosen) - len(known)} of {len(chosen)} logs do not say"
        audit.unchecked.append(f"the bytes of the scored text: {why} how many tokens were scored")


def _check_seeds_and_machine(logs: Logs, runs: ForeignRuns, is_unlimited: bool, audit: Audit) -> None:
    """Tell whether number of seeds and machine are those of a record."""
    wanted = SEEDS_WANTED[OTHER_TRACK if is_unlimited else RECORD_TRACK]
    seeds = {run.seed for run in runs if run.seed is not None}
    if runs and not seeds:
        audit.unchecked.append("seeds: no log prints one")
    elif runs and len(seeds) < wanted and not logs.missing_seeds and len(runs) == len(seeds):
        audit.look_at.append(f"{counted(len(seeds), 'seed')} in the logs: a record wants {wanted}")
    elif len(seeds) >= wanted:
        audit.in_order.append(f"{counted(len(seeds), 'seed')} in the logs")
    machines = {run.texts["machine"] for run in runs if run.texts.get("machine")}
    others = sorted(machine for machine in machines if "H100" not in machine)
    if others and not is_unlimited:
        audit.look_at.append(f"it ran on {', '.join(others)}: the 600 s of a record are of 8×H100")


def _check_significance(runs: ForeignRuns, reference: Variant | float | None, rules: RulesConfig, audit: Audit) -> None:
    """Add the verdict of the runs against the reference."""
    if reference is None:
        audit.unchecked.append("significance: no --reference was given")
        return
    if not runs:
        audit.unchecked.append("significance: there is no run with a score")
        return
    mine = Variant("submission", "submission", rows_of_logs(runs))
    # A bare number is taken for a score on FineWeb, and bits per byte of unlike texts cannot be compared.
    if isinstance(reference, float) and (scored := texts_besides([mine], FINEWEB)):
        audit.unchecked.append(f"significance: {reference:g} is a score on {FINEWEB}; the logs' are on {scored}")
        return
    verdict = judge([mine], reference, rules)[mine.id]
    text = sentence(verdict, reference, rules).replace("**", "")
    if verdict.kind == NO_VERDICT:
        audit.unchecked.append(f"significance: {text}")
    else:
        (audit.in_order if verdict.kind == BETTER else audit.look_at).append(text)
