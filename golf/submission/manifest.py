"""submission.json: the keys of the challenge's own baseline, and those that most submissions add.

All numbers come from results. A person only says who submits and under which name.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from golf.lab.report.verdicts import Verdict
from golf.submission.runs import SubmittedRun, mean, sample_sd
from golf.words import counted


@dataclass(frozen=True)
class Label:
    """The texts of a submission that a person writes."""

    author: str
    github_id: str
    name: str
    blurb: str
    track: str


def manifest(
    runs: Sequence[SubmittedRun], label: Label, script_bytes: int, reference: str, verdict: Verdict | None
) -> dict[str, Any]:
    """Return the content of submission.json for `runs` with a script of `script_bytes`.

    `val_loss` and `val_bpb` are means of the final score over the seeds, `_std` are sample standard deviations, and
    `bytes_total` belongs to the largest seed.
    """
    first, n = runs[0], len(runs)
    totals = [run.artifact_bytes + script_bytes for run in runs]
    quant = first.cfg.quant
    values: dict[str, Any] = {
        "author": label.author,
        "github_id": label.github_id,
        "name": label.name,
        "blurb": label.blurb,
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "track": label.track,
        "val_loss": round(mean(runs, lambda r: r.score.val_loss), 8),
        "val_bpb": round(mean(runs, lambda r: r.score.val_bpb), 8),
        "val_loss_std": _rounded(sample_sd(runs, lambda r: r.score.val_loss)),
        "val_bpb_std": _rounded(sample_sd(runs, lambda r: r.score.val_bpb)),
        "score": first.score.how,
        "seeds": [run.result.seed for run in runs],
        "seed_results": {str(run.result.seed): _seed(run, script_bytes) for run in runs},
        "pre_quant_val_loss": _mean_of(runs, "val_loss"),
        "pre_quant_val_bpb": _mean_of(runs, "val_bpb"),
        "bytes_total": max(totals),
        "bytes_code": script_bytes,
        # The challenge's own baseline has number format and codec in this key, too.
        f"bytes_model_{quant.tag}_{quant.codec}": max(totals) - script_bytes,
        "artifact_bytes_mean": round(sum(totals) / n),
        "artifact_bytes_max": max(totals),
        "train_steps_mean": round(mean(runs, lambda r: r.result.steps), 2),
        "step_avg_ms_mean": round(mean(runs, lambda r: r.result.step_ms or 0.0), 2),
        # Every seed has to keep the budget, so the slowest one is given.
        "wallclock_seconds": round(max(run.result.train_seconds for run in runs), 3),
        "eval_time_seconds": round(max(run.result.eval_seconds or 0.0 for run in runs), 3),
        "model_params": first.result.model_params,
        "hardware": first.hardware,
        "pytorch_version": first.environment["packages"].get("torch"),
        "cuda_version": first.environment.get("cuda"),
        "attention": first.result.attention,
        "codec": first.result.codec,
        "data": first.result.data_name,
        "data_fingerprint": first.result.data_fingerprint,
        "technique_summary": ", ".join([counted(first.cfg.model.num_layers, "layer"), *first.cfg.tech, quant.name]),
    }
    return {**{k: v for k, v in values.items() if v is not None}, **_comparison(reference, verdict)}


def _seed(run: SubmittedRun, script_bytes: int) -> dict[str, Any]:
    return {
        "val_loss": round(run.score.val_loss, 8),
        "val_bpb": round(run.score.val_bpb, 8),
        "artifact_bytes": run.artifact_bytes + script_bytes,
        "steps": run.result.steps,
        "step_avg_ms": round(run.result.step_ms or 0.0, 2),
        "train_time_s": round(run.result.train_seconds, 3),
        "eval_time_s": round(run.result.eval_seconds or 0.0, 3),
    }


def _comparison(reference: str, verdict: Verdict | None) -> dict[str, Any]:
    """Return the keys of the comparison with the reference; none without a verdict."""
    if verdict is None:
        return {}
    values = {
        "comparison": reference,
        "verdict": verdict.kind,
        "delta_bpb": _rounded(verdict.difference_bpb),
        "delta_nats": _rounded(verdict.difference_nats),
        "p_value": _rounded(verdict.p),
        "test": verdict.comparison.test if verdict.comparison else None,
    }
    return {key: value for key, value in values.items() if value is not None}


def _mean_of(runs: Sequence[SubmittedRun], name: str) -> float | None:
    """Return the mean of a score before quantization; None unless all runs have it."""
    # Logs print four digits. Auditors recompute the mean from the logs, so it is taken of the printed numbers.
    known = [round(getattr(score, name), 4) for run in runs if (score := run.result.pre_quant) is not None]
    return round(sum(known) / len(known), 8) if len(known) == len(runs) else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 8)
