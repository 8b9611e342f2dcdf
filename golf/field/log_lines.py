"""Lines of a train log with results: steps, stops, scores, sizes and settings, in every dialect of the challenge.

The dialects are those of the challenge's own records and of some 4,000 logs of its pull requests: three forms of
training and validation lines, several hundred tags of final scores, sizes with and without a scheme. Numbers are never
taken from free text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from golf.field.event_lines import NOISE, EventLine, has_format_code, read_event, read_noise
from golf.field.figures import NUMBER, parse_number, parse_seconds
from golf.tables import any_of, table_of

_FLAGS, _FORMS = re.IGNORECASE, table_of(__file__)
LOSS_KEYS, BPB_KEYS = ("val_loss", "validation_loss"), ("val_bpb", "validation_bpb")


@dataclass(frozen=True)
class StepLine:
    """A training or validation line, printed after a step."""

    step: int
    of: int | None  # steps in all
    seconds: float | None = None  # training time so far; None if the log gives minutes, which are too coarse
    step_ms: float | None = None
    train_loss: float | None = None
    val_loss: float | None = None
    val_bpb: float | None = None
    bpb_text: str = ""


@dataclass(frozen=True)
class StopLine:
    """The line that says why training ended early."""

    reason: str
    seconds: float | None
    step: int | None


@dataclass(frozen=True)
class ScoreLine:
    """A score that is not tied to a step."""

    tag: str  # text before the numbers
    val_bpb: float
    bpb_text: str
    val_loss: float | None = None
    loss_text: str = ""
    seconds: float | None = None
    stride: int | None = None


@dataclass(frozen=True)
class SizeLine:
    """Sizes in bytes. A scheme is the way of quantization and compression, as written."""

    sizes: tuple[tuple[str, str, int], ...]  # (raw, artifact, code, total or block; scheme; bytes)
    unit: int = 1  # bytes of a one in the last printed digit; 10,000 for megabytes with two decimals


@dataclass(frozen=True)
class SettingLine:
    """Settings of a run by name, as written."""

    values: dict[str, str] = field(default_factory=dict)
    opens: str = ""  # the sign of a run's beginning in this line, such as `model_params`


Line = StepLine | StopLine | ScoreLine | SizeLine | SettingLine | EventLine

_COUNT = r"(?:\d{1,3}(?:,\d{3})+|\d{1,12})(?![\w.,]*\d)"
# A tag may stand before the step, such as `[train] step 10/20`, and the word may be missing, as in `10/20 train_loss:
# 3.2`.
_STEP = re.compile(
    r"\s*(?:\[[^\]]{1,30}\]\s*|[A-Za-z_][\w.-]{1,30}:\s+)?"
    rf"(?:(?:step|iter|iteration)\s*[:=]?\s*({_COUNT})(?:\s*/\s*({_COUNT}))?|({_COUNT})\s*/\s*({_COUNT}))"
    r"[:,|]?\s+(?=\S)",
    _FLAGS,
)
_PAIR = re.compile(rf"([A-Za-z_][\w/.-]{{0,80}})\s*[:=]\s*({NUMBER})\s*(ms|s|m|min|h)?(?![\w/])", _FLAGS)
# `step 10/20 | loss 8.19 |` and `iter 10: train loss 8.19, time 89.50ms, mfu 1.2%`
_PIPED_PAIR = re.compile(rf"(?:[|,]|(?<=\d):)\s*([A-Za-z_]\w*(?: [a-z]+)?)\s+({NUMBER})\s*(?=[|,]|$)", _FLAGS)
# Such as `elapsed: 1h 2m 3.5s`, a duration with several units.
_ELAPSED = re.compile(r"\belapsed\s{0,9}[:=]?\s{0,9}(?:(\d+)h\s{0,9})?(\d+)m\s{0,9}(\d+\.\d+)s(?![\w.])", _FLAGS)
_STEP_MS = re.compile(rf"({NUMBER})\s{{0,9}}ms/step", _FLAGS)
_STOP = re.compile(
    rf"stopping_early:\s*(\w+)(?:.{{0,200}}?\btrain_time:\s*({NUMBER}\s*(?:ms|s|m)))?"
    rf"(?:.{{0,200}}?\bstep:\s*({_COUNT}))?",
    _FLAGS,
)
# Such as `training complete in 599.8s (6921 steps)`.
_COMPLETE = re.compile(rf"\s*training complete in\s+({NUMBER})s\s*\(({_COUNT}) steps\)", _FLAGS)
_STOP_AT = re.compile(
    rf"\s*(?:stopping early|wall-?clock limit reached) at step\s+({_COUNT})(?:\.?\s*$|\s*\(([^()]*)\))", _FLAGS
)
# Such as `final_eval val_bpb 1.1234`. The first group holds a mere blank, so that the number is group 2 as in `_BPB`.
_BARE_BPB = re.compile(rf"\s*final_\w+\s+val_bpb(\s)\s*({NUMBER})\s*$", _FLAGS)
_STATEMENT = re.compile(rf"^\s*(?:{'|'.join(_FORMS['statements'])})")
# A field of an f-string that lost its opening brace, such as `val_bpb:.4f} tokens`, is no number.
_PRINTED = rf"(?=[-+]?(?:\d|nan|inf))({NUMBER})(?![\w%])"
_BPB = re.compile(
    r"(?:\bval[_ ]?bpb|\bvalidation_bpb|\bbpb)\"?\s*((?:\([^()]{1,20}\)\s*)?)[:=]\s*\"?" + _PRINTED, _FLAGS
)
# Mixtures print their score under a name of its own: `mix_bpb=1.0025`, `ppm_native_submission_val_bpb: 0.99`.
_MIXTURE_BPB = re.compile(
    r"(?<![\w.])(mix|\w*(?:ppm|ngram|mixture|submission))_(?:val_)?bpb\s*[:=]\s*" + _PRINTED, _FLAGS
)
_LOSS = re.compile(r"\b(?:val[_ ]?loss|validation_loss)\"?\s*[:=]\s*\"?" + _PRINTED, _FLAGS)
_FIRST_KEY = re.compile(r"\"?\b(?:val[_ ]?loss|val[_ ]?bpb|validation_loss|validation_bpb|stride\s*[:=])", _FLAGS)
_SCORE_TIME = re.compile(rf"\b(?:eval_time|time|elapsed|t)\s*[:=]\s*({NUMBER}\s*(?:ms|s|m))(?![\w/])", _FLAGS)
_STRIDE = re.compile(rf"\bstride\s*[:=]\s*({_COUNT})", _FLAGS)
_PROGRESS = any_of(_FORMS["progress"], _FLAGS)
# Forms that only lines with a score have as progress: training lines may print a remaining time as well.
_BAR = re.compile(r"\[\s*[\d.]+\s*%\s*\]|\]\s*[\d.]+\s*%|\bETA\s*[:=]", _FLAGS)
_PART = re.compile(
    r"\b(?:windows?|chunks?|batch(?:es)?|docs?|epoch|seqs?)\s{0,9}[:=]?\s{0,9}(\d+)\s{0,9}/\s{0,9}(\d+)", _FLAGS
)
_SOME_NUMBER = re.compile(r"(?:bpb|loss|_only)\w{0,80}\W{1,3}(\d{1,2}\.\d{4,12})(?!\d)", _FLAGS)
_SOME_SCORE = re.compile(r"bpb\W{1,3}\d\.\d{3}")  # a score of an unknown form, which is counted as not understood
_BYTES = rf"({NUMBER})\s*(?:bytes|B)\b"
_SIZE_PARTS = {"BYTES": _BYTES, "ENDS": rf"({NUMBER})\s*(?:bytes)?\s*$", "NUMBER": NUMBER}
_SIZES = [
    (what, re.compile(r"^\s*" + re.sub("BYTES|ENDS|NUMBER", lambda part: _SIZE_PARTS[part[0]], form), _FLAGS))
    for size in _FORMS["sizes"]
    for what, form in size.items()
]
_MEGABYTES = re.compile(r"^\s*(\S+): (\d+)\.(\d{2})MB model \+ (\d+\.\d{3})MB code\b")  # of a million bytes
_PIPED_SIZE = re.compile(rf"^\s*(\S+) model:\s*{_BYTES}\s*\|\s*total submission:\s*{_BYTES}", _FLAGS)
_SETTING_NAMES: dict[str, str] = _FORMS["settings"]
_SETTING = re.compile(
    rf"(?<![\w.-])({'|'.join(sorted(_SETTING_NAMES, key=len, reverse=True))})\s*[:=]\s*({NUMBER})s?(?![\w/])", _FLAGS
)
_OPENS = re.compile(rf"^({'|'.join(_FORMS['opens'])})", _FLAGS)

# Nine lines in ten are of these two forms: one expression each keeps reading fast.
_TRAIN_A = re.compile(r"step:(\d{1,12})/(\d{1,12}) train_loss:(\d+\.\d+) train_time:(\d+)ms step_avg:(\d+\.\d+)ms\s*$")
_TRAIN_B = re.compile(r"(\d{1,12})/(\d{1,12}) train_loss: (\d+\.\d+) train_time: \d+\.\dm tok/s: \d+\s*$")
_PROGRESS_LINES = ("ttp:", "tttg:", "ttt_chunk", "warmup_step", "sliding_eval", "ttt_progress", "val_progress")


def printed_scores(text: str) -> list[str]:
    """Return the numbers behind `bpb` and `loss` in a line of any form, as written."""
    return [] if has_format_code(text) else _SOME_NUMBER.findall(text)


def is_progress(text: str) -> bool:
    """Tell whether a line is of a part of the split, on the way through it."""
    return bool(_PROGRESS.search(text))


def read_line(text: str) -> Line | None:
    """Return the content of a line, None if it is not understood. `text` has no launcher's prefix."""
    if match := _TRAIN_A.match(text):
        return StepLine(int(match[1]), int(match[2]), int(match[4]) / 1000, float(match[5]), float(match[3]))
    if match := _TRAIN_B.match(text):
        return StepLine(int(match[1]), int(match[2]), train_loss=float(match[3]))
    if text.lstrip().startswith(_PROGRESS_LINES):
        return NOISE
    # A statement that prints a score differs from the printed score only in its placeholders.
    if has_format_code(text):
        return None
    lowered = text.lower()
    # Validation lines have a score and score lines may have bytes: the order of these tests decides.
    # A bare `10/20` stands at the beginning of a line; a slash further on is part of a path or a unit.
    has_step = "step" in lowered or "stopping" in lowered or "/" in lowered[:24] or "iter" in lowered[:24]
    if has_step and (line := _step_line(text, lowered)):
        return line
    if "bpb" in lowered and (score := _score_line(text)):
        return score
    if ("bytes" in lowered or "budget:" in lowered or "artifact" in lowered or "mb model" in lowered) and (
        size := _size_line(text)
    ):
        return size
    line = read_event(text, lowered) or _setting_line(text) or read_noise(text)
    # A score of an unknown form is counted as not understood; noise is not counted.
    is_unread_score = line is NOISE and "bpb" in lowered and _SOME_SCORE.search(lowered) and not _PROGRESS.search(text)
    return None if is_unread_score else line


def _step_line(text: str, lowered: str) -> Line | None:
    """Return a training, validation or stop line."""
    if "stopping_early" in lowered:
        stop = _STOP.search(text)
        return stop and StopLine(stop[1], parse_seconds(stop[2] or ""), _count(stop[3]))
    if at := _STOP_AT.match(text):
        return StopLine(at[2] or "wallclock", None, _count(at[1]))
    if done := _COMPLETE.match(text):
        return StopLine("complete", parse_seconds(f"{done[1]}s"), _count(done[2]))
    match = _STEP.match(text)
    if not match or not ("loss" in lowered or "fitness" in lowered or "bpb" in lowered) or _PROGRESS.search(text):
        return None
    pairs = {name.lower(): (number, unit or "") for name, number, unit in _PAIR.findall(text, match.end())}
    # Without a colon, a time may be the step's or that of all steps so far: it is left out, with its unit.
    pairs |= {name.lower().replace(" ", "_"): (number, "") for name, number in _PIPED_PAIR.findall(text)}
    values = {name: parse_number(number) for name, (number, _) in pairs.items()}
    loss = _first_value(values, "train_loss", "loss", "mean_microbatch_loss", "fitness")
    val_bpb = _first_value(values, *BPB_KEYS)
    val_loss = _first_value(values, *LOSS_KEYS)
    if loss is None and val_bpb is None and val_loss is None:
        return None
    seconds = next((_seconds(*pairs[k]) for k in ("train_time", "t", "time", "elapsed") if k in pairs), None)
    if elapsed := _ELAPSED.search(text):
        seconds = 3600 * int(elapsed[1] or 0) + 60 * int(elapsed[2]) + float(elapsed[3])
    average = next((pairs[k] for k in ("step_avg", "avg", "step_time") if k in pairs), None)
    printed = _STEP_MS.search(text)
    pace = average or ((printed[1], "ms") if printed else ("", ""))
    value = parse_number(pace[0]) if pace[1].lower() in ("ms", "s") else None
    step_ms = value * 1000 if value is not None and pace[1].lower() == "s" else value
    bpb_text = next((pairs[k][0] for k in BPB_KEYS if k in pairs), "")
    step, of = _count(match[1] or match[3]) or 0, _count(match[2] or match[4])
    return StepLine(step, of, seconds, step_ms, loss, val_loss, val_bpb, bpb_text)


def _count(text: str | None) -> int | None:
    """Return a number of steps or tokens, None without one."""
    return int(text.replace(",", "")) if text else None


def _seconds(number: str, unit: str) -> float | None:
    """Return seconds, None for a number of minutes or without a unit."""
    # Minutes are printed with one decimal, an error of three seconds: too coarse to be divided by steps.
    return None if unit.lower() in ("", "m", "min", "h") else parse_seconds(number + unit)


def _score_line(text: str) -> Line | None:
    """Return a score, `NOISE` for one of a part of the split that is printed on the way."""
    match = _BPB.search(text) or _BARE_BPB.match(text) or _MIXTURE_BPB.search(text)
    if match is None or _STATEMENT.match(text):
        return None
    part = _PART.search(text)
    if _PROGRESS.search(text) or _BAR.search(text) or (part and part[1] != part[2]):
        return NOISE
    loss = _LOSS.search(text)
    first = _FIRST_KEY.search(text)
    tag = text[: first.start() if first else match.start()].strip(" \t:|-{(,\"'")
    if match.re is _MIXTURE_BPB:
        tag = f"{tag} {match[1]}".strip()
    elif match[1].strip().lower() == "(raw)":
        # The score is one before quantization, which the text before its name does not say.
        tag = f"{tag} raw"
    if (value := parse_number(match[2])) is None or (first is None and not tag):
        return None
    time, stride = _SCORE_TIME.search(text), _STRIDE.search(text)
    loss_text = loss[1] if loss else ""
    seconds, count = parse_seconds(time[1]) if time else None, _count(stride[1]) if stride else None
    return ScoreLine(tag[:120], value, match[2], parse_number(loss_text) if loss else None, loss_text, seconds, count)


def _size_line(text: str) -> Line | None:
    """Return the sizes in a line, those of model and submission together if it has both."""
    if match := _PIPED_SIZE.match(text):
        sizes = (("artifact", match[1], _bytes(match[2])), ("total", match[1], _bytes(match[3])))
        return SizeLine(tuple((what, scheme, n) for what, scheme, n in sizes if n is not None))
    if match := _MEGABYTES.match(text):
        model, code = round(float(f"{match[2]}.{match[3]}") * 1e6), round(float(match[4]) * 1e6)
        return SizeLine((("artifact", match[1], model), ("code", "", code)), unit=10_000)
    for what, pattern in _SIZES:
        if match := pattern.match(text):
            scheme = (match[1] or "").strip() if pattern.groups == 2 else ""
            count = _bytes(match[pattern.groups])
            return None if count is None else SizeLine(((what, scheme, count),))
    return None


def _bytes(text: str) -> int | None:
    """Return a number of bytes, None if it is no integer that can be one."""
    value = parse_number(text)
    return int(value) if value is not None and 0 <= value < 1e15 and value == int(value) else None


def _setting_line(text: str) -> Line | None:
    """Return the known settings in a line, and the sign of a beginning."""
    # Comments of echoed source have settings of examples.
    if text.lstrip().startswith("#"):
        return None
    opens = _OPENS.match(text)
    pairs = _SETTING.findall(text) if ":" in text or "=" in text else []
    values: dict[str, str] = {}
    for name, value in pairs:
        # Other lines give tokens a step and bytes of a file by these names.
        if name.lower() == "seed" and not text.lstrip().lower().startswith("seed"):
            values.setdefault("part_seed", value)
        elif name.lower() not in ("tokens", "bytes") or "val_loader" in text:
            values.setdefault(_SETTING_NAMES[name.lower()], value)
    return SettingLine(values, opens[1].lower() if opens else "") if values or opens else None


def _first_value(values: dict[str, float | None], *names: str) -> float | None:
    return next((values[name] for name in names if values.get(name) is not None), None)
