"""Audit of single runs by the rules of the challenge, and of runs that belong together by one another.

Faults are sentences. A fault does not change the state of a run, unless the run is over the cap or over its time.
"""

from __future__ import annotations

import math

from golf.challenge import CAP_BYTES, EVAL_SECONDS, GRACE_SECONDS, OLDER_SPLIT_BYTES, TRAIN_SECONDS, VALIDATION_BYTES
from golf.field.figures import Figure
from golf.field.foreign_run import ForeignRun, ForeignRuns
from golf.field.scores import POST, PRE, SLIDING, LoggedScore
from golf.lab.report.rows import bytes_per_token
from golf.lab.report.texts import BYTES_TOLERANCE, FINEWEB, OLDER_FINEWEB, OTHER_TEXT, UNKNOWN_TEXT, text_of_bytes
from golf.run.result import OK, OVER_BYTES, OVER_TIME
from golf.tables import grouped
from golf.words import listed

SMALLEST_SPLIT = 0.97  # fraction of the validation bytes; less is a part of the split
LARGEST_SLACK = 0.01  # relative error of rounded scores from which on they do not tell the two exports apart
SIBLING_SLACK = 0.0005  # the same for bytes per token, which differ by 0.26 % between the two exports
SAME_BYTES_PER_TOKEN = 0.002  # relative difference that rounding to four digits explains
LEAKING_SHARDS = 1499  # training shards of a preparation that leaves 40,000 of 50,000 validation documents in training
SHARDS_ASKED = f"{LEAKING_SHARDS:,} train shards, as the public preparation of case operators makes by default"
OLDER_EXPORT, COUNTED_WRONG = "it is the older export of the split", "bytes counted wrong"
WORSENS = "it worsens the score"
EXACT = 1e-5  # unit in the last place below which equal scores belong to one run


def audit_runs(runs: ForeignRuns) -> None:
    """Add the faults that each run's own log shows, set `over_bytes` or `over_time` if it is, and tell its text.

    The texts of runs that do not print their tokens are told by the other runs of the submission.
    """
    for run in runs:
        run.faults += [*rule_faults(run), *seed_faults(run)]
        run.texts["scored_text"] = scored_text(run)
        if run.state == OK:
            run.state, run.reason = _state(run)
    known = [run for run in runs if run.texts["scored_text"] != UNKNOWN_TEXT]
    for run in runs:
        # The number of tokens is not in every log. The same tokenizer on the same text has as many bytes a token.
        if run.texts["scored_text"] == UNKNOWN_TEXT and (like := [r for r in known if _same_bytes_per_token(r, run)]):
            run.texts["scored_text"] = like[0].texts["scored_text"]


def _same_bytes_per_token(one: ForeignRun, other: ForeignRun) -> bool:
    """Tell whether the final scores of both imply as many bytes a token, as exactly as their digits tell."""
    ratios, slack = [], 0.0
    for run in (one, other):
        loss, bpb = run.figures.get("val_loss"), run.figures.get("val_bpb")
        ratio = bytes_per_token(loss.value, bpb.value) if loss and bpb else None
        if loss is None or bpb is None or ratio is None or not (loss.text and bpb.text):
            return False
        slack += loss.unit_in_last_place / loss.value + bpb.unit_in_last_place / bpb.value
        ratios.append(ratio)
    return slack < SIBLING_SLACK and abs(ratios[0] / ratios[1] - 1) <= slack


def rule_faults(run: ForeignRun) -> list[str]:
    """Return broken rules: bytes, seconds, the text that was scored, the text that was trained on."""
    faults = [*_bytes_faults(run), *_time_faults(run), *_text_faults(run)]
    if run.value("train_shards") == LEAKING_SHARDS:
        faults.append(f"{SHARDS_ASKED}: was it given --val-docs=50000, so that no validation document is among them?")
    return faults


def seed_faults(run: ForeignRun) -> list[str]:
    """Return a fault if the log prints another seed than its file's name has."""
    return [f"its name says seed {run.named_seed}, its log seed {run.count('seed')}"] if run.is_misnamed else []


def implied_bytes(loss: float, bpb: float, tokens: float) -> float:
    """Return the UTF-8 bytes of a text for which a loss in nats per token and bits per byte are the same score."""
    return loss / math.log(2) * tokens / bpb


def _state(run: ForeignRun) -> tuple[str, str]:
    """Return the state of a run that ended well, and the reason if it is over the cap or over its time."""
    total, seconds = run.value("total_bytes") or run.value("artifact_bytes"), run.value("train_seconds")
    if total is not None and total > CAP_BYTES:
        return OVER_BYTES, f"{total - CAP_BYTES:,.0f} bytes over the cap of {CAP_BYTES:,}"
    # A run that was given another limit, such as a trial, is measured by its own.
    allowed = run.value("max_wallclock_seconds") or (None if run.is_unlimited else TRAIN_SECONDS)
    if seconds is not None and allowed and seconds > allowed + GRACE_SECONDS:
        return OVER_TIME, f"training took {seconds - allowed:.1f} s more than its {allowed:g} s"
    return run.state, run.reason


def _bytes_faults(run: ForeignRun) -> list[str]:
    """Return a fault if model and code, or the model alone, are over the cap."""
    total, what = run.value("total_bytes"), "in total"
    if total is None:
        total, what = run.value("artifact_bytes"), "of the model alone"
    if total is None or total <= CAP_BYTES:
        return []
    return [f"{total:,.0f} bytes {what} are over the cap of {CAP_BYTES:,} by {total - CAP_BYTES:,.0f}"]


def _time_faults(run: ForeignRun) -> list[str]:
    """Return faults of training and of scoring that took too long, but for the unlimited track."""
    if run.is_unlimited:
        return []
    faults = []
    if (seconds := run.value("train_seconds") or 0.0) > TRAIN_SECONDS + GRACE_SECONDS:
        faults.append(f"trained {seconds:,.1f} s, the budget is {TRAIN_SECONDS:g} s")
    # The budget of the evaluation is the artifact's: a score before quantization is no part of it.
    slowest = max((s.seconds for s in run.scores if s.seconds and not s.is_before_quantization), default=0.0)
    if (taken := max(run.value("total_eval_seconds") or 0.0, slowest)) > EVAL_SECONDS:
        faults.append(f"scoring took {taken:,.1f} s, the budget is {EVAL_SECONDS:g} s")
    return faults


def _text_faults(run: ForeignRun) -> list[str]:
    """Return scores whose loss, bits per byte and tokens are not of the same 151.08 million bytes of text."""
    if not (tokens := run.value("val_tokens")):
        return _unlike_bytes_faults(run)
    known = ((s, s.val_loss) for s in run.scores if s.val_loss and s.is_finite and math.isfinite(s.val_loss))
    by_fault = grouped((fault, s.tag) for s, loss in known if (fault := _text_fault(s, loss, tokens)))
    return [f"{fault} ({listed(tags)})" for fault, tags in by_fault.items()]


def _unlike_bytes_faults(run: ForeignRun) -> list[str]:
    """Return a fault if scores imply different bytes per token, for a log without its number of scored tokens."""
    # Bytes per token depend on text and tokenizer alone, so the scores of one run share them.
    pairs = [("pre_quant_loss", "pre_quant_bpb"), ("val_loss", "val_bpb")]
    before, after = (bytes_per_token(run.value(loss), run.value(bpb)) for loss, bpb in pairs)
    if before is None or after is None or abs(before / after - 1) < SAME_BYTES_PER_TOKEN:
        return []
    return [f"{before:.3f} bytes per token before quantization, {after:.3f} in the end: one of them is wrong"]


def _text_fault(score: LoggedScore, val_loss: float, tokens: float) -> str:
    """Return a sentence if the score is not one of the whole validation split, else an empty text."""
    text_bytes = implied_bytes(val_loss, score.val_bpb, tokens)
    loss = Figure(val_loss, "", score.loss_text)
    # Loss and bits per byte are rounded to their digits, each by up to one unit in the last place.
    slack = loss.unit_in_last_place / abs(val_loss) + 10.0**-score.digits / score.val_bpb
    if abs(text_bytes / VALIDATION_BYTES - 1) <= BYTES_TOLERANCE + slack:
        return ""
    # A small text of one's own would be 0.00 MB.
    scored = f"{text_bytes / 1e6:,.2f} MB" if text_bytes >= 1e4 else f"{text_bytes:,.0f} bytes"
    size = f"scored as {scored} of text, the validation split is {VALIDATION_BYTES / 1e6:.2f} MB"
    if abs(text_bytes / OLDER_SPLIT_BYTES - 1) <= BYTES_TOLERANCE + slack:
        return f"{size}: {OLDER_EXPORT}, which reads about 0.003 bpb lower"
    if text_bytes < SMALLEST_SPLIT * VALIDATION_BYTES:
        return f"{size}: it is a part of the split, or its bytes are counted wrong"
    more = "it flatters the score" if text_bytes > VALIDATION_BYTES else WORSENS
    return f"{size}: {COUNTED_WRONG}, another split, or a mixture whose loss is another's; {more}"


def same_seed_faults(runs: ForeignRuns) -> list[str]:
    """Return seeds that several runs of one variant print: such runs are no sample of seeds."""
    printed = ((run, run.count("seed")) for run in runs if run.has_score)
    by_seed = grouped(((run.variant, seed), run.name) for run, seed in printed if seed is not None)
    return [f"{len(n)} runs of one variant print seed {s}: {listed(n)}" for (_, s), n in by_seed.items() if len(n) > 1]


def shard_faults(runs: ForeignRuns) -> list[str]:
    """Return variants whose runs trained on unlike numbers of shards."""
    said = ((run.variant, run.count("train_shards")) for run in runs if run.has_score)
    shards_of = grouped((variant, shards) for variant, shards in said if shards is not None)
    return [f"its runs trained on {listed(sorted(set(s)))} shards" for s in shards_of.values() if len(set(s)) > 1]


def copies(runs: ForeignRuns) -> tuple[list[list[ForeignRun]], list[ForeignRun]]:
    """Return groups of logs of one and the same run, each of two logs or more, and the runs with the first of each."""
    # Two runs never share a score to the last digit together with the training time in milliseconds.
    seen: dict[tuple[float | str | None, ...], list[ForeignRun]] = {}
    for run in runs:
        key: tuple[float | str | None, ...] = (run.digest or id(run),)
        if run.has_score and run.value("train_seconds") and run.figures["val_bpb"].unit_in_last_place < EXACT:
            key = tuple(run.value(k) for k in ("val_bpb", "val_loss", "train_seconds", "steps"))
        seen.setdefault(key, []).append(run)
    groups = [same for same in seen.values() if len(same) > 1]
    # The name that says the printed seed tells most; in one file, the last run is the one that was scored.
    groups = [sorted(g, key=lambda r: (r.is_misnamed, r.named_seed is None, not r.is_last_in_file)) for g in groups]
    for first, *others in groups:
        # A copy may have kept what was cut off another one, such as the seed.
        first.figures = {name: figure for run in (*others[::-1], first) for name, figure in run.figures.items()}
    dropped = {id(run) for same in groups for run in same[1:]}
    return groups, [run for run in runs if id(run) not in dropped]


def scored_text(run: ForeignRun) -> str:
    """Return the text that loss, bits per byte and tokens of the run's scores prove to have been scored."""
    tokens = run.value("val_tokens")
    pairs = [(run.figures.get(f"{kind}_loss"), run.figures.get(f"{kind}_bpb")) for kind in (PRE, POST, SLIDING, "val")]
    texts = set()
    for loss, bpb in pairs:
        if tokens and loss and bpb and 0 < loss.value < math.inf and 0 < bpb.value < math.inf:
            size = implied_bytes(loss.value, bpb.value, tokens)
            # Validation lines keep no text of the loss; all public ones have four decimals.
            unit = loss.unit_in_last_place if loss.text else 1e-4
            slack = BYTES_TOLERANCE + unit / loss.value + bpb.unit_in_last_place / bpb.value
            if slack > LARGEST_SLACK:
                continue
            texts.add(text_of_bytes(size, slack))
    # A mixture prints a loss that is another model's; one score that fits proves the text.
    return next((name for name in (FINEWEB, OLDER_FINEWEB, OTHER_TEXT) if name in texts), UNKNOWN_TEXT)
