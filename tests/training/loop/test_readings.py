"""Numbers that an idea logs of itself: in metrics, curves, board and tracker, and in no exported script."""

import json
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from golf.errors import GolfError
from golf.lab.corpora.own_text import OwnDataset
from golf.lab.report.board_curves import MetricsTail
from golf.lab.track.keys import history_row
from golf.run.curves import draw_curves
from golf.run.folder import RunFolder
from golf.run.result import Result
from golf.training.loop.readings import readings_of
from golf.training.model.build import build_model
from golf.training.model.gpt import GPT
from tests.support import compose, golf_main, tiny_overrides

IDEA = '''
from dataclasses import dataclass

import torch

from golf.training.techniques.base import Technique, technique


def louder(attn, v, context):
    return 1.5 * v


@technique("telling")
@dataclass
class Telling(Technique):
    """Scales the values of the first layer and tells numbers."""

    source = "nobody"

    def edit_model(self, model, cfg):
        model.register_buffer("told", torch.zeros(1))
        model.blocks[0].attn.value_hooks["mix"].append(louder)

    def before_step(self, model, progress):
        model.told.fill_(progress.step)

    def readings(self, model):
        return {"step": model.told.mean(), "gain": model.blocks[0].mlp_scale.mean()}
'''


@pytest.fixture
def ideas(tmp_path: Path) -> Path:
    (tmp_path / "ideas" / "telling").mkdir(parents=True)
    (tmp_path / "ideas" / "telling" / "telling.py").write_text(IDEA)
    return tmp_path / "ideas"


@pytest.mark.usefixtures("forgotten")
def test_readings_of_a_run_are_in_metrics_curves_board_and_tracker(ideas: Path, tiny: OwnDataset, runs: Path) -> None:
    small = [*tiny_overrides(tiny), "tech=[telling]", f"ideas={ideas}", "launch.train_log_every=2"]
    done = golf_main(*small)
    assert done.returncode == 0, done
    (folder,) = (RunFolder(path) for path in runs.glob("*/seed*"))
    train = [json.loads(line) for line in folder.metrics.read_text().splitlines() if '"train"' in line]
    told = [event["readings"] for event in train if event["event"] == "train"]
    assert len(told) > 3 and [one["telling/step"] for one in told] == [e["step"] - 1 for e in train]
    assert {tuple(one) for one in told} == {("telling/step", "telling/gain")}
    row = history_row(train[-1])
    assert row["readings/telling/step"] == told[-1]["telling/step"] and "train/readings" not in row
    points = MetricsTail(folder.path).since(0, {})["points"]["train"]
    assert [point[6] for point in points] == told
    before = folder.curves.stat().st_size
    draw_curves(folder, Result("x", "0" * 8, 1))
    assert folder.curves.stat().st_size > 0.5 * before


def test_a_reading_that_is_no_number_is_named() -> None:
    cfg = compose(["model.model_dim=32", "model.num_heads=2", "model.num_kv_heads=1", "tech=[xsa]"])
    technique = type(cfg.tech["xsa"])
    model = build_model(cfg)
    assert readings_of(cfg, model)() == {}
    for wrong in (torch.zeros(2), "word", None):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(technique, "readings", lambda self, model, wrong=wrong: {"decay": wrong})
            with pytest.raises(GolfError, match="The reading xsa: decay is no single number"):
                readings_of(cfg, model)()


def test_keys_are_edited_before_norm_and_rotary_and_within_documents() -> None:
    shape = ["model.model_dim=32", "model.num_heads=2", "model.num_kv_heads=1", "model.num_layers=2"]
    shape += ["model.compute_dtype=fp32", "optim.muon_dtype=fp32"]
    within = ["model.within_documents=true", "eval.documents=true", "data.train_seq_len=16"]
    torch.manual_seed(0)
    model: GPT = build_model(compose([*shape, *within]))
    tokens = torch.randint(2, 300, (2, 16))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.3)
        before = model(tokens, tokens)
        attn: Any = cast(Any, model.blocks[0]).attn
        # Keys have unit RMS, so a scale of all changes nothing, and a sign that of every score.
        attn.key_hooks["mix"].append(lambda attn, k, context: k * 3.0)
        assert torch.allclose(model(tokens, tokens), before, atol=1e-4)
        attn.key_hooks["add"].append(lambda attn, k, context: -k)
        flipped = model(tokens, tokens)
        attn.key_hooks = {"add": [], "mix": []}
        attn.c_k.weight.neg_()
        assert not torch.allclose(flipped, before, atol=1e-3)
        assert torch.allclose(flipped, model(tokens, tokens), atol=1e-4)
