"""Rows of tables: one run each, an own one from its folder or an imported one from its record. Unknown values are None.

Plain JSON is read, without the schema and without torch, so that a thousand runs take a second.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from golf.bits import STANDARD
from golf.files import DAMAGED, read_json
from golf.lab.report.texts import own_text
from golf.run.code import code_of
from golf.run.core_time import starved
from golf.run.environment import kind_of
from golf.run.folder import RunFolder, is_of_folder, why_open
from golf.run.identity import identity_of
from golf.run.result import CRASHED, FINAL, INTERRUPTED, LARGEST, NOT_PLAUSIBLE, OK, STOPPED, check_types

OWN, IMPORTED = "own", "imported"
UNFINISHED = "unfinished"  # folder without a result: the run goes on or was killed
WAITING = "waiting"  # planned by a sweep, not started
REFUSED = "refused"  # asked for by a sweep, refused by the checks of the configuration
OPEN_STATES = (UNFINISHED, WAITING)
STARVED = "starved"  # ended under a clock with too few of the cores that it asked for: its seconds are others'
UNREADABLE = "unreadable"  # result that is not JSON, lacks a required key or has an unknown state
STATES = (*FINAL, CRASHED, INTERRUPTED, STOPPED)  # states of a result
MEASURED = (
    *("artifact_bytes", "code_bytes", "total_bytes", "cap_bytes", "model_params"),
    *("steps", "step_ms", "train_seconds", "cpu_seconds", "eval_seconds"),
)
EDITED = " (edited)"  # after a commit whose files differed from what ran
MOST_BPB = 20.0  # bits per byte; a uniform guess of bytes has 8


@dataclass(frozen=True)
class RunRow:
    """One seed of a variant. Scores are in bits per byte unless the name says otherwise."""

    variant: str  # variant id; a hash of folder and name for imported runs
    name: str
    seed: int | None = None
    state: str = OK  # only `ok` rows enter means
    reason: str = ""
    source: str = OWN
    path: Path | None = None
    pre_quant_bpb: float | None = None
    post_quant_bpb: float | None = None
    sliding_bpb: float | None = None
    ttt_bpb: float | None = None
    val_bpb: float | None = None  # final score
    val_loss: float | None = None  # final score in nats per token
    bytes_per_token: float | None = None  # bytes per token of the scored text: val_loss / (ln 2 · val_bpb)
    artifact_bytes: int | None = None
    code_bytes: int | None = None
    total_bytes: int | None = None
    cap_bytes: int | None = None
    model_params: int | None = None
    steps: int | None = None
    step_ms: float | None = None
    train_seconds: float | None = None
    eval_seconds: float | None = None
    faults: tuple[str, ...] = ()  # sentences about contradictions in a record; shown below the table
    machine: str | None = None
    code: str | None = None  # commit of golf, with `EDITED` if what ran differed from it; None if unknown
    code_digest: str | None = None  # digest of the code, see golf/run/code.py; None if unknown
    host: str | None = None  # name of the machine, of which a kind has many; None if unknown
    cpu_seconds: float | None = None  # of training, all ranks
    slowdown: float | None = None  # step time relative to other machines of the kind; only for slow machines
    how: str | None = None  # way in which the final score was taken; different ways do not compare
    sliding_how: str | None = None  # way in which the sliding score was taken
    ttt_how: str | None = None  # way in which the TTT score was taken
    # Scored text: the split that its bytes prove, its digest or the data's fingerprint; None if unknown.
    data: str | None = None

    @property
    def counts(self) -> bool:
        """Tell whether the run enters means and verdicts: it is `ok` and has a score."""
        return self.state == OK and is_score(self.val_bpb)

    @property
    def kind(self) -> str | None:
        """Return the kind of machine, None if unknown; slow machines are a kind of their own."""
        return f"{self.machine}, slow" if self.machine and self.slowdown else self.machine

    @property
    def is_open(self) -> bool:
        """Tell whether the run has not ended. A log from elsewhere that was cut off stays as it is."""
        return self.state in OPEN_STATES and self.source != IMPORTED

    @property
    def is_to_come(self) -> bool:
        """Tell whether the run's result is to come: it is open, or was interrupted and the same command repeats it."""
        return self.is_open or self.state == INTERRUPTED


def is_number(value: float | None) -> bool:
    """Tell whether `value` is known, finite and small enough to be anything that was counted."""
    return value is not None and abs(value) < LARGEST


def is_score(value: object) -> bool:
    """Tell whether `value` can be a score in bits per byte: a number between 0 and 20, both excluded."""
    # JSON's true is an integer for Python.
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < MOST_BPB


def bytes_per_token(val_loss: float | None, val_bpb: float | None) -> float | None:
    """Return bytes per token from one score in nats per token and bits per byte; None unless both are positive."""
    if val_loss is None or val_bpb is None or not (is_number(val_loss) and is_number(val_bpb)):
        return None
    return val_loss / (math.log(2) * val_bpb) if val_loss > 0 and val_bpb > 0 else None


def row_of(folder: Path) -> RunRow:
    """Return the row of one run folder from its `result.json`; without one, a row with the reason."""
    try:
        values = read_json(folder / "result.json")
        row = row_of_result(values, folder)
        # One damaged result must not stop a table of all.
        check_types(row)
        if is_of_folder(values, folder):
            return row
        return _without_result(folder, UNREADABLE, f"result.json is of {row.name}-{row.variant}/seed{row.seed}")
    except FileNotFoundError:
        return _without_result(folder, UNFINISHED, why_open(RunFolder(folder)))
    except DAMAGED as error:
        return _without_result(folder, UNREADABLE, f"result.json cannot be read ({type(error).__name__}: {error})")


def row_of_result(values: Mapping[str, Any], folder: Path | None = None) -> RunRow:
    """Return the row of a result as plain dict. Raises KeyError, TypeError or AttributeError if `values` is none."""
    scores = {key: values.get(key) or {} for key in ("pre_quant", "post_quant", "post_quant_sliding", "post_quant_ttt")}
    # The same order as `Result.final_score`: the most elaborate way of scoring counts.
    final = next((scores[k] for k in ("post_quant_ttt", "post_quant_sliding", "post_quant") if scores[k]), {})
    val_loss, val_bpb = final.get("val_loss"), final.get("val_bpb")
    # Counted bytes are exact; loss over bits per byte carries the rounding of a log.
    text_bytes, tokens = final.get("bytes"), final.get("tokens")
    measured: dict[str, Any] = {key: values.get(key) for key in MEASURED}
    state, reason = values["state"], values.get("reason", "")
    if values.get("last_val_bpb") is not None:
        steps, bpb, at = (values[name] for name in ("steps", "last_val_bpb", "last_val_step"))
        reason += f" at step {steps}; validation {bpb:.4f} at step {at}"
    # At equal seconds such a run took fewer steps than the others, which is no property of its variant.
    busy = starved(values.get("core_share"), values.get("train_seconds"), values.get("budget_train_seconds"))
    if busy and state == OK:
        state, reason = STARVED, busy
    # Its reader would not know whether such a run counts.
    if state not in (*STATES, STARVED):
        state, reason = UNREADABLE, f"its state {state!r} is none of this version's: {', '.join(STATES)}"
    # A score of nan would make every mean nan, and one of -1 would be the best.
    if state == OK and not is_score(val_bpb):
        state, reason = UNREADABLE, f"the result says ok and has no score between 0 and {MOST_BPB:g} bpb"
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
        # The run printed it once; whoever reads the table did not see that.
        faults=tuple(said for said in values.get("warnings") or () if NOT_PLAUSIBLE in said),
        **(_environment(folder) if folder else {}),
        host=values.get("host") or None,
        slowdown=values.get("slowdown"),
        how=final.get("how", STANDARD) if final else None,
        sliding_how=scores["post_quant_sliding"].get("how"),
        ttt_how=scores["post_quant_ttt"].get("how"),
        data=own_text(text_bytes, values.get("data_fingerprint"), values.get("text_digest")),
    )


def read_settings(folder: Path) -> dict[str, Any]:
    """Return the settings of a run's configuration by full key, `group.key`; empty if they cannot be read."""
    try:
        return identity_of(read_json(folder / "config.json"))
    except DAMAGED:
        return {}


def _without_result(folder: Path, state: str, reason: str) -> RunRow:
    """Return a row with what the folder's names tell: `<name>-<variant id>/seed<k>[.n]`."""
    name, _, variant = folder.parent.name.rpartition("-")
    seed = folder.name.removeprefix("seed").partition(".")[0]
    number = int(seed) if seed.isdigit() else None
    return RunRow(variant, name, number, state, reason, path=folder, **_environment(folder))


def _environment(folder: Path) -> dict[str, Any]:
    """Return the machine's kind, such as `8× NVIDIA H100 80GB HBM3` or `AMD EPYC, 2 cores`, and the code that ran.

    What is not known is left out.
    """
    shown: dict[str, Any] = {}
    with contextlib.suppress(*DAMAGED):
        environment = read_json(folder / "environment.json")
        shown["code_digest"] = code_of(environment)
        shown["machine"] = kind_of(environment)
        if git := environment.get("git"):
            shown["code"] = f"{git['commit'][:12]}{EDITED if git['dirty'] else ''}"
    return shown
