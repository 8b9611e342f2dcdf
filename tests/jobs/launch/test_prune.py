"""Runs that are behind the reference halfway end there, only within one schedule, and never count as better."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from golf.errors import GolfError
from golf.jobs.launch import prune
from golf.jobs.launch.launcher import run_ranks
from golf.jobs.launch.prune import PruneRule, why_prune
from golf.jobs.sweep.jobs import Job
from golf.jobs.sweep.record import make_record, with_prune_rules
from golf.report.rows import RunRow
from golf.report.sequential import FUTILE, SequentialPlan, judge_sequentially
from golf.report.verdicts import NO_VERDICT, WORSE, judge
from golf.run.folder import RunFolder, create_run_folder, finished_run
from golf.run.identity import variant_id
from golf.run.result import PRUNED, read_result
from golf.settings.composition import compose
from golf.settings.config import Config, RulesConfig, ScheduleConfig
from golf.settings.jobs_config import SweepConfig
from golf.settings.scoring_config import EvalConfig
from golf.training.data.own_text import OwnDataset
from tests.report.runs import variant, with_lr, write_run
from tests.support import tiny_overrides


def validated(folder: Path, *points: tuple[int, float]) -> RunFolder:
    """Write validations at seconds of a ten-minute clock."""
    lines = [
        {"event": "validation", "step": 10 * seconds, "train_seconds": float(seconds), "val_bpb": bpb}
        for seconds, bpb in points
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return RunFolder(folder)


def asked(runs: Path, bpb: float, **changes: object) -> tuple[PruneRule, RunFolder, Config]:
    """Return the rule, the folder and the configuration of a run with this validation at 330 of 600 seconds."""
    cfg = with_lr(0.02, **changes)
    rule = PruneRule(variant_id(with_lr(0.04)), 0.002, 0.5)
    return rule, validated(write_run(runs, cfg, None), (330, bpb)), cfg


def test_a_run_is_compared_with_the_reference_at_its_share_of_the_budget(runs: Path) -> None:
    for seed, shift in ((1, 0.0), (2, 0.002)):
        validated(write_run(runs, with_lr(0.04), 1.2, seed), (200, 1.30 + shift), (400, 1.28 + shift), (600, 1.2))
    # Linear in the logarithm: ln(330/200) / ln(400/200) = 0.7225 of the way from 1.301 to 1.281.
    rule, folder, cfg = asked(runs, 1.2866 + 0.0021)
    assert why_prune(rule, folder, cfg) == "0.0021 bpb behind the reference at 55% of the budget"
    assert why_prune(rule, validated(folder.path, (330, 1.2866 + 0.0019)), cfg) == ""
    assert why_prune(rule, validated(folder.path, (270, 1.5)), cfg) is None
    assert why_prune(rule, validated(folder.path, (270, 1.5), (430, 1.5)), cfg) == "", "too late to save much"


def test_another_schedule_is_never_compared(runs: Path) -> None:
    validated(write_run(runs, with_lr(0.04), 1.2), (200, 1.30), (400, 1.28))
    assert why_prune(*asked(runs, 1.5)) != ""
    assert why_prune(*asked(runs, 1.5, schedule=ScheduleConfig(warmdown_iters=900))) == ""


def test_a_failed_run_of_the_reference_is_no_reference(runs: Path) -> None:
    validated(write_run(runs, with_lr(0.04), 1.2, state="diverged"), (200, 1.30), (400, 1.28))
    assert why_prune(*asked(runs, 1.5)) == ""


def test_pruned_variants_are_named_and_never_better() -> None:
    reference = variant("reference", [1.2286, 1.2279, 1.2291])
    why = "0.0031 bpb behind the reference at 50% of the budget"

    def with_pruned(scores: list[float]) -> object:
        lucky = variant("a", scores)
        return replace(lucky, rows=(*lucky.rows, RunRow("a", "a", 9, PRUNED, why)))

    better = judge([with_pruned([1.1, 1.1001])], reference, RulesConfig())["a"]  # type: ignore[list-item]
    assert better.kind == NO_VERDICT and better.reason == f"1 of 3 runs pruned (seed 9: {why})"
    assert judge([with_pruned([1.3, 1.3001])], reference, RulesConfig())["a"].kind == WORSE  # type: ignore[list-item]
    assert judge([with_pruned([])], reference, RulesConfig())["a"].reason == f"1 of 1 run pruned (seed 9: {why})"  # type: ignore[list-item]
    # In rounds it leaves as futile, however good its other seeds are.
    rows = (*variant("a", [1.1, 1.1001]).rows, RunRow("a", "a", 3, PRUNED, why))
    found = judge_sequentially(
        [reference, replace(variant("a", []), rows=rows)],
        reference,
        RulesConfig(),
        SequentialPlan((3, 1, 2), "reference"),
    )
    assert found.verdicts["a"].kind == FUTILE and "seed 3: 0.0031" in found.verdicts["a"].reason and not found.active


def test_pruning_needs_a_reference_and_validations() -> None:
    def job(rate: float, **changes: object) -> Job:
        sweep = SweepConfig(prune=0.002, reference="first")
        return Job.of([f"optim.matrix_lr={rate}"], replace(with_lr(rate), sweep=sweep, **changes))  # type: ignore[arg-type]

    jobs = [job(0.04), job(0.02)]
    record = make_record("x", [], jobs, [], None)
    assert [j.prune and j.prune.reference for j in with_prune_rules(jobs, record)] == [None, jobs[0].key[0]]
    with pytest.raises(GolfError, match=r"add sweep\.reference=first"):
        with_prune_rules(jobs, replace(record, reference=None))
    with pytest.raises(GolfError, match="needs validations"):
        with_prune_rules([jobs[0], job(0.03, eval=EvalConfig(val_loss_every=0))], record)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_run_that_will_not_catch_up_ends(
    ranks: int, tiny: OwnDataset, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prune, "POLL_SECONDS", 0.01)
    asked = [
        *tiny_overrides(tiny),
        f"launch.nproc={ranks}",
        "schedule.iterations=24",
        "eval.val_loss_every=3",
        "eval.val_at_start=false",
    ]
    reference = compose([*asked, "optim.matrix_lr=0.03"])
    curve = [{"event": "validation", "step": step, "val_bpb": 0.5} for step in range(0, 27, 3)]
    path = write_run(runs, reference, 0.5)
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in curve))
    folder = create_run_folder(compose(asked), [])
    PruneRule(variant_id(reference), 0.002, 0.5).write(folder)
    result = run_ranks(folder)
    assert result.state == read_result(folder.result).state == PRUNED
    assert result.reason.endswith("bpb behind the reference at 50% of the budget")
    assert 12 <= result.steps < 24 and result.last_val_step is not None and result.last_val_step >= 12
    assert finished_run(variant_id(compose(asked)), 1337) is not None, "it is not run again"
