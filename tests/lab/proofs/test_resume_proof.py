"""A run that would not resume as it was is found before its clock: each way to forget something is planted here."""

import copy
import re
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import pytest
import torch
from torch import Tensor

from golf.lab.proofs.resume_proof import lost_by_resume
from golf.lab.proofs.run_proofs import failed_proofs
from golf.registry import technique_types
from golf.run.progress import Progress
from golf.settings.config import Config
from golf.training.data.dataset import open_dataset
from golf.training.data.loader import SequentialLoader
from golf.training.loop.checkpoint import Checkpoints
from golf.training.model.gpt import GPT
from golf.training.optim.adam import Adam
from golf.training.optim.muon import MatrixOptimizer
from golf.training.techniques.base import Technique, technique
from ideas.ema.ema import MovingAverage
from ideas.lawa.lawa import LatestMean
from ideas.swa.swa import SnapshotMean
from tests.support import with_techniques

pytestmark = pytest.mark.usefixtures("registry")
DTYPES = ("bf16", "fp32")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("muon", ["sharded", "parallel"])
@pytest.mark.parametrize("average", ["ema", "swa", "lawa"])
def test_sound_runs_resume(tiny_cfg: Config, dtype: str, muon: str, average: str) -> None:
    tiny_cfg.model.compute_dtype, tiny_cfg.optim.muon = dtype, muon
    tiny_cfg.data.loader = {"ema": "shuffled", "swa": "coprime", "lawa": "sequential"}[average]
    tiny_cfg.optim.adam_moment_dtype = {"ema": "parameter", "swa": "fp32", "lawa": "parameter"}[average]
    tiny_cfg.optim.muon_momentum_dtype = "bf16" if average == "swa" else "fp32"
    kinds = technique_types()
    techniques = [kinds[name]() for name in (average, "fused_qkv", "bigram", "recurrence", "fake_quant", "soft_round")]
    assert lost_by_resume(with_techniques(tiny_cfg, *techniques)) == []


def test_the_proof_is_made_where_checkpoints_are(tiny_cfg: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SequentialLoader, "skip", lambda self, batches: None)
    dataset = open_dataset(tiny_cfg)
    tiny_cfg.launch.checkpoint_seconds = 0.0
    assert failed_proofs(tiny_cfg, dataset=dataset) == []
    tiny_cfg.launch.checkpoint_seconds = 1.0
    lost = ["the loader sequential does not go on with the next batch after a resume"]
    assert failed_proofs(tiny_cfg, dataset=dataset) == lost


def forgets_second_moments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make Muon NorMuon (arXiv 2510.05491), by an author who forgets that a run may resume."""
    plain = MatrixOptimizer.update

    def normalized(self: Any, grads: Tensor, momentum: float) -> Tensor:
        update = plain(self, grads, momentum)
        moments = self.__dict__.setdefault("second_moments", {})
        now = update.float().square().mean(2, keepdim=True)
        moments[grads.shape] = moment = moments.get(grads.shape, torch.zeros_like(now)).lerp(now, 0.05)
        return update / moment.sqrt()

    monkeypatch.setattr(MatrixOptimizer, "update", normalized)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("muon", ["sharded", "parallel"])
def test_a_second_moment_outside_of_the_state_dict_is_found(
    tiny_cfg: Config, muon: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    forgets_second_moments(monkeypatch)
    tiny_cfg.optim.muon, tiny_cfg.model.compute_dtype = muon, dtype
    (said,) = lost_by_resume(tiny_cfg)
    assert "step.optimizer.muon.second_moments." in said and "blocks" not in said and "state_dict lacks" in said
    # Without checkpoints it would go from the warm-up into the first timed step.
    assert said in failed_proofs(tiny_cfg) and not tiny_cfg.launch.checkpoint_seconds


def test_state_that_shows_in_the_weights_much_later_is_found(tiny_cfg: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lookahead (arXiv 1907.08610) by such an author: its slow weights meet the fast ones every hundredth step."""
    plain = Adam.step

    def step(self: Any, lr_multiplier: float) -> None:
        plain(self, lr_multiplier)
        if float(self.state["steps"][0]) % 100 == 1:
            self.slow = [p.detach().clone() for p in self.params]

    monkeypatch.setattr(Adam, "step", step)
    (said,) = lost_by_resume(tiny_cfg)
    assert "step.optimizer.adams.0.slow.0" in said


@pytest.mark.parametrize("average", [MovingAverage, SnapshotMean, LatestMean])
def test_a_forgotten_average_is_found(tiny_cfg: Config, average: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(average, "load_state_dict", lambda self, state: None)
    name = {MovingAverage: "ema", SnapshotMean: "swa", LatestMean: "lawa"}[average]
    (said,) = lost_by_resume(with_techniques(tiny_cfg, technique_types()[name]()))
    assert f"hooks.averagers.{name}." in said and "step.model" not in said


def test_an_average_that_fails_at_the_end_fails_before_the_training(
    tiny_cfg: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    def weights(self: MovingAverage) -> dict[str, Tensor]:
        return {"blocks.0.mlp.fc.weight": self.state_dict()["blocks.0.mlp.fcc.weight"]}

    monkeypatch.setattr(MovingAverage, "weights", weights)
    with pytest.raises(KeyError, match="fcc"):
        lost_by_resume(with_techniques(tiny_cfg, technique_types()["ema"]()))


def test_snapshots_late_in_the_run_are_in_the_checkpoint(tiny_cfg: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = SnapshotMean.load_state_dict
    monkeypatch.setattr(SnapshotMean, "load_state_dict", lambda self, state: plain(self, {"updates": state["updates"]}))
    (said,) = lost_by_resume(with_techniques(tiny_cfg, technique_types()["swa"](start=0.01)))
    assert "hooks.averagers.swa.total" in said


@pytest.mark.skipif(version("safetensors") < "0.6", reason="before version 0.6 a file keeps the order of its tensors")
def test_moments_by_position_are_found(tiny_cfg: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint's file keeps another order than the state had: moments in bf16 come after float32 steps."""

    def by_position(self: Adam, state: dict[str, list[Tensor]]) -> None:
        self.state = dict(zip(self.state, copy.deepcopy(list(state.values())), strict=True))

    monkeypatch.setattr(Adam, "load_state_dict", by_position)
    tiny_cfg.model.compute_dtype = "bf16"
    assert lost_by_resume(tiny_cfg) != []


def test_nan_is_no_lost_state(tiny_cfg: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    step = Adam.step

    def to_nan(self: Adam, *arguments: Any) -> None:
        step(self, *arguments)
        for parameter in self.params:
            parameter.data.fill_(torch.nan)

    monkeypatch.setattr(Adam, "step", to_nan)
    assert lost_by_resume(tiny_cfg) == []


def test_forgotten_random_numbers_are_found(tiny_cfg: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Checkpoints._restore

    def restored(self: Checkpoints, shared: dict, own: dict) -> None:
        with torch.random.fork_rng(devices=[]):
            plain(self, shared, own)

    monkeypatch.setattr(Checkpoints, "_restore", restored)
    (said,) = lost_by_resume(tiny_cfg)
    assert said.startswith("random state would be lost by a resume")


def test_a_switch_that_counts_for_itself_is_found(tiny_cfg: Config) -> None:
    @technique("counting")
    @dataclass
    class Counting(Technique):
        source = "planted"
        is_switch = True
        asked: int = 0

        def is_on(self, progress: Progress) -> bool:
            self.asked += 1
            return self.asked > 4

        def before_step(self, model: GPT, progress: Progress) -> None:
            pass

    (said,) = lost_by_resume(with_techniques(tiny_cfg, Counting()))
    assert "switches.selected.0.asked" in said


def test_a_switch_that_a_resume_repeats_is_found(tiny_cfg: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    @technique("doubling")
    @dataclass
    class Doubling(Technique):
        source = "planted"
        is_switch = True

        def is_on(self, progress: Progress) -> bool:
            return progress.fraction > 0.7

        @torch.no_grad()
        def at_switch(self, model: GPT, names: tuple[str, ...]) -> None:
            model.tok_emb.weight.mul_(2.0)

    cfg = with_techniques(tiny_cfg, Doubling())
    assert lost_by_resume(cfg) == []
    monkeypatch.setattr("golf.training.loop.switches.Switches.resume", lambda self, active: None)
    (said,) = lost_by_resume(cfg)
    assert "switches.on" in said or "tok_emb.weight" in said


def test_random_numbers_of_its_own_are_found(tiny_cfg: Config) -> None:
    @technique("drawing")
    @dataclass
    class Drawing(Technique):
        source = "planted"

        def before_step(self, model: GPT, progress: Progress) -> None:
            vars(self).setdefault("generator", torch.Generator().manual_seed(1))
            torch.rand(1, generator=self.generator)  # type: ignore[attr-defined]

    (said,) = lost_by_resume(with_techniques(tiny_cfg, Drawing()))
    assert "selected.0.generator.state" in said


def test_what_fails_on_loading_or_in_a_step_is_one_sentence(tiny_cfg: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("load_state_dict", "step"):
        with monkeypatch.context() as planted:
            planted.setattr(Adam, name, lambda *_: dict[str, int]()["missing"])
            (said,) = lost_by_resume(tiny_cfg)
            assert said == "a resume, or a step with random gradients before or after it, fails: KeyError: 'missing'"


def test_state_of_other_names_or_dtypes_is_refused_by_name(tiny_cfg: Config) -> None:
    adam = Adam([torch.nn.Parameter(torch.ones(2, dtype=torch.bfloat16))], lr=0.1)
    state = copy.deepcopy(adam.state)
    adam.load_state_dict(dict(sorted(state.items(), reverse=True)))
    for other, said in (
        ({**state, "steps": []}, "steps/0 of Adam is missing and has to be torch.float32 []"),
        ({**state, "more": state["steps"]}, "more/0 of Adam is torch.float32 [] and has to be missing"),
        (
            {**state, "exp_avg": [torch.zeros(2)]},
            "exp_avg/0 of Adam is torch.float32 [2] and has to be torch.bfloat16 [2]",
        ),
    ):
        with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
            adam.load_state_dict(other)
