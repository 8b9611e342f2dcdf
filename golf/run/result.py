"""What a run ended with: `result.json`. Units are in the names; what was not reached is null."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from golf.bits import Score
from golf.errors import GolfError

OK, OVER_BYTES, OVER_TIME = "ok", "over_bytes", "over_time"
DIVERGED, CRASHED, INTERRUPTED = "diverged", "crashed", "interrupted"
VOID = "void"  # something that was selected did nothing: the run says nothing about it
FINAL = (OK, OVER_BYTES, OVER_TIME, VOID, DIVERGED)  # running it again would say the same; the others are cut short


@dataclass
class Result:
    """One seed of a variant. A state other than `ok` says in `reason` what would have to change."""

    name: str
    variant_id: str
    seed: int
    state: str = CRASHED
    reason: str = ""
    attempt: int = 1  # 2 and more: the job was stopped and queued again
    machine: str = ""  # kind of machine; `warnings` say if this one was busy
    slowdown: float | None = None  # step time over that of earlier runs on such machines, if this one was slow
    warnings: list[str] = field(default_factory=list)  # what a reader has to know besides the state
    tech: list[str] = field(default_factory=list)
    attention: str = ""  # the kernel that ran
    scale: str = ""
    data_name: str = ""
    data_fingerprint: str = ""
    model_params: int | None = None
    steps: int = 0
    tokens_seen: int = 0
    train_seconds: float = 0.0
    budget_train_seconds: float = 0.0
    step_ms: float | None = None
    train_loss: float | None = None
    pre_quant: Score | None = None
    post_quant: Score | None = None  # of the artifact, as are the two below
    post_quant_sliding: Score | None = None
    post_quant_ttt: Score | None = None
    quant_gap_bpb: float | None = None  # post_quant - pre_quant, scored alike
    raw_model_bytes: int | None = None
    artifact_bytes: int | None = None
    code_bytes: int | None = None
    total_bytes: int | None = None  # artifact + code, what the cap is about
    cap_bytes: int | None = None
    codec: str | None = None  # compressor and library version
    warmup_seconds: float | None = None
    calibration_seconds: float | None = None  # of GPTQ: training time on training text, evaluation time on own text
    quantize_seconds: float | None = None
    eval_seconds: float | None = None  # of all scores of the artifact, and of calibrating on own text
    peak_memory_mib: int | None = None

    @property
    def artifact_scores(self) -> list[Score]:
        """Those that were taken, the one that counts last."""
        return [s for s in (self.post_quant, self.post_quant_sliding, self.post_quant_ttt) if s is not None]

    @property
    def final_score(self) -> Score | None:
        """The score of the run: the artifact's, in the most elaborate way that was asked for."""
        return self.artifact_scores[-1] if self.artifact_scores else None


def to_json(result: Result) -> dict[str, Any]:
    return dataclasses.asdict(result)


def read_result(path: Path) -> Result:
    """Load a `result.json`."""
    try:
        values = json.loads(path.read_text())
        for key in ("pre_quant", "post_quant", "post_quant_sliding", "post_quant_ttt"):
            values[key] = Score(**values[key]) if values[key] else None
        return Result(**values)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise GolfError(f"{path} is not a result of this version of golf ({error}).") from error
