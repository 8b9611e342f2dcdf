"""submission.json: the claims in it for the whole submission and for each seed, and whether its form is the usual one.

No schema was ever enforced: 1,022 of the challenge's 1,756 public files have different sets of keys, and 302 keys hold
"bpb". Keys are therefore read word by word. A key with two possible meanings is counted as not understood.
"""

from __future__ import annotations

import codecs
import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from golf.challenge import SUBMISSION_NUMBERS, SUBMISSION_TEXTS
from golf.field.audit import Audit
from golf.field.figures import Figure, as_figure, whole
from golf.field.scores import may_be_bpb
from golf.field.text import TextFile, UnreadableError, content_of
from golf.tables import any_of, table_of

NAME = "submission.json"
ANY_NAME = re.compile(r"sub+mission[\w.-]*\.json", re.IGNORECASE)  # public files have it with two b, too
LARGEST_CHARACTERS = 4_000_000
LONGEST_KEY = 200  # characters of a key that names a score
NEEDED = ("author", "val_bpb")  # nearly all 58 public record folders have these; every other key is missing in some
OWN_NAMES = {"val_bpb": "val_bpb", "val_loss": "val_loss", "bytes_total": "total_bytes", "bytes_code": "code_bytes"}
_BY_SEED = re.compile(r"_?(?:by|per)_seeds?$")
_UNIT = re.compile(r"(?<![a-z])(?:ms|s|secs?|seconds)(?![a-z])")
_SEED = re.compile(r"(?:val_bpb_)?(?:seed|s)?[ _-]?(\d{1,10})")
_PER_SEED = re.compile(r"seed|runs?\b|results?\b|logs?\b")
_COMMENTS = r"//[^\n]*|/\*.*?(?:\*/|\Z)|(?m:^[^\S\n]*#[^\n]*)"
_LOOSE = re.compile(rf'"(?:\\.|[^"\\])*+(?:"|\Z)|{_COMMENTS}|,(?=\s*[}}\]])', re.DOTALL)
_KEYS = table_of(__file__)
_ELSEWHERE, _MEAN_OR_FINAL = any_of(_KEYS["elsewhere"]), set(_KEYS["mean_or_final"])
_NO_SCORE = re.compile(r"byte|size|second|time|step|loss|_ms\b|param|token|std|pre_?quant")
_MEANINGS = {what: any_of(keys) for what, keys in _KEYS["meanings"].items()}


@dataclass
class Claims:
    """The content of one submission.json, each number by its name in Golf's results."""

    name: str  # of the file
    figures: dict[str, Figure] = field(default_factory=dict)  # claims for the whole submission
    per_seed: dict[int, dict[str, Figure]] = field(default_factory=dict)
    seeds: tuple[int, ...] = ()
    texts: dict[str, str] = field(default_factory=dict)
    not_understood: list[str] = field(default_factory=list)  # keys with a number that may be a result
    problem: str = ""


def read_claims_file(path: Path, name: str = "") -> Claims:
    """Return everything that can be read of one file. Its defect, if it has one, is in `problem`."""
    claims = Claims(name or path.name)
    try:
        text = _content(path)
    except UnreadableError as error:
        claims.problem = str(error)
        return claims
    value, claims.problem = _parsed(text)
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if not isinstance(value, dict):
        claims.problem = claims.problem or ("is empty" if not text.strip() else "holds no JSON object")
        return claims
    _take(claims, value)
    return claims


def read_claims(folder: Path, audit: Audit) -> Claims | None:
    """Return the claims in a folder's submission.json, None if there is none. Adds defects of its form to `audit`."""
    if not (path := folder / NAME).exists():
        return None
    if not path.is_file():
        audit.unusable.append(f"{NAME} is no file")
        return None
    claims = read_claims_file(path)
    values, problems = _strictly_read(path)
    if claims.problem and not problems:
        problems = [f"{NAME} {claims.problem}"]
    audit.unusable += problems
    if isinstance(values, dict):
        _check_fields(values, claims, audit)
    return claims


def meaning(key: str) -> str | None:
    """Return the result that a key stands for, None if it is no result or could be several."""
    words = _words(key)
    parts = set(words.split("_"))
    if "bpb" in parts and parts - {"bpb"} <= _MEAN_OR_FINAL:
        return "val_bpb"
    if "loss" in parts and "val" in parts and parts - {"loss"} <= _MEAN_OR_FINAL:
        return "val_loss"
    # No key of a score is long, and the expressions take the square of its length.
    if len(words) > LONGEST_KEY:
        return None
    return next((what for what, pattern in _MEANINGS.items() if pattern.fullmatch(words)), None)


def _words(key: str) -> str:
    """Return a key in lower case with underscores between its words: `valBpb` and `Val BPB` become `val_bpb`."""
    return re.sub(r"[^a-z0-9]+", "_", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", key).lower()).strip("_")


def is_result(what: str, value: float) -> bool:
    """Tell whether a number can be a result of this meaning: placeholders such as 0 and infinite sizes cannot."""
    if what.endswith("_bpb"):
        return may_be_bpb(value)
    return (what == "seed" or what.endswith(("_std", "_loss"))) or (value > 0 and math.isfinite(value))


def _content(path: Path) -> str:
    """Return the text of a file. Raises `UnreadableError` beyond `LARGEST_CHARACTERS`."""
    parts, size = [], 0
    for _, text in TextFile(path):
        parts.append(text)
        size += len(text) + 1
        if size > LARGEST_CHARACTERS:
            raise UnreadableError(f"is longer than {LARGEST_CHARACTERS:,} characters")
    return "\n".join(parts)


def _parsed(text: str) -> tuple[Any, str]:
    """Return (value, problem) of JSON that may have comments, trailing commas or text around it."""
    # A strict decoder refuses a line break within a string.
    decoder = json.JSONDecoder(strict=False)
    # Strings are matched too, and stay, as `//` within one is no comment.
    repaired = _LOOSE.sub(lambda match: match[0] if match[0].startswith('"') else "", text)
    begin, loose = max(repaired.find("{"), 0), "is not strict JSON"
    for candidate, problem in ((text, ""), (repaired, loose), (repaired[begin:], loose)):
        try:
            return decoder.raw_decode(candidate.lstrip())[0], problem
        except (ValueError, RecursionError):
            continue
    return None, "is not JSON" if text.strip() else "is empty"


def _take(claims: Claims, top: dict[str, Any]) -> None:
    """Fill `claims` from the outermost object."""
    for key in ("name", "author", "track", "hardware", "date"):
        if isinstance(top.get(key), str):
            claims.texts[key] = top[key][:200]
    # In some files `seeds` is their number, in others an object by seed.
    seeds = top.get("seeds", top.get("seed_list"))
    listed = [whole(f.value) for v in seeds if (f := as_figure(v, ""))] if isinstance(seeds, list) else []
    claims.seeds = tuple(s for s in listed if s is not None)
    for path, key, value in _walk(top):
        source = f"{claims.name}: {path}"
        if (number := _seed_of(key)) is not None:
            if _PER_SEED.search(path.lower()):
                _take_seed(claims, number, value, source, _common_meaning(path, key))
        elif isinstance(value, list) and _is_per_seed_list(claims, key, value):
            what = meaning(_BY_SEED.sub("", key).replace("seeds", ""))
            for index, (seed, item) in enumerate(zip(claims.seeds, value, strict=True)):
                _take_seed(claims, seed, item, f"{source}[{index}]", what)
        elif isinstance(value, list):
            _take_list(claims, value, source)
        elif not isinstance(value, dict):
            _take_figure(claims, claims.figures, key, value, source)
    if not claims.seeds and claims.per_seed:
        claims.seeds = tuple(claims.per_seed)


def _walk(top: dict[str, Any], path: str = "", depth: int = 0) -> Iterator[tuple[str, str, Any]]:
    """Yield (path, key, value), outer entries first. Entries about other submissions are left out."""
    # Objects wait until their siblings have been yielded: the outermost claim of a meaning is the one that stays.
    inner: list[tuple[str, dict[str, Any]]] = []
    for key, value in top.items():
        where = f"{path}{key}"
        if _ELSEWHERE.search(key.lower()):
            continue
        yield where, key, value
        if isinstance(value, dict) and _seed_of(key) is None and depth < 6:
            inner.append((where, value))
    for where, value in inner:
        yield from _walk(value, f"{where}.", depth + 1)


def _common_meaning(path: str, key: str) -> str | None:
    """Return the meaning of a bare number below a seed's key, which is a score unless the keys above say otherwise."""
    what = meaning(_BY_SEED.sub("", path.removesuffix(key).rstrip(".").rpartition(".")[2]))
    return what or (None if _NO_SCORE.search(path.lower()) else "val_bpb")


def _seed_of(key: str) -> int | None:
    """Return the seed that a key names, such as `seed_42` or `42`."""
    match = _SEED.fullmatch(key.strip().lower())
    return int(match[1]) if match else None


def _is_per_seed_list(claims: Claims, key: str, value: list[Any]) -> bool:
    """Tell whether a list holds one number for each of the seeds."""
    numbers = all(as_figure(v, "") is not None for v in value)
    return numbers and len(value) == len(claims.seeds) > 0 and key.lower() not in ("seeds", "seed_list")


def _take_list(claims: Claims, values: list[Any], source: str) -> None:
    """Take the objects of a list that name their seed."""
    for index, item in enumerate(values[:1000]):
        if isinstance(item, dict) and (seed := as_figure(item.get("seed"), "")) and whole(seed.value) is not None:
            _take_seed(claims, int(seed.value), item, f"{source}[{index}]")


def _take_seed(claims: Claims, seed: int, value: Any, source: str, what: str | None = "val_bpb") -> None:
    """Take the claims for one seed: an object of them, or one number whose meaning is `what`."""
    figures = claims.per_seed.setdefault(seed, {})
    if isinstance(value, dict):
        for path, key, inner in _walk(value):
            if not isinstance(inner, (dict, list)) and key != "seed":
                _take_figure(claims, figures, key, inner, f"{source}.{path}")
    elif what and (figure := as_figure(value, source)):
        figure = _in_seconds(figure, what)
        if is_result(what, figure.value):
            figures.setdefault(what, figure)


def _take_figure(claims: Claims, figures: dict[str, Figure], key: str, value: Any, source: str) -> None:
    """Put a number under the name of its meaning, if it has one. The first of several stays."""
    if (figure := as_figure(value, source)) is None:
        return
    if (what := meaning(key)) is None:
        if re.search(r"bpb|loss|bytes|seconds|steps", key.lower()):
            claims.not_understood.append(source.partition(": ")[2])
        return
    figure = _in_seconds(figure, what)
    if not is_result(what, figure.value):
        return
    if what == "total_bytes" and key.lower().startswith("bytes_total"):
        # The public baseline's key. Other keys of this meaning are as often the size of one seed as of all.
        figures[what] = figure
    figures.setdefault(what, figure)


def _in_seconds(figure: Figure, what: str) -> Figure:
    """Return a time of milliseconds in seconds. The unit is the last one in the path of its keys."""
    units = _UNIT.findall(_words(figure.source.partition(": ")[2])) if what.endswith("_seconds") else []
    if units[-1:] != ["ms"]:
        return figure
    return Figure(figure.value / 1000, figure.source, repr(figure.value / 1000))


def _strictly_read(path: Path) -> tuple[Any, list[str]]:
    """Return the content as `json.loads` has it, and the reasons why a strict reader refuses it."""
    # Leniently read claims can be right in a file that other people's readers refuse.
    try:
        raw = content_of(path, LARGEST_CHARACTERS + 1)
    except UnreadableError as error:
        return None, [f"{NAME} {error}"]
    problems: list[str] = []
    twice: list[str] = []
    if raw.startswith(codecs.BOM_UTF8):
        problems.append(f"{NAME} begins with a byte-order mark, which JSON readers refuse: save it without")
        raw = raw.removeprefix(codecs.BOM_UTF8)

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        twice.extend(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        return dict(pairs)

    try:
        values = json.loads(raw.decode("utf-8"), object_pairs_hook=unique)
    except UnicodeDecodeError as error:
        return None, [f"{NAME} is not UTF-8 (byte {error.start + 1}): save it as UTF-8"]
    except (ValueError, RecursionError) as error:
        return None, [f"{NAME} is not JSON: {error}"] if raw.strip() else [f"{NAME} is empty"]
    if twice:
        problems.append(f"{NAME} gives {', '.join(dict.fromkeys(twice))} twice: readers differ in which one counts")
    if not isinstance(values, dict):
        problems.append(f"{NAME} holds no JSON object")
    return values, problems


def _check_fields(values: dict[str, Any], claims: Claims, audit: Audit) -> None:
    """Add missing fields, fields of another type, and core fields under another name to `audit`."""
    missing, renamed, mistyped = [], [], []
    for key in (*SUBMISSION_TEXTS, *SUBMISSION_NUMBERS):
        if key not in values and (figure := claims.figures.get(OWN_NAMES.get(key, ""))) is not None:
            renamed.append(f"{key} as {figure.source.partition(': ')[2]}")
        elif key == "author" and key not in values and values.get("authors"):
            renamed.append("author as authors")
        elif key not in values or values[key] == "":
            missing.append(key)
        elif not _has_type(key, values[key]):
            kind = "a number" if key in SUBMISSION_NUMBERS else "a text"
            mistyped.append(f"{key} is {_short(values[key])}, not {kind}")
    audit.unusable += [f"{NAME} has no {key}" for key in missing if key in NEEDED]
    audit.unusable += [f"{NAME}: {problem}" for problem in mistyped]
    if lacking := [key for key in missing if key not in NEEDED]:
        audit.look_at.append(f"{NAME} has no {', '.join(lacking)}, which most submissions have")
    if renamed:
        audit.look_at.append(f"{NAME} gives {', '.join(renamed)}: a reader of the usual names does not find it")
    if not (missing or renamed or mistyped):
        audit.in_order.append(f"{NAME} has every field of the core, of the right type")


def _has_type(key: str, value: Any) -> bool:
    if key in SUBMISSION_TEXTS:
        return isinstance(value, str)
    figure = None if isinstance(value, str) else as_figure(value, key)
    return figure is not None and math.isfinite(figure.value)


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) < 50 else text[:47] + "..."
