"""A run that would not resume as it was is found before its clock: each way to forget something is planted here."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from golf.registry import technique_types
from golf.run.progress import Progress
from golf.settings.config import Config
from golf.training.data.dataset import open_dataset
from golf.training.data.loader import SequentialLoader
from golf.training.loop.checkpoint import Checkpoints
from golf.training.loop.proofs import failed_proofs
from golf.training.loop.resume_proof import lost_by_resume
from golf.training.model.gpt import GPT
from golf.training.optim.adam import Adam
from golf.training.optim.muon import MatrixOptimizer
from golf.training.techniques.base import Technique, technique
from golf.training.techniques.ema import MovingAverage
from golf.training.techniques.lawa import LatestMean
from golf.training.techniques.swa import SnapshotMean
from tests.support import ROOT, with_techniques

pytestmark = pytest.mark.usefixtures("registry")
DTYPES = ("bf16", "fp32")


def findings(cfg: Config) -> list[str]:
    return lost_by_resume(cfg, open_dataset(cfg))


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
    assert findings(with_techniques(tiny_cfg, *techniques)) == []


def test_the_proof_is_made_where_checkpoints_are(tiny_cfg: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SequentialLoader, "skip", lambda self, batches: None)
    dataset = open_dataset(tiny_cfg)
    tiny_cfg.launch.checkpoint_seconds = 0.0
    assert failed_proofs(tiny_cfg, dataset=dataset) == []
    tiny_cfg.launch.checkpoint_seconds = 1.0
    lost = ["the loader sequential does not go on with the next batch after a resume"]
    assert failed_proofs(tiny_cfg, dataset=dataset) == lost


@pytest.mark.parametrize("muon", ["sharded", "parallel"])
def test_a_second_moment_outside_of_the_state_dict_is_found(
    tiny_cfg: Config, muon: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NorMuon (arXiv 2510.05491) by an author who forgets that a run may resume."""
    plain = MatrixOptimizer.update

    def normalized(self: Any, grads: Tensor, momentum: float) -> Tensor:
        update = plain(self, grads, momentum)
        moments = self.__dict__.setdefault("second_moments", {})
        now = update.float().square().mean(2, keepdim=True)
        moments[grads.shape] = moment = moments.get(grads.shape, torch.zeros_like(now)).lerp(now, 0.05)
        return update / moment.sqrt()

    monkeypatch.setattr(MatrixOptimizer, "update", normalized)
    tiny_cfg.optim.muon = muon
    (said,) = findings(tiny_cfg)
    assert said.startswith("a resumed run goes on otherwise: weights/blocks.0.attn.c_k.weight") and "state_dict" in said


@pytest.mark.parametrize("average", [MovingAverage, SnapshotMean, LatestMean])
def test_a_forgotten_average_is_found(tiny_cfg: Config, average: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(average, "load_state_dict", lambda self, state: None)
    name = {MovingAverage: "ema", SnapshotMean: "swa", LatestMean: "lawa"}[average]
    (said,) = findings(with_techniques(tiny_cfg, technique_types()[name]()))
    assert f"averages/{name}/" in said


def test_moments_by_position_are_found(tiny_cfg: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint's file keeps another order than the state had: moments in bf16 come after float32 steps."""
    plain = Adam.load_state_dict

    def by_position(self: Adam, state: dict[str, list[Tensor]]) -> None:
        plain(self, state)
        self.state = dict(zip(self.state, sorted(self.state.values(), key=lambda t: str(t[0].dtype)), strict=True))

    monkeypatch.setattr(Adam, "load_state_dict", by_position)
    tiny_cfg.model.compute_dtype = "bf16"
    assert findings(tiny_cfg) != []


def test_forgotten_random_numbers_are_found(tiny_cfg: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Checkpoints._restore

    def restored(self: Checkpoints, shared: dict, own: dict) -> None:
        with torch.random.fork_rng(devices=[]):
            plain(self, shared, own)

    monkeypatch.setattr(Checkpoints, "_restore", restored)
    (said,) = findings(tiny_cfg)
    assert "random numbers of step 2" in said


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

    (said,) = findings(with_techniques(tiny_cfg, Counting()))
    assert "late switches" in said


def test_state_of_other_names_or_dtypes_is_refused_by_name(tiny_cfg: Config) -> None:
    adam = Adam([torch.nn.Parameter(torch.ones(2, dtype=torch.bfloat16))], lr=0.1)
    state = adam._first_state()
    adam.load_state_dict(dict(sorted(state.items(), reverse=True)))
    with pytest.raises(ValueError, match="Adam's state has exp_avg, exp_avg_sq, not exp_avg, exp_avg_sq, steps"):
        adam.load_state_dict({key: state[key] for key in ("exp_avg", "exp_avg_sq")})
    with pytest.raises(ValueError, match=r"Adam's exp_avg is \['torch.float32 \[2\]'\], not"):
        adam.load_state_dict({**state, "exp_avg": [t.float() for t in state["exp_avg"]]})


FULL_DISK = """
import resource, sys
from pathlib import Path
from golf.errors import GolfError
from golf.run.folder import RunFolder
from golf.settings.composition import compose
from golf.training.loop.checkpoint import Checkpoints, Start
from golf.training.loop.state import build_state
from golf.training.ranks import Ranks
cfg = compose(["scale=laptop", "model.num_layers=1", "launch.checkpoint_seconds=1", "launch.compile=off"])
state = build_state(cfg, Ranks(), lambda *_: None)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
try:
    Checkpoints(cfg, RunFolder(Path(sys.argv[1])), state, "data").save(Start(step=3))
except GolfError as error:
    print(error)
"""


def test_a_full_disk_at_a_checkpoint_is_one_sentence(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FULL_DISK, str(tmp_path)], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.startswith("No space left to write ") and done.stdout.count("\n") == 1, done
    assert list(tmp_path.rglob("*.*")) == [], "no half-written file stays"
