"""The budget of a run: cap on bytes, limits on seconds, and which seconds count against which limit.

GPTQ's calibration on training text counts as training; calibration on text that the model writes counts as evaluation.
"""

from __future__ import annotations

from golf.run.core_time import lacked_cores
from golf.run.result import OK, OVER_BYTES, OVER_TIME, Result
from golf.settings.config import Config


def counted_eval_seconds(cfg: Config, result: Result, whole_seconds: float) -> float:
    """Return the seconds that count as evaluation: all scores of the artifact, and calibration on own text.

    `whole_seconds` are those from the packed file to the last score, which count if the rules say so.
    """
    own_text = _calibration_seconds(cfg, result, "self_generated")
    if cfg.rules.eval_clock == "whole":
        return whole_seconds + own_text
    return sum(score.seconds for score in result.artifact_scores) + own_text


def budget_state(cfg: Config, result: Result) -> tuple[str, str]:
    """Return `OK`, or the state and the sentence for the first limit of the budget that the run exceeds.

    Needs the result's bytes and its seconds of training, calibration and evaluation.
    """
    budget = cfg.budget
    assert result.artifact_bytes is not None and result.eval_seconds is not None
    # Where nothing makes the script, its bytes are unknown, and the artifact may exceed the cap by itself.
    what = "the artifact alone is" if result.total_bytes is None else "artifact and code are"
    over_bytes = (result.total_bytes or result.artifact_bytes) - budget.artifact_bytes
    if over_bytes > 0:
        return OVER_BYTES, f"{what} {over_bytes:,} bytes over the cap of {budget.artifact_bytes:,}"
    calibrating = _calibration_seconds(cfg, result, "train") + (result.tune_seconds or 0.0)
    over_train = result.train_seconds + calibrating - budget.train_seconds
    # The loop stops before the step that would not fit, but a step or batch can take longer than those before it.
    if budget.train_seconds and over_train > budget.grace_seconds:
        what = "training with calibration and tuning" if calibrating else "training"
        busy = _busy(result.core_share, "training")
        return OVER_TIME, f"{what} took {over_train:.1f} s more than its {budget.train_seconds:g} s{busy}"
    if budget.eval_seconds and result.eval_seconds > budget.eval_seconds:
        what = "scoring with unpacking and compiling" if cfg.rules.eval_clock == "whole" else "scoring"
        busy = _busy(result.eval_core_share, "scoring")
        return OVER_TIME, f"{what} took {result.eval_seconds:.1f} s of at most {budget.eval_seconds:g} s{busy}"
    return OK, ""


def _busy(share: float | None, doing: str) -> str:
    said = lacked_cores(share, doing)
    return f": {said}" if said else ""


def _calibration_seconds(cfg: Config, result: Result, source: str) -> float:
    """Return the seconds of calibration if its text came from `source`, else 0."""
    return result.calibration_seconds or 0.0 if cfg.quant.calibration.source == source else 0.0
