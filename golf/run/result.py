"""Result of a run, `result.json`. Units are in the names; a field that the run did not reach is null."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass, field
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from golf.bits import Score
from golf.errors import GolfError
from golf.files import DAMAGED, read_json

OK, OVER_BYTES, OVER_TIME = "ok", "over_bytes", "over_time"
DIVERGED, CRASHED, INTERRUPTED = "diverged", "crashed", "interrupted"
STOPPED = "stopped"  # ended on purpose by `golf stop`: no sweep goes on with it until that is taken back
LARGEST = 1e100  # no count of a run is near; JSON has whole numbers that no float can hold
PRUNED = "pruned"  # ended early by an earlier version, because it was too far behind the reference halfway
VOID = "void"  # something that was selected did nothing, so the run did not test it
NOT_PLAUSIBLE = "is not plausible for this text"  # in the warning of a score that is too good
# Another attempt at a run in one of these would end alike; the other states were cut short.
FINAL = (OK, OVER_BYTES, OVER_TIME, VOID, DIVERGED, PRUNED)
ENDED = (*FINAL, STOPPED)  # a sweep makes no other attempt


@dataclass
class Result:
    """Result of one seed of a variant. For a state other than `ok`, `reason` names what would have to change."""

    name: str
    variant_id: str
    seed: int
    state: str = CRASHED
    reason: str = ""
    attempt: int = 1  # 2 and more if the job was stopped and queued again
    machine: str = ""  # kind of machine
    host: str = ""  # name of the first rank's machine; empty in results from before it was noted
    slowdown: float | None = None  # step time over that of earlier runs on such machines, if this machine was slow
    warnings: list[str] = field(default_factory=list)  # sentences that a reader has to know besides the state
    tech: list[str] = field(default_factory=list)
    attention: str = ""  # log line that names the attention kernels
    kernels: list[str] = field(default_factory=list)  # log lines about the kernels that launch asked for
    scale: str = ""
    data_name: str = ""
    data_fingerprint: str = ""
    text_digest: str | None = None  # equal for equal scored text, whatever tokenizer cut it; None if it is not known
    model_params: int | None = None
    steps: int = 0
    tokens_seen: int = 0
    train_seconds: float = 0.0
    budget_train_seconds: float = 0.0
    step_ms: float | None = None
    cpu_seconds: float | None = None  # of training, all ranks and threads added up
    core_share: float | None = None  # share of the cores that the threads asked for while training
    eval_core_share: float | None = None  # the same while the artifact was scored
    train_loss: float | None = None
    last_val_step: int | None = None  # step of the last validation of a run that was stopped or crashed
    last_val_bpb: float | None = None  # score before quantization, perhaps before the end of training
    pre_quant: Score | None = None
    post_quant: Score | None = None  # standard score of the artifact; the two below are the artifact's, too
    post_quant_sliding: Score | None = None
    post_quant_ttt: Score | None = None
    quant_gap_bpb: float | None = None  # post_quant - pre_quant, both standard scores
    raw_model_bytes: int | None = None
    artifact_bytes: int | None = None
    code_bytes: int | None = None
    total_bytes: int | None = None  # artifact + code, which the cap limits
    cap_bytes: int | None = None
    codec: str | None = None  # compressor and library version
    warmup_seconds: float | None = None
    calibration_seconds: float | None = None  # seconds of GPTQ; training on training text, else evaluation
    tune_seconds: float | None = None  # seconds of rounding, retraining and tuning that count as training
    quantize_seconds: float | None = None
    step_factor: float | None = None  # factor on the steps under quant.fit=cap
    eval_seconds: float | None = None  # all scores of the artifact, and calibration on own text
    peak_memory_mib: int | None = None

    @property
    def artifact_scores(self) -> list[Score]:
        """Scores of the artifact that were taken; the last one counts."""
        return [s for s in (self.post_quant, self.post_quant_sliding, self.post_quant_ttt) if s is not None]

    @property
    def final_score(self) -> Score | None:
        """Score of the run: the artifact's, in the most elaborate way that was asked for."""
        return self.artifact_scores[-1] if self.artifact_scores else None


def to_json(result: Result) -> dict[str, Any]:
    """Return the plain values of result.json."""
    return dataclasses.asdict(result)


@functools.cache
def _scalars(kind: type) -> dict[str, tuple[type, ...]]:
    """Return the types of each field of the dataclass `kind` that holds a text or a number; a float may be whole."""
    hints = get_type_hints(kind).items()
    # The entries of lists and tuples are not looked at.
    kinds = {name: get_args(hint) or (hint,) for name, hint in hints if get_origin(hint) in (None, UnionType)}
    wider = {name: (*types, int) if float in types else types for name, types in kinds.items()}
    return {name: types for name, types in wider.items() if {str, int, float} & set(types)}


def check_types(node: Any) -> None:
    """Raise TypeError for the first field of the dataclass `node` whose text or number cannot be one of a run."""
    for name, types in _scalars(type(node)).items():  # type: ignore[arg-type]  # classes can be hashed
        value = getattr(node, name)
        if not isinstance(value, types) or isinstance(value, bool):
            raise TypeError(f"{name} is {str(value)[:40]!r}")
        if isinstance(value, int) and abs(value) > LARGEST:
            raise TypeError(f"{name} is larger than anything that was counted")


def result_of(values: dict[str, Any]) -> Result:
    """Return the result with the values of `to_json`. Raises TypeError or KeyError for other values."""
    # JSON has lost the class of the scores.
    keys = ("pre_quant", "post_quant", "post_quant_sliding", "post_quant_ttt")
    scores = {key: Score(**values[key]) if values[key] else None for key in keys}
    result = Result(**{**values, **scores})
    for node in (result, *result.artifact_scores):
        check_types(node)
    return result


def read_result(path: Path) -> Result:
    """Return the result in the file `path`. Raises `GolfError` if this version cannot read it."""
    try:
        return result_of(read_json(path))
    except DAMAGED as error:
        raise GolfError(f"{path} is not a result of this version of golf ({error}).") from error
