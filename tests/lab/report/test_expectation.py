"""`golf expect`: a run beside the losses of a public record or of one's own seeds."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from pathlib import Path

import pytest

from golf.bits import Score
from golf.commands import cli
from golf.errors import GolfError
from golf.files import write_json
from golf.lab.cluster.status import find_record, sweep_status
from golf.lab.corpora.own_text import OwnDataset
from golf.lab.report.board_curves import TRAIN, VALIDATION
from golf.lab.report.expectation import AGREES, WORDS, expectations, judged, public_spread, text_of
from golf.lab.report.findings import judged as judged_study
from golf.lab.report.record_curves import record_curves, shared_steps
from golf.lab.report.remarks import remarks_on
from golf.lab.report.study import read_study
from golf.run.folder import RunFolder, create_run_folder
from golf.run.locks import lock_file
from golf.run.result import to_json
from golf.run.runlog import RunLog
from golf.settings.config import Config, RulesConfig
from tests.lab.report.runs import finished, write_sweep
from tests.support import ROOT, compose, golf_main, tiny_overrides

RECORD = "2026-03-20_int6_mlp3x_swa"
CURVES = sorted(record_curves().items())
SEEDS = record_curves()[RECORD]
RATIO = SEEDS[0].bpb_per_nat or 0.0


def begun(cfg: Config, losses: dict[int, float], pace: float = 0.0813, kind: str = VALIDATION) -> RunFolder:
    """Write a run that has logged `losses` by step and goes on, `pace` seconds a step."""
    folder = create_run_folder(cfg, [])
    log = RunLog(folder, cfg, is_first=True)
    for step, loss in losses.items():
        if kind == VALIDATION:
            log.validation(step, pace * step, Score(loss, loss * RATIO, 1, 1, 1.0))
        else:
            log.train_step(step, pace * step, loss, 1.0)
    log.close()
    return folder


def told(capsys: pytest.CaptureFixture[str], *words: object) -> list[dict[str, object]]:
    capsys.readouterr()
    cli.main(["expect", *map(str, words), "--json"])
    return list(json.loads(capsys.readouterr().out))


def record_cfg(*overrides: str) -> Config:
    return compose([f"experiment=records/{RECORD}", "scale=record", *overrides])


def held_out(kind: str, last: int) -> list[int]:
    """Return how many right runs differ, and of how many, and the same of wrong ones and of those of the next record.

    Right is each public seed, beside the others of its record; wrong is each of another record that reads the same.
    """
    counts: Counter[str] = Counter()
    texts = {name: (text_of(kind, of_record(name)), round(seeds[0].bpb_per_nat or 0, 3)) for name, seeds in CURVES}
    for name, seeds in CURVES:
        spread = public_spread(kind, last, without=name)
        assert spread is not None
        tries = [("right", run, [s for s in seeds if s is not run]) for run in seeds if len(seeds) > 1]
        for place, other in enumerate(other for other, _ in CURVES if other > name and texts[other] == texts[name]):
            runs = record_curves()[other]
            tries += [(what, run, seeds) for run in runs for what in ("wrong", "next")[: 1 if place else 2]]
        for what, run, reference in tries:
            if (steps := shared_steps([run, *reference], kind, last)) and 2 * steps[-1] > last:
                counts[what] += 1
                counts[f"{what} marked"] += judged(kind, steps, run, reference, spread)["verdict"] != AGREES
    return [counts[word] for what in ("right", "wrong", "next") for word in (f"{what} marked", what)]


def of_record(name: str) -> Config:
    return compose([f"experiment=records/{name}", "scale=record"])


@pytest.mark.slow
def test_of_held_out_seeds_of_public_records_few_are_marked() -> None:
    """The spread is that of all other records."""
    page = (ROOT / "docs/small_runs.md").read_text()
    for kind, last in ((TRAIN, 600), (TRAIN, 1000), (VALIDATION, 1000), (VALIDATION, 4000)):
        found = held_out(kind, last)
        spread = public_spread(kind, last)
        assert spread is not None
        within = judged(kind, [1000], SEEDS[0], SEEDS, spread)["within_nats"]
        told = f"| {WORDS[kind]}, up to step {last:,} | {within:.4f} |"
        assert told + " {} of {} | {} of {} | {} of {} |".format(*found) in page
        assert found[0] <= 0.08 * found[1]


def test_a_run_of_a_record_agrees_and_another_differs(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    losses = SEEDS[0].losses[VALIDATION]
    right = begun(record_cfg("seed=5"), {step: loss + 0.0008 for step, loss in losses.items()})
    wrong = begun(record_cfg("seed=6"), {step: loss + 0.0080 for step, loss in losses.items()})
    one, other = told(capsys, right.path, RECORD)[0], told(capsys, wrong.path, RECORD)[0]
    assert (one["verdict"], other["verdict"]) == ("agrees", "differs")
    assert one["steps"] == [2000, 4000] and one["seeds"] == 3 and 0.002 < float(str(one["within_nats"])) < 0.005
    assert cli.main(["expect", str(wrong.path), RECORD]) == 1
    assert "differs from 2026-03-20_int6_mlp3x_swa: validation at 2 steps from 2,000 to 4,000 is +0.00" in (
        capsys.readouterr().out
    )


def test_what_is_read_otherwise_is_not_compared(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    training = SEEDS[0].losses[TRAIN]
    cases = {
        "data.train_batch_tokens is 393216 and there 786432": (["data.train_batch_tokens=393216"], training),
        "ranks is 4 and there 8": (["scale=two_cards", "launch.nproc=4"], training),
        "the reference has it at 500, 600, 800, 1,000, the run is at 90": ([], {90: 3.0}),
    }
    for said, (overrides, losses) in cases.items():
        folder = begun(record_cfg(*overrides), losses, kind=TRAIN)
        (found,) = told(capsys, folder.path, RECORD)
        assert found["verdict"] == "cannot_compare" and said in str(found["reason"]), found
    with pytest.raises(GolfError, match="2026-03-17_lora_ttt, which trains as the naive baseline"):
        expectations(folder.path, "2026-03-17_naive_baseline")
    same = begun(record_cfg("seed=8"), training, kind=TRAIN)
    assert told(capsys, same.path, RECORD)[0]["losses"] == "training loss"


def test_a_run_of_another_pace_is_not_compared_in_its_warmdown(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    slow = begun(record_cfg(), {4000: 2.05}, pace=0.11)
    (found,) = told(capsys, slow.path, "2026-04-05_sp8192_sdclip_loop45x2")
    assert "vocab_size is 1024 and there 8192" in str(found["reason"])
    late = begun(compose(["experiment=records/2026-04-05_sp8192_sdclip_loop45x2", "scale=record"]), {4000: 2.9}, 0.14)
    metrics = late.metrics.read_text().replace(f'"val_bpb": {2.9 * RATIO}', f'"val_bpb": {2.9 * 0.38713}')
    late.metrics.write_text(metrics)
    (found,) = told(capsys, late.path, "2026-04-05_sp8192_sdclip_loop45x2")
    assert "pace is another, so that rates differ at step 4,000" in str(found["reason"])


def test_own_seeds_are_a_reference_once_there_are_two(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def of(matrix_lr: float, seed: int) -> Config:
        overrides = [f"optim.matrix_lr={matrix_lr}", f"seed={seed}", "budget.train_seconds=0"]
        return compose(["scale=laptop", "model=4l", *overrides, "schedule.iterations=200"])

    new = begun(of(0.03, 9), {25: 5.0, 100: 3.004, 150: 2.95})
    for seed, loss in enumerate((3.010, 3.000, 3.005), start=1):
        folder = begun(of(0.04, seed), {50: 4.0 + seed, 100: loss, 200: loss - 0.1})
        write_json(folder.result, to_json(finished(of(0.04, seed), 1.2, seed)))
        if seed == 1:
            assert "train two more" in str(told(capsys, new.path, folder.path.parent)[0]["reason"])
    (found,) = told(capsys, new.path, folder.path.parent)
    # t of 2 degrees of freedom at 95 % is 4.303.
    assert found["within_nats"] == pytest.approx(4.3027 * 0.005 * (4 / 3) ** 0.5, rel=1e-3)
    assert (found["verdict"], found["steps"]) == ("agrees", [100])


def test_a_run_that_names_what_it_should_be_is_watched(runs: Path) -> None:
    losses = {step: loss for step, loss in SEEDS[0].losses[VALIDATION].items() if step <= 1000}
    expects = f"expect={RECORD}"
    cases = [
        ([expects], 0.0011),
        ([expects], 0.05),
        ([expects, "eval.seq_len=512"], 0.0),
        (["expect=none_such"], 0.0),
        ([], 0.0),
    ]
    asked = []
    with contextlib.ExitStack() as at_work:
        for seed, (overrides, far) in enumerate(cases, start=1):
            cfg = record_cfg(f"seed={seed}", *overrides)
            folder = begun(cfg, {step: loss + far for step, loss in losses.items()})
            lock = lock_file(folder.lock)
            assert lock
            at_work.enter_context(lock)
            asked.append(([f"seed={seed}"], cfg, seed))
        write_sweep(runs, "watched", asked)
        said = {line.seed: line.detail for line in sweep_status(find_record("watched")) if line.state == "running"}
        notes = remarks_on(judged_study(read_study(["watched"]), RulesConfig()))
    assert f"nats from {RECORD}, right runs are within 0.00" in said[1] and "differs" not in said[1]
    assert "step 1,000: +0.05" in said[2] and said[2].endswith(": something differs")
    assert "none_such is no folder of runs and no record whose losses are known" in said[4]
    assert said[3].startswith("step 1000") and RECORD not in said[3] + said[5], "losses of another text"
    assert sum(RECORD in note and "goes on: step 1,000" in note for note in notes) == 2


@pytest.mark.slow
def test_a_run_says_in_its_log_how_far_it_is_from_what_it_should_be(tiny: OwnDataset, runs: Path) -> None:
    """Behind each validation, and another rate is noticed."""
    common = [*tiny_overrides(tiny), "eval.val_loss_every=2"]
    for seed in (1, 2, 3):
        assert golf_main(*common, f"seed={seed}").returncode == 0
    (variant,) = runs.glob("*-*")
    for other in ([], ["optim.tied_embed_lr=4"]):
        done = golf_main(*common, *other, f"expect={variant}", "seed=4")
        assert done.returncode == 0, done.stderr
        (log,) = (path for path in runs.glob("*/seed4/train.log") if (path.parents[1] == variant) != bool(other))
        lines = [line.partition(": ")[2] for line in log.read_text().splitlines() if line.startswith("expect: ")]
        # The validation before the first step has nothing to compare.
        assert [line.partition(":")[0] for line in lines] == ["step 2", "step 4", "step 6"]
        assert all(f"nats from {variant.name}, right runs are within" in line for line in lines)
        assert ("something differs" in lines[-1]) == bool(other)
