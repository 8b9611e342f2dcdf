"""What a submission.json claims, against the logs beside it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from golf.foreign.figures import Figure, mean_of
from golf.foreign.foreign_run import ForeignRun
from golf.foreign.submission_json import Claims

SAME_PACE = 0.003  # relative difference of times that counting the last step or not explains
SMALLEST_BYTES = 1_000_000  # that anybody meant as the size of a submission


def claims_of_seeds(runs: Sequence[ForeignRun], submission: Claims) -> list[str]:
    faults = []
    for seed, claimed in submission.per_seed.items():
        logs = [run for run in runs if run.count("seed") == seed and run.has_score]
        if len(logs) != 1:
            some = f"no log of seed {seed}" if not logs else ""
            faults += [f"{submission.name} gives seed {seed}, there is {some}"] * bool(some and runs)
            continue
        for name, figure in claimed.items():
            found = _candidates(logs[0], name)
            slack = SAME_PACE if name in ("step_ms", "eval_seconds", "train_seconds") else 0.0
            if found and not any(
                figure.agrees_with(f) or abs(figure.value - f.value) <= slack * f.value for f in found
            ):
                faults.append(f"{figure.source} is {_written(figure)}, the log says {_number(name, found[0].value)}")
    return faults


def _candidates(run: ForeignRun, name: str) -> list[Figure]:
    """What a log gives for a claim. A score may be any of the run's, "artifact bytes" the model's or all."""
    named = [run.figures[name]] if name in run.figures else []
    if name == "val_bpb":
        return [*named, *(Figure(s.val_bpb, "", s.bpb_text) for s in run.scores)]
    if name == "val_loss":
        return [*named, *(Figure(s.val_loss, "", s.loss_text) for s in run.scores if s.val_loss is not None)]
    if name == "total_bytes":
        return [run.figures[key] for key in ("total_bytes", "artifact_bytes") if key in run.figures]
    if name == "eval_seconds":
        total = [run.figures["total_eval_seconds"]] if "total_eval_seconds" in run.figures else []
        return [*total, *(Figure(s.seconds, "") for s in run.scores if s.seconds is not None), *named]
    if name == "step_ms":
        steps, seconds = run.value("steps"), run.value("train_seconds")
        return [*named, *([Figure(seconds * 1000 / steps, "")] if steps and seconds else [])]
    key = {"model_bytes": "artifact_bytes"}.get(name, name)
    return [run.figures[key]] if key in run.figures else []


def claims_of_the_whole(runs: Sequence[ForeignRun], submission: Claims) -> list[str]:
    scored = [run for run in runs if run.has_score]
    if not scored:
        return []
    faults = [*_score_claim(scored, submission), *_spread_claim(scored, submission)]
    if total := submission.figures.get("total_bytes"):
        known = [v for run in scored if (v := run.value("total_bytes")) is not None]
        if known and total.value < max(known) - total.unit_in_last_place and total.value > SMALLEST_BYTES:
            short = max(known) - total.value
            faults.append(
                f"{total.source} {total.value:,.0f} is {short:,.0f} below the largest run's {max(known):,.0f}"
            )
        elif known and total.value <= SMALLEST_BYTES < min(known):
            faults.append(
                f"{total.source} {total.value:,.0f} is not a submission's size, the logs say {max(known):,.0f}"
            )
    for name in ("code_bytes", "model_bytes", "pre_quant_bpb", "steps"):
        if claimed := submission.figures.get(name):
            found = [figure for run in scored for figure in _candidates(run, name)]
            values = [figure.value for figure in found]
            if found and not _is_one_or_mean(claimed, found):
                faults.append(f"{claimed.source} is {_written(claimed)}, the logs say {_numbers(name, values)}")
    return faults


def _score_claim(scored: Sequence[ForeignRun], submission: Claims) -> list[str]:
    """A submission's score is the mean of its seeds; often it is the best of them, or no log's at all."""
    claimed = submission.figures.get("val_bpb")
    if claimed is None:
        return []
    groups: dict[str, list[ForeignRun]] = {}
    for run in scored:
        groups.setdefault(run.variant, []).append(run)
    all_scores = [f for run in scored for f in _candidates(run, "val_bpb") if math.isfinite(f.value)]
    for group in groups.values():
        finals = [v for run in group if (v := run.value("val_bpb")) is not None]
        if claimed.agrees_with(mean_of([run.figures["val_bpb"] for run in group])) or _means_of_a_kind(claimed, group):
            return []
        if len(finals) > 1 and (same := [r for r in group if claimed.agrees_with(r.figures["val_bpb"])]):
            best = ", the best" if same[0].value("val_bpb") == min(finals) else ""
            mean = f"the mean of {len(finals)} runs is {statistics.fmean(finals):.6f}"
            return [f"{claimed.source} {_written(claimed)} is one run's{best} ({same[0].name}): {mean}"]
    if any(claimed.agrees_with(f) for f in all_scores):
        return []
    finals = [v for run in scored if (v := run.value("val_bpb")) is not None]
    return [f"{claimed.source} {_written(claimed)} is in no log: they say {_numbers('val_bpb', finals)}"]


def _means_of_a_kind(claimed: Figure, group: Sequence[ForeignRun]) -> bool:
    for name in ("post_quant_bpb", "sliding_bpb", "ttt_bpb"):
        figures = [run.figures[name] for run in group if name in run.figures]
        if figures and claimed.agrees_with(mean_of(figures)):
            return True
    return False


def _spread_claim(scored: Sequence[ForeignRun], submission: Claims) -> list[str]:
    """Seeds are a sample: their spread has n - 1 in it, which makes three seeds 22 % wider."""
    claimed = submission.figures.get("val_bpb_std")
    finals = [v for run in scored if (v := run.value("val_bpb")) is not None and math.isfinite(v)]
    if claimed is None or len(finals) < 2 or len({run.variant for run in scored}) > 1:
        return []
    sample, population = statistics.stdev(finals), statistics.pstdev(finals)
    if claimed.agrees_with(sample) or not claimed.agrees_with(population):
        return []
    return [
        f"{claimed.source} {_written(claimed)} is the population's ({len(finals)} in it), the sample's is {sample:.5f}"
    ]


def _is_one_or_mean(claimed: Figure, found: Sequence[Figure]) -> bool:
    return any(claimed.agrees_with(f) for f in [*found, mean_of(found)])


def _written(figure: Figure) -> str:
    return (
        f"{figure.value:,}"
        if isinstance(figure.value, int) and figure.value > 9999
        else figure.text or f"{figure.value:g}"
    )


def _number(name: str, value: float) -> str:
    return f"{value:.6f}" if name.endswith(("bpb", "loss")) else f"{value:,.10g}"


def _numbers(name: str, values: Sequence[float]) -> str:
    return shown([_number(name, v) for v in dict.fromkeys(values)])


def shown(items: Sequence[object]) -> str:
    """The first few, and how many more there are."""
    listed = ", ".join(str(item) for item in items[:4])
    return listed + (f" and {len(items) - 4} more" if len(items) > 4 else "")
