"""Lines of a train log without a result: crashes, changes of mode, the machine, echoed source, and noise."""

from __future__ import annotations

import re
from dataclasses import dataclass

from golf.field.figures import NUMBER
from golf.tables import any_of, table_of

_FLAGS = re.IGNORECASE


@dataclass(frozen=True)
class EventLine:
    """A line about the course of a run."""

    kind: str  # crash, sliding_mode, eval_clock, averaging, gpu, rule (a line of equals signs) or noise
    value: str = ""  # crash: message; sliding_mode: stride; eval_clock: duration; gpu: name


NOISE, RULE = EventLine("noise"), EventLine("rule")
_KNOWN = table_of(__file__)
_CRASH = any_of(_KNOWN["crash"])
_WARNS = re.compile(r"\[WARNING\]|^\s*W\d{4} ")
_SLIDING_MODE = re.compile(
    r"eval_mode:\s*sliding|starting sliding|for sliding window eval|sliding.window eval.*start", _FLAGS
)
_EVAL_CLOCK = re.compile(rf"^\s*total_eval_time:\s*({NUMBER}\s*(?:ms|s|m))", _FLAGS)
_AVERAGING = re.compile(r"^\s*(?:ema|swa|lawa|averag\w+)\b.*\b(?:apply|applying|averag|loading)", _FLAGS)
# A row of the table that nvidia-smi prints: number, name and persistence mode of a GPU.
_GPU = re.compile(r"^\|\s*\d+\s+((?:NVIDIA|Tesla|GeForce|AMD)[\w ]*?)\s+(?:On|Off|N/A)?\s*\|")
# A field of an f-string, such as `{val_bpb:.4f}`: digits in it are no result.
_FORMAT_CODE = re.compile(r"\{[^{}\s][^{}]{0,200}:[-+ ,_<>=^]*(?:\d*,?(?:\.\d+)?[bcdeEfFgGnosxX%]|\.\d+)\}")
_NOISE = re.compile(rf"^\s*(?:{'|'.join(_KNOWN['noise'])})", _FLAGS)
# Scripts print countless settings of their own as `name: value`. A score in such a line has been read before this test.
_PAIRS_ONLY = re.compile(r"^\s*[A-Za-z_][\w.+/-]{0,60}(?:\[[^\]]{0,20}\])?\s*[:=](?:\s|\S|$)")
_LIBRARY_NOISE = any_of(_KNOWN["library_noise"], _FLAGS)


def read_event(text: str, lowered: str) -> EventLine | None:
    """Return the event that a line reports, None for a line of another sort."""
    if match := _EVAL_CLOCK.match(text):
        return EventLine("eval_clock", match[1])
    # Compilers print the traceback of what they fall back from as a warning, and the run goes on.
    if _CRASH.search(text) and not _WARNS.search(text):
        return EventLine("crash", text.strip()[:200])
    if "sliding" in lowered and _SLIDING_MODE.search(text):
        stride = re.search(r"\bstride\s*[:=]\s*(\d{1,9})", text)
        return EventLine("sliding_mode", stride[1] if stride else "")
    if text.startswith("|") and (match := _GPU.match(text)):
        return EventLine("gpu", match[1].strip())
    if _AVERAGING.match(text):
        return EventLine("averaging")
    # Lines of equals signs stand before and after an echoed script.
    return RULE if len(text) >= 60 and not text.strip("= ") else None


def read_noise(text: str) -> EventLine | None:
    """Return `NOISE` for a line of a known kind without a result, None for an unknown line."""
    return NOISE if (_NOISE.match(text) or _PAIRS_ONLY.match(text) or _LIBRARY_NOISE.search(text)) else None


def has_format_code(text: str) -> bool:
    """Tell whether a line has a field of an f-string with a format code, as only source has."""
    return "{" in text and bool(_FORMAT_CODE.search(text))
