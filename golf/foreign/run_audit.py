"""What contradicts itself in other people's runs: the log with the rules, with itself, and with what is claimed of it.

Faults are sentences. Those of one run stand with the run; those of a folder (a submission) are about its claims.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from golf.challenge import CAP_BYTES, EVAL_SECONDS, GRACE_SECONDS, OLDER_SPLIT_BYTES, TRAIN_SECONDS, VALIDATION_BYTES
from golf.foreign.claims import claims_of_seeds, claims_of_the_whole, shown
from golf.foreign.figures import Figure
from golf.foreign.foreign_run import ForeignRun
from golf.foreign.scores import LoggedScore
from golf.foreign.submission_json import Claims
from golf.report.rows import bytes_per_token
from golf.run.result import OK, OVER_BYTES, OVER_TIME

BYTES_TOLERANCE = 0.0004
SMALLEST_SPLIT = 0.97  # of the validation bytes; less is a part of the split
SAME_BYTES_PER_TOKEN = 0.002  # relative difference that four digits leave open
LEAKING_SHARDS = 1499  # train shards of a preparation that leaves 40,000 of the 50,000 validation documents in training
_NAMED_SEED = re.compile(r"(?:seed[ _=-]?|(?:^|[_-])s)(\d{1,9})(?!\d)", re.IGNORECASE)
_UNLIMITED = re.compile(r"non[_-]?record|unlimited", re.IGNORECASE)


def audit_run(run: ForeignRun) -> None:
    """Add the faults of a run that its own source shows, and make it `over_bytes` or `over_time` if it is."""
    is_unlimited = bool(_UNLIMITED.search(f"{run.folder} {run.texts.get('track', '')}"))
    run.faults += [*rule_faults(run), *seed_faults(run)]
    if run.state == OK:
        run.state, run.reason = _state(run, is_unlimited)


def rule_faults(run: ForeignRun) -> list[str]:
    """What breaks a rule of the challenge: bytes, seconds, the text that was scored, the text that was trained on."""
    is_unlimited = bool(_UNLIMITED.search(f"{run.folder} {run.texts.get('track', '')}"))
    found = [*_bytes_faults(run), *_time_faults(run, is_unlimited), *_text_faults(run)]
    if run.value("train_shards") == LEAKING_SHARDS:
        found.append("1,499 train shards: a preparation that leaves validation documents in the training data")
    return found


def audit_folder(runs: Sequence[ForeignRun], submission: Claims | None) -> list[str]:
    """Faults that only several runs, or runs and a submission.json together, can show."""
    faults = [*_same_seed_faults(runs), *_copy_faults(runs), *shard_faults(runs)]
    if submission is not None:
        logged = [run for run in runs if run.files[0] != submission.name]
        faults += [f"{submission.name} {submission.problem}"] * bool(submission.problem)
        faults += claims_of_seeds(logged, submission) + claims_of_the_whole(logged, submission)
    return faults


def implied_bytes(loss: float, bpb: float, tokens: float) -> float:
    """UTF-8 bytes of the text for which a loss in nats per token and bits per byte are the same score."""
    return loss / math.log(2) * tokens / bpb


def _state(run: ForeignRun, is_unlimited: bool) -> tuple[str, str]:
    total, seconds = run.value("total_bytes") or run.value("artifact_bytes"), run.value("train_seconds")
    budget = run.value("max_wallclock_seconds")
    if total is not None and total > CAP_BYTES:
        return OVER_BYTES, f"{total - CAP_BYTES:,.0f} bytes over the cap of {CAP_BYTES:,}"
    allowed = budget if budget else None if is_unlimited else TRAIN_SECONDS
    if seconds is not None and allowed and seconds > allowed + GRACE_SECONDS:
        return OVER_TIME, f"training took {seconds - allowed:.1f} s more than its {allowed:g} s"
    return run.state, run.reason


def _bytes_faults(run: ForeignRun) -> list[str]:
    total, what = run.value("total_bytes"), "in total"
    if total is None:
        total, what = run.value("artifact_bytes"), "of the model alone"
    if total is None or total <= CAP_BYTES:
        return []
    return [f"{total:,.0f} bytes {what} are over the cap of {CAP_BYTES:,} by {total - CAP_BYTES:,.0f}"]


def _time_faults(run: ForeignRun, is_unlimited: bool) -> list[str]:
    found = []
    seconds, scoring = run.value("train_seconds"), run.value("total_eval_seconds")
    slowest = max((s.seconds for s in run.scores if s.seconds is not None and s.kind != "pre_quant"), default=0.0)
    if seconds is not None and seconds > TRAIN_SECONDS + GRACE_SECONDS and not is_unlimited:
        found.append(f"trained {seconds:,.1f} s, the budget is {TRAIN_SECONDS:g} s")
    taken = max(scoring or 0.0, slowest)
    if taken > EVAL_SECONDS and not is_unlimited:
        found.append(f"scoring took {taken:,.1f} s, the budget is {EVAL_SECONDS:g} s")
    return found


def _text_faults(run: ForeignRun) -> list[str]:
    """Loss, bits per byte and tokens have to be of the same text: 151.08 million bytes of it."""
    tokens = run.value("val_tokens")
    if not tokens:
        return _unlike_bytes_faults(run)
    by_fault: dict[str, list[str]] = {}
    for score in run.scores:
        if (
            score.val_loss
            and score.is_finite
            and math.isfinite(score.val_loss)
            and (fault := _text_fault(score, tokens))
        ):
            by_fault.setdefault(fault, []).append(score.tag)
    return [f"{fault} ({shown(tags)})" for fault, tags in by_fault.items()]


def _unlike_bytes_faults(run: ForeignRun) -> list[str]:
    """Where the log does not tell how many tokens it scored: all of its scores count the same bytes per token."""
    pairs = {"before quantization": ("pre_quant_loss", "pre_quant_bpb"), "in the end": ("val_loss", "val_bpb")}
    found = {w: bytes_per_token(run.value(loss), run.value(bpb)) for w, (loss, bpb) in pairs.items()}
    known = [v for v in found.values() if v is not None]
    if len(known) < 2 or abs(known[0] / known[1] - 1) < SAME_BYTES_PER_TOKEN:
        return []
    return [f"{known[0]:.3f} bytes per token before quantization, {known[1]:.3f} in the end: one of them is wrong"]


def _text_fault(score: LoggedScore, tokens: float) -> str:
    assert score.val_loss is not None
    found = implied_bytes(score.val_loss, score.val_bpb, tokens)
    loss = Figure(score.val_loss, "", score.loss_text)
    slack = loss.unit_in_last_place / abs(score.val_loss or 1.0) + 10.0**-score.digits / score.val_bpb
    if abs(found / VALIDATION_BYTES - 1) <= BYTES_TOLERANCE + slack:
        return ""
    size = f"scored as {found / 1e6:,.2f} MB of text, the validation split is {VALIDATION_BYTES / 1e6:.2f} MB"
    if abs(found / OLDER_SPLIT_BYTES - 1) <= BYTES_TOLERANCE + slack:
        return f"{size}: it is the older export of the split, which reads about 0.003 bpb lower"
    if found < SMALLEST_SPLIT * VALIDATION_BYTES:
        return f"{size}: it is a part of the split, or its bytes are counted wrong"
    more = "flatters" if found > VALIDATION_BYTES else "worsens"
    return f"{size}: bytes counted wrong, another split, or a mixture whose loss is another's; it {more} the score"


def named_seed(name: str) -> int | None:
    """The seed that a file's name gives it: `train_seed42.log`, `log_s7.txt`."""
    match = _NAMED_SEED.search(name.rsplit("/", 1)[-1])
    return int(match[1]) if match else None


def seed_faults(run: ForeignRun) -> list[str]:
    """A log that prints another seed than its name has."""
    named, logged = named_seed(run.files[0]), run.count("seed")
    if named is None or logged is None or named == logged:
        return []
    return [f"its name says seed {named}, its log seed {logged}"]


def _same_seed_faults(runs: Sequence[ForeignRun]) -> list[str]:
    """Logs of different names that one and the same seed was printed in are no sample of seeds."""
    by_seed: dict[tuple[str, int], list[str]] = {}
    for run in runs:
        if (seed := run.count("seed")) is not None and run.has_score:
            by_seed.setdefault((run.variant, seed), []).append(run.name)
    return [f"{len(n)} runs of one variant print seed {s}: {shown(n)}" for (_, s), n in by_seed.items() if len(n) > 1]


def _copy_faults(runs: Sequence[ForeignRun]) -> list[str]:
    return [f"{shown([run.name for run in same])} are copies of one run" for same in copies(runs)]


def copies(runs: Sequence[ForeignRun]) -> list[list[ForeignRun]]:
    """Runs that are one: to the last digit the same score and the same training time only ever belong to one run."""
    seen: dict[tuple[float | None, ...], list[ForeignRun]] = {}
    for run in runs:
        if (
            run.has_score
            and run.value("train_seconds") is not None
            and run.figures["val_bpb"].unit_in_last_place < 1e-5
        ):
            key = tuple(run.value(k) for k in ("val_bpb", "val_loss", "train_seconds", "steps"))
            seen.setdefault(key, []).append(run)
    return [same for same in seen.values() if len(same) > 1]


def shard_faults(runs: Sequence[ForeignRun]) -> list[str]:
    """Runs of one variant that did not train on the same data."""
    found: dict[str, set[int]] = {}
    for run in runs:
        if (shards := run.count("train_shards")) is not None and run.has_score:
            found.setdefault(run.variant, set()).add(shards)
    return [f"its runs trained on {shown(sorted(s))} shards" for s in found.values() if len(s) > 1]
