"""One run as a row of a table: our own, read from its folder, or somebody else's, read from a log.

What is not known is None. Reads JSON only, so that a thousand runs take a second: no schema, no torch.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from golf.bits import STANDARD
from golf.run.result import OK

OWN, IMPORTED = "own", "imported"
UNFINISHED = "unfinished"  # a folder without a result: running or killed
WAITING = "waiting"  # asked for by a sweep and not started
OPEN_STATES = (UNFINISHED, WAITING)
UNREADABLE = "unreadable"  # a result that is not JSON or lacks what makes it one
MEASURED = (
    *("artifact_bytes", "code_bytes", "total_bytes", "cap_bytes"),
    *("steps", "step_ms", "train_seconds", "eval_seconds"),
)


@dataclass(frozen=True)
class RunRow:
    """One seed of a variant. Scores are bits per byte unless named otherwise; bytes are decimal."""

    variant: str  # variant id; for imported runs a hash of folder and name
    name: str
    seed: int | None = None
    state: str = OK  # only rows that are `ok` enter a mean
    reason: str = ""
    source: str = OWN
    path: Path | None = None
    pre_quant_bpb: float | None = None
    post_quant_bpb: float | None = None
    sliding_bpb: float | None = None
    ttt_bpb: float | None = None
    val_bpb: float | None = None  # the score that counts
    val_loss: float | None = None  # nats per token of that score
    bytes_per_token: float | None = None  # of the scored text: val_loss / (ln 2 · val_bpb)
    artifact_bytes: int | None = None
    code_bytes: int | None = None
    total_bytes: int | None = None
    cap_bytes: int | None = None
    steps: int | None = None
    step_ms: float | None = None
    train_seconds: float | None = None
    eval_seconds: float | None = None
    faults: tuple[str, ...] = ()  # sentences about what contradicts itself; shown beside the row
    machine: str | None = None
    slowdown: float | None = None  # of a slow machine: step time over that of others of its kind
    how: str | None = None  # how the score that counts was taken; different ways do not compare
    data: str | None = None  # fingerprint of the scored text; different texts do not compare

    @property
    def counts(self) -> bool:
        """Whether the run enters means and verdicts: `ok`, with a finite score."""
        return self.state == OK and is_number(self.val_bpb)

    @property
    def is_open(self) -> bool:
        """Whether the run has not ended."""
        return self.state in OPEN_STATES


def is_number(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def bytes_per_token(val_loss: float | None, val_bpb: float | None) -> float | None:
    """Bytes that a token stands for, from one score in both units; None if either is missing or not positive."""
    if val_loss is None or val_bpb is None or not (is_number(val_loss) and is_number(val_bpb)):
        return None
    return val_loss / (math.log(2) * val_bpb) if val_loss > 0 and val_bpb > 0 else None


def rows_of(folders: Iterable[Path]) -> list[RunRow]:
    """A row for every run folder, in the order given; what cannot be read is a row that says so."""
    return [row_of(Path(folder)) for folder in folders]


def row_of(folder: Path) -> RunRow:
    """The row of one run folder: `result.json`, or the reason why there is none."""
    try:
        values = json.loads((folder / "result.json").read_bytes())
        return row_of_result(values, folder)
    except FileNotFoundError:
        return _without_result(folder, UNFINISHED, "no result.json: it is running or was killed")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return _without_result(folder, UNREADABLE, f"result.json cannot be read ({type(error).__name__}: {error})")


def row_of_result(values: Mapping[str, Any], folder: Path | None = None) -> RunRow:
    """The row of a result's plain dict; raises KeyError, TypeError or AttributeError for what is not one."""
    scores = {key: values.get(key) or {} for key in ("pre_quant", "post_quant", "post_quant_sliding", "post_quant_ttt")}
    final = next((scores[k] for k in ("post_quant_ttt", "post_quant_sliding", "post_quant") if scores[k]), {})
    val_loss, val_bpb = final.get("val_loss"), final.get("val_bpb")
    text_bytes, tokens = final.get("bytes"), final.get("tokens")
    measured: dict[str, Any] = {key: values.get(key) for key in MEASURED}
    state, reason = values["state"], values.get("reason", "")
    if state == OK and not is_number(val_bpb):
        state, reason = UNREADABLE, "the result says ok and has no finite score"
    return RunRow(
        variant=values["variant_id"],
        name=values["name"],
        seed=values["seed"],
        state=state,
        reason=reason,
        path=folder,
        pre_quant_bpb=scores["pre_quant"].get("val_bpb"),
        post_quant_bpb=scores["post_quant"].get("val_bpb"),
        sliding_bpb=scores["post_quant_sliding"].get("val_bpb"),
        ttt_bpb=scores["post_quant_ttt"].get("val_bpb"),
        val_bpb=val_bpb,
        val_loss=val_loss,
        bytes_per_token=text_bytes / tokens if text_bytes and tokens else bytes_per_token(val_loss, val_bpb),
        **measured,
        machine=_machine(folder) if folder else None,
        slowdown=values.get("slowdown"),
        how=final.get("how", STANDARD) if final else None,
        data=values.get("data_fingerprint") or None,
    )


def _without_result(folder: Path, state: str, reason: str) -> RunRow:
    """What the folder's own names tell: `<name>-<variant id>/seed<k>[.n]`."""
    name, _, variant = folder.parent.name.rpartition("-")
    seed = folder.name.removeprefix("seed").partition(".")[0]
    return RunRow(
        variant, name, int(seed) if seed.isdigit() else None, state, reason, path=folder, machine=_machine(folder)
    )


def _machine(folder: Path) -> str | None:
    """Such as `8× NVIDIA H100 80GB HBM3` or `AMD EPYC, 2 cores`."""
    try:
        found = json.loads((folder / "environment.json").read_bytes())
        if found.get("gpus"):
            return f"{found['gpus']}× {found['gpu']}"
        return f"{found['cpu']}, {found['cpu_cores']} cores"
    except (OSError, ValueError, KeyError, AttributeError):
        return None
