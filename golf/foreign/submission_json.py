"""submission.json in its thousand shapes: what it claims for the whole and for each seed, by what the keys mean.

No schema was ever enforced: of 1,756 files of the public challenge 1,022 have different sets of keys, 302 keys hold
"bpb". Keys are therefore read word by word; a key that could mean two things is counted as not understood.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from golf.foreign.figures import Figure, as_figure, whole
from golf.foreign.text import TextFile, UnreadableError

FILE_NAME = re.compile(r"sub+mission[\w.-]*\.json", re.IGNORECASE)  # one was misspelt from the start
LARGEST_CHARACTERS = 4_000_000
_SEED = re.compile(r"(?:val_bpb_)?(?:seed|s)?[ _-]?(\d{1,10})")
_PER_SEED = re.compile(r"seed|runs?\b|results?\b|logs?\b")
_LOOSE = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/|(?m:^\s*#[^\n]*)|,(?=\s*[}\]])', re.DOTALL)
_ELSEWHERE = re.compile(  # numbers of something else than this submission
    r"baseline|compar|reference|previous|prior|sota|parent|delta|improvement|ablation|leaderboard|target|versus|\bvs\b|"
    r"limit|budget|gain|statist|p_value|t_test|welch|ci_|margin|base_pr|superseded|official|headroom|threshold|hyper|config"
)
_PLAIN = {
    "val",
    "mean",
    "avg",
    "average",
    "exact",
    "final",
    "seed",
    "seeds",
    "3",
    "3seed",
    "5",
    "5seed",
    "three",
    "score",
    "n",
}
_SHAPES: list[tuple[str, re.Pattern[str]]] = [
    (what, re.compile(pattern))
    for what, pattern in (
        ("val_bpb_std", r".*bpb.*_?(?:std|stdev|stddev|sd)(?:_.*)?|(?:std|stdev|stddev|sd)_.*bpb.*"),
        ("val_loss_std", r".*loss.*_?(?:std|stdev|stddev|sd)(?:_.*)?|(?:std|stdev|stddev|sd)_.*loss.*"),
        ("pre_quant_bpb", r"(?:pre_?quant\w*|prequant)_(?:val_)?bpb(?:_mean)?|(?:val_)?bpb_pre_?quant\w*"),
        ("pre_quant_loss", r"(?:pre_?quant\w*|prequant)_(?:val_)?loss"),
        ("sliding_bpb", r"\w*slid\w*_(?:val_)?bpb(?:_exact|_mean)?|(?:val_)?bpb_slid\w*"),
        ("ttt_bpb", r"\w*ttt_(?:val_)?bpb(?:_exact|_mean)?|(?:val_)?bpb_(?:\w+_)?ttt"),
        (
            "post_quant_bpb",
            r"\w*(?:post_?quant|round_?trip|quantized|int\d\w*)_(?:val_)?bpb(?:_exact|_mean)?|(?:val_)?bpb_(?:post_?quant|round_?trip)",
        ),
        ("code_bytes", r"bytes_code(?:_total)?|code_bytes|code_size(?:_bytes)?"),
        (
            "model_bytes",
            r"bytes_model\w*|model_bytes|(?:compressed_)?model_size_bytes|compressed_model_bytes|quantized_bytes",
        ),
        (
            "total_bytes",
            r"bytes_total(?:_max)?|(?:max_)?total_bytes(?:_max)?|(?:max_)?artifact_bytes(?:_max)?|artifact_size(?:_bytes)?|submission_(?:size_)?bytes|total_size_bytes|(?:total_)?submission_size(?:_bytes)?|bytes|size_bytes",
        ),
        (
            "steps",
            r"steps|step_stop|(?:train_|training_|num_|total_)?steps(?:_completed|_reached|_mean)?|stop(?:ped)?_step|final_step",
        ),
        ("step_ms", r"(?:avg_|mean_)?step_?(?:avg|time)?_ms(?:_mean|_avg)?|ms_per_step(?:_mean)?"),
        ("eval_seconds", r"(?:ttt_|total_|sliding_)?eval(?:uation)?_(?:time_|wallclock_)?(?:s|sec|secs|seconds|ms)"),
        (
            "train_seconds",
            r"(?:train(?:ing)?_)?(?:wallclock|wall_clock|train_time|training_time|train|training)_?(?:time_)?(?:s|sec|secs|seconds|ms)",
        ),
        ("model_params", r"(?:model_|num_|total_)?param(?:eter)?s(?:_count|_total)?|param_count"),
        ("seed", r"seed"),
    )
]


@dataclass
class Claims:
    """`figures` are claimed for the whole, `per_seed` for single seeds, each by its name in Golf's results."""

    name: str
    figures: dict[str, Figure] = field(default_factory=dict)
    per_seed: dict[int, dict[str, Figure]] = field(default_factory=dict)
    seeds: tuple[int, ...] = ()
    texts: dict[str, str] = field(default_factory=dict)
    not_understood: list[str] = field(default_factory=list)  # keys with a number that may be a result
    problem: str = ""


def read_claims_file(path: Path, name: str = "") -> Claims:
    """Read one file; what is wrong with it is in `problem`, and whatever could be read is there all the same."""
    found = Claims(name or path.name)
    try:
        text = _content(path)
    except UnreadableError as error:
        found.problem = str(error)
        return found
    value, found.problem = _parsed(text)
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if not isinstance(value, dict):
        found.problem = found.problem or ("is empty" if not text.strip() else "holds no JSON object")
        return found
    _take(found, value)
    return found


def meaning(key: str) -> str | None:
    """What a key stands for, None if it is no result or could be several."""
    words = re.sub(r"[^a-z0-9]+", "_", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", key).lower()).strip("_")
    parts = set(words.split("_"))
    if "bpb" in parts and parts - {"bpb"} <= _PLAIN:
        return "val_bpb"
    if "loss" in parts and "val" in parts and parts - {"loss"} <= _PLAIN:
        return "val_loss"
    return next((what for what, pattern in _SHAPES if pattern.fullmatch(words)), None)


def _content(path: Path) -> str:
    """The text of a file, of which only so much is read as a submission can have."""
    parts, size = [], 0
    for _, text in TextFile(path):
        parts.append(text)
        size += len(text) + 1
        if size > LARGEST_CHARACTERS:
            raise UnreadableError(f"is longer than {LARGEST_CHARACTERS:,} characters")
    return "\n".join(parts)


def _parsed(text: str) -> tuple[Any, str]:
    """JSON, or what is JSON but for comments, trailing commas or text around it, and what was wrong."""
    decoder = json.JSONDecoder(strict=False)
    repaired = _LOOSE.sub(lambda match: match[0] if match[0].startswith('"') else "", text)
    begin = repaired.find("{")
    for candidate, problem in (
        (text, ""),
        (repaired, "is not strict JSON"),
        (repaired[max(begin, 0) :], "is not strict JSON"),
    ):
        try:
            return decoder.raw_decode(candidate.lstrip())[0], problem
        except (ValueError, RecursionError):
            continue
    return None, "is not JSON" if text.strip() else "is empty"


def _take(found: Claims, top: dict[str, Any]) -> None:
    for key in ("name", "author", "track", "hardware", "date"):
        if isinstance(top.get(key), str):
            found.texts[key] = top[key][:200]
    seeds = top.get("seeds", top.get("seed_list"))
    listed = [whole(f.value) for v in seeds if (f := as_figure(v, ""))] if isinstance(seeds, list) else []
    found.seeds = tuple(s for s in listed if s is not None)
    for path, key, value in _walk(top):
        source = f"{found.name}: {path}"
        if (number := _seed_of(key)) is not None:
            if _PER_SEED.search(path.lower()):
                _take_seed(found, number, value, source)
        elif isinstance(value, list) and _is_per_seed_list(found, key, value):
            for seed, item in zip(found.seeds, value, strict=True):
                _take_seed(found, seed, item, f"{source}[{found.seeds.index(seed)}]", meaning(key.replace("seeds", "")))
        elif isinstance(value, list):
            _take_list(found, value, source)
        elif not isinstance(value, dict):
            _take_figure(found, found.figures, key, value, source)
    if not found.seeds and found.per_seed:
        found.seeds = tuple(found.per_seed)


def _walk(top: dict[str, Any], path: str = "", depth: int = 0) -> Iterator[tuple[str, str, Any]]:
    """Every entry with its path; nothing of what is about other submissions. Outer entries come before inner ones."""
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


def _seed_of(key: str) -> int | None:
    match = _SEED.fullmatch(key.strip().lower())
    return int(match[1]) if match else None


def _is_per_seed_list(found: Claims, key: str, value: list[Any]) -> bool:
    numbers = all(as_figure(v, "") is not None for v in value)
    return numbers and len(value) == len(found.seeds) > 0 and key.lower() not in ("seeds", "seed_list")


def _take_list(found: Claims, values: list[Any], source: str) -> None:
    for index, item in enumerate(values[:1000]):
        if isinstance(item, dict) and (seed := as_figure(item.get("seed"), "")) and whole(seed.value) is not None:
            _take_seed(found, int(seed.value), item, f"{source}[{index}]")


def _take_seed(found: Claims, seed: int, value: Any, source: str, what: str | None = "val_bpb") -> None:
    figures = found.per_seed.setdefault(seed, {})
    if isinstance(value, dict):
        for path, key, inner in _walk(value):
            if not isinstance(inner, (dict, list)) and key != "seed":
                _take_figure(found, figures, key, inner, f"{source}.{path}")
    elif what and (figure := as_figure(value, source)):
        figures.setdefault(what, figure)


def _take_figure(found: Claims, figures: dict[str, Figure], key: str, value: Any, source: str) -> None:
    figure = as_figure(value, source)
    if figure is None:
        return
    what = meaning(key)
    if what is None:
        if re.search(r"bpb|loss|bytes|seconds|steps", key.lower()):
            found.not_understood.append(source.partition(": ")[2])
        return
    if key.lower().endswith("_ms") and what.endswith("_seconds"):
        figure = Figure(figure.value / 1000, figure.source, repr(figure.value / 1000))
    if what == "total_bytes" and key.lower().startswith("bytes_total"):
        figures[what] = figure  # the key of the public baseline; the others are of one seed as often as of all
    figures.setdefault(what, figure)
