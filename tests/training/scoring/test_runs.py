"""Runs from the command line that score their artifact in more than the standard way."""

import re
from pathlib import Path

import pytest
import torch

import golf
from golf.bits import STANDARD
from golf.lab.corpora.own_text import OwnDataset
from golf.run.result import Result, read_result
from golf.settings.config import Config
from golf.training.loop.budget import budget_state, counted_eval_seconds
from golf.training.model.build import build_model
from golf.training.ranks import Ranks
from golf.training.scoring.scorer import Scorer
from tests.support import compose, golf_main, metrics, on_ranks, only_run, tiny_overrides

EXTRA = {
    "sliding": ["eval=sliding64", "eval.stride=8"],
    "sgd": ["eval=ttt_sgd", "eval.stride=8", "eval.ttt.chunk_tokens=256", "eval.ttt.batch_seqs=4"],
    "sgd without overlap": ["eval=ttt_sgd", "eval.stride=0", "eval.ttt.chunk_tokens=256"],
    "lora": ["eval=ttt_lora", "eval.ttt.batch_seqs=4"],
}
SCORES = r"val_loss:\d\.\d{4} val_bpb:\d\.\d{4}"
EXACT = r"val_loss:\d\.\d{8} val_bpb:\d\.\d{8}"
SLIDING_LINES = [
    rf"final_int8_zlib_sliding_window {SCORES} stride:8 eval_time:\d+ms",
    rf"final_int8_zlib_sliding_window_exact {EXACT}",
]
TTT_LINES = [rf"legal_ttt {SCORES} eval_time:\d+ms", rf"legal_ttt_exact {EXACT}"]
SGD_LINES = [
    r"ttt_sliding:start chunks=\d+ chunk_tokens=256 total_windows=\d+ stride=\d+ ttt_lr=0\.002 ttt_epochs=1 "
    r"freeze_blocks=0",
    r"  ttt_chunk \[1/\d+\] bpb=\d\.\d{6} time=\d+\.\ds",
    r"ttt_sliding:done val_loss=\d\.\d{6} val_bpb=\d\.\d{6} elapsed=\d+\.\ds",
    *TTT_LINES,
]
LORA_LINES = [
    r"ttt_lora:start batches=\d+ documents=\d+ chunk_tokens=8 ttt_lr=0\.01 rank=8",
    r"  ttt_chunk \[1/\d+\] bpb=\d\.\d{6} time=\d+\.\ds",
    r"ttt_lora:done val_loss=\d\.\d{6} val_bpb=\d\.\d{6} elapsed=\d+\.\ds",
    *TTT_LINES,
]
LINES = {
    "sliding": SLIDING_LINES,
    "sgd": SLIDING_LINES + SGD_LINES,
    "sgd without overlap": SGD_LINES,
    "lora": LORA_LINES,
}


@pytest.mark.slow
@pytest.mark.parametrize("how", [how for how in EXTRA if how != "sgd"])
def test_a_run_scores_its_artifact_as_asked(how: str, tiny: OwnDataset, runs: Path) -> None:
    run_and_check_scores(how, tiny, runs)


def run_and_check_scores(how: str, tiny: OwnDataset, runs: Path) -> Result:
    """Run with the scores of `how`, check what the command, the log and the metrics say of them; return the result."""
    done = golf_main(*tiny_overrides(tiny), *EXTRA[how])
    assert done.returncode == 0, done.stderr
    folder = only_run(runs)
    result = read_result(folder / "result.json")
    assert result.pre_quant and result.post_quant and result.final_score and result.eval_seconds
    assert result.pre_quant.how == result.post_quant.how == STANDARD
    assert result.quant_gap_bpb == result.post_quant.val_bpb - result.pre_quant.val_bpb
    assert (result.post_quant_sliding is not None) == (how in ("sliding", "sgd"))
    assert (result.post_quant_ttt is not None) == (how != "sliding")
    assert len({(s.tokens, s.bytes) for s in result.artifact_scores}) == 1
    assert result.eval_seconds == pytest.approx(sum(s.seconds for s in result.artifact_scores))
    for score in result.artifact_scores[1:]:
        assert score.how != STANDARD and score.how in done.stdout
        assert f"{score.val_bpb:.4f} bits per byte" in done.stdout
    log = (folder / "train.log").read_text().splitlines()
    for pattern in LINES[how]:
        assert [line for line in log if re.fullmatch(pattern, line)], pattern
    (event,) = metrics(folder, "post_quant_sliding" if how == "sliding" else "post_quant_ttt")
    assert (event["val_bpb"], event["how"]) == (result.final_score.val_bpb, result.final_score.how)
    return result


def test_sliding_score_is_that_of_the_file_on_disk(tiny: OwnDataset, runs: Path) -> None:
    """Also after other scores of the same run, and with test-time training that starts from the same weights."""
    result = run_and_check_scores("sgd", tiny, runs)
    cfg = golf.compose([*tiny_overrides(tiny), *EXTRA["sgd"]])
    weights = golf.load(only_run(runs) / "artifact.golf").state_dict()
    scorer = Scorer(cfg, golf.open_dataset(cfg), Ranks())
    trained = scorer.test_time_trained(weights)
    sliding, standard = scorer.sliding(scorer.model.state_dict()), scorer(scorer.model.state_dict())
    for found, written in zip((standard, sliding, trained), result.artifact_scores, strict=True):
        assert found.val_bpb == pytest.approx(written.val_bpb, rel=1e-6)
    assert trained.val_bpb != sliding.val_bpb


def scores(rank: int, world_size: int, cfgs: list[Config]) -> list[tuple[float, int, int, str]]:
    found = []
    for cfg in cfgs:
        torch.manual_seed(0)
        weights = build_model(cfg).state_dict()
        scorer = Scorer(cfg, golf.open_dataset(cfg), Ranks(rank, world_size))
        found += [scorer(weights), scorer.test_time_trained(weights)]
        if cfg.eval.stride:
            found.append(scorer.sliding(weights))
    return [(score.val_bpb, score.tokens, score.bytes, score.how) for score in found]


@pytest.mark.slow
def test_two_ranks_score_as_one(tiny: OwnDataset, tmp_path: Path) -> None:
    cfgs = [compose([*tiny_overrides(tiny), *EXTRA[how]]) for how in ("sgd", "lora")]
    one = scores(0, 1, cfgs)
    assert len(one) == 5
    for two in on_ranks(2, tmp_path, scores, cfgs):
        for (first, *counts), (second, *same) in zip(one, two, strict=True):
            assert first == pytest.approx(second, rel=1e-5) and counts == same


@pytest.mark.slow
def test_all_scores_count_against_the_evaluation_budget(tiny: OwnDataset, runs: Path) -> None:
    done = golf_main(*tiny_overrides(tiny), *EXTRA["sliding"], "budget.eval_seconds=0.0001")
    assert done.returncode == 1
    result = read_result(only_run(runs) / "result.json")
    assert result.state == "over_time" and "scoring took" in result.reason
    # By the rules of records, unpacking and compiling count, too.
    cfg = compose(["scale=laptop", "rules=strict"])
    assert counted_eval_seconds(cfg, result, 1000.0) == 1000.0 > counted_eval_seconds(compose(), result, 1000.0) > 0
    result.eval_seconds = 1000.0
    assert budget_state(cfg, result)[1].startswith("scoring with unpacking and compiling took 1000.0 s")


@pytest.mark.slow
def test_a_sweep_compares_scores_of_one_kind(tiny: OwnDataset, runs: Path) -> None:
    # In this process a run takes a second. The sweep then finds both.
    for stride in (0, 8):
        assert golf_main(*tiny_overrides(tiny), f"eval.stride={stride}").returncode == 0
    done = golf_main("-m", *tiny_overrides(tiny), "eval.stride=0,8")
    assert done.returncode == 0 and "2 finished before" in done.stdout, done.stderr
    assert "taken in 2 ways: compared is the standard one" in " ".join(done.stdout.split())
