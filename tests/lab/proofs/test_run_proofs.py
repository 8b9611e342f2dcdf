"""Every guard finds the public bug it is there for: each is planted here."""

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from golf.errors import GolfError
from golf.lab.corpora.own_text import OwnDataset
from golf.lab.proofs.run_proofs import failed_proofs
from golf.launch.launcher import train_and_score
from golf.registry import TECHNIQUE_TYPES
from golf.run.progress import Progress
from golf.run.result import OK, VOID, Result, read_result
from golf.settings.config import Config
from golf.training.loop.proving import proving_warm_up
from golf.training.loop.state import build_state
from golf.training.model.build import build_model
from golf.training.model.gpt import GPT
from golf.training.model.objective import Weigh
from golf.training.optim.groups import build_optimizer
from golf.training.ranks import Ranks
from golf.training.techniques.base import CHANGES_LOSS, Technique, technique
from ideas.bigram.bigram import Bigram
from ideas.smear.smear import Smear, SmearGate
from tests.support import compose, golf_main, inert_techniques, only_run, tiny_overrides, with_techniques

pytestmark = pytest.mark.usefixtures("registry")


def prepared(cfg: Config) -> list[str]:
    return proving_warm_up(cfg, build_state(cfg, Ranks()), lambda _: None)


def test_a_sound_run_has_no_findings(tiny_cfg: Config) -> None:
    assert prepared(tiny_cfg) == [] and inert_techniques(tiny_cfg) == []


def test_finds_a_switch_that_reads_a_class_attribute(tiny_cfg: Config) -> None:
    """Late QAT of the public scripts: the flag is set on the class, and nothing that is compiled looks at it."""

    @technique("class_flag_qat")
    @dataclass
    class ClassFlagQat(Technique):
        source = "planted"
        is_switch = True
        enabled = False

        def edit_model(self, model: GPT, cfg: Config) -> None:
            for block in model.blocks:
                block.mlp.fc.weight_edits.append(lambda w, active: w.round() if ClassFlagQat.enabled else w)

        def is_on(self, progress: Progress) -> bool:
            return progress.fraction > 0.5

    cfg = with_techniques(tiny_cfg, ClassFlagQat())
    assert "late switch class_flag_qat changed nothing when it was switched on" in prepared(cfg)


def test_finds_a_parameter_in_no_group(tiny_cfg: Config) -> None:
    """The bigram projection that no optimizer of a public script ever saw."""

    @technique("bigram")
    @dataclass
    class Ungrouped(Bigram):
        groups = (("bigram.embed.weight", "embed"), ("bigram.scale", "scalar"))

    cfg = with_techniques(tiny_cfg, Ungrouped())
    with pytest.raises(GolfError, match=r"bigram\.proj\.weight .* belongs to no optimizer group"):
        build_optimizer(cfg, build_model(cfg))


def test_finds_a_parameter_that_does_not_move(tiny_cfg: Config) -> None:
    """A table and a projection that both start at zero pass no gradient to each other."""

    @technique("bigram")
    @dataclass
    class Deadlocked(Bigram):
        def edit_model(self, model: GPT, cfg: Config) -> None:
            super().edit_model(model, cfg)
            nn.init.zeros_(model.bigram.proj.weight)

    findings = prepared(with_techniques(tiny_cfg, Deadlocked()))
    assert [f.split(" did not")[0] for f in findings] == [
        f"parameter bigram.{name}" for name in ("scale", "embed.weight", "proj.weight")
    ]


def test_finds_a_technique_without_effect(tiny_cfg: Config) -> None:
    @technique("unplugged")
    @dataclass
    class Unplugged(Technique):
        source = "planted"

        def edit_model(self, model: GPT, cfg: Config) -> None:
            model.unplugged = SmearGate(cfg.model.model_dim, "blend", None)

    cfg = with_techniques(tiny_cfg, Unplugged())
    assert inert_techniques(cfg) == ["unplugged changed neither the loss nor a gradient"]
    cfg = compose([*overrides_of(tiny_cfg), "tech=[partial_rope]", "tech.partial_rope.dims=8"])
    cfg.tech["partial_rope"].reference_len = None
    assert inert_techniques(cfg) == ["partial_rope changed neither the loss nor a gradient"]  # 8 are all channels


def overrides_of(cfg: Config) -> list[str]:
    return [
        *("scale=laptop", "model=4l", "model.model_dim=32", "model.compute_dtype=fp32", "optim.muon_dtype=fp32"),
        *("data=own", f"data.path={cfg.data.path}", f"data.tokenizer_path={cfg.data.tokenizer_path}"),
        f"data.vocab_size={cfg.data.vocab_size}",
    ]


def test_finds_a_leak_across_documents(tiny_cfg: Config) -> None:
    """SmearGate over packed documents: masked by its own account, but mixing over the boundary."""

    class Leaking(SmearGate):
        def forward(self, x: Tensor, ids: Tensor) -> Tensor:
            return super().forward(x, torch.zeros_like(ids))

    @technique("smear")
    @dataclass
    class LeakingSmear(Smear):
        def edit_model(self, model: GPT, cfg: Config) -> None:
            model.smear = Leaking(cfg.model.model_dim, self.form, self.bos_id)
            model.after_norm["mix"].append(model.smear)

    (finding,) = inert_techniques(with_techniques(tiny_cfg, LeakingSmear(mask_bos=True)))
    assert finding == "smear mixes tokens across document starts although it says it does not"
    TECHNIQUE_TYPES["smear"] = Smear
    Smear.name = "smear"
    assert inert_techniques(with_techniques(tiny_cfg, Smear(mask_bos=True))) == []


@pytest.mark.parametrize("failed_check", ["void", "stop"])
def test_a_failed_check_is_the_result(failed_check: str, tiny: OwnDataset, runs: object) -> None:
    swa = ["tech=[swa]", "tech.swa.every=1000"] if failed_check == "void" else ["tech=[partial_rope]"]
    whole_head = ["tech.partial_rope.dims=8", "tech.partial_rope.reference_len=null"] if failed_check == "stop" else []
    result, folder = train_and_score(
        compose([*tiny_overrides(tiny), *swa, *whole_head, f"rules.failed_check={failed_check}"])
    )
    assert result.state == VOID
    if failed_check == "void":
        assert result.reason == "swa averaged nothing: no step met its conditions" and folder.artifact.exists()
    else:
        assert result.reason == "partial_rope changed neither the loss nor a gradient" and result.steps == 0


def test_a_run_without_proofs_is_void(tiny: OwnDataset, runs: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOLF_PROOFS", "off")
    result = run_tiny(tiny, "rules.failed_check=stop")
    assert (result.state, result.reason) == (VOID, "the proofs were switched off by GOLF_PROOFS=off")


def run_tiny(tiny: OwnDataset, *overrides: str) -> Result:
    return train_and_score(compose([*tiny_overrides(tiny), *overrides]))[0]


@pytest.mark.slow
def test_averages_and_late_switches_reach_the_score(tiny: OwnDataset, runs: object) -> None:
    plain = run_tiny(tiny)
    for overrides in (
        ["tech=[ema]", "tech.ema.decay=0.5"],
        ["tech=[fake_quant]", "tech.fake_quant.start_fraction=0.5"],
        ["tech=[recurrence]", "tech.recurrence.enable_at=0.5"],
    ):
        result = run_tiny(tiny, *overrides)
        assert result.state == OK and plain.post_quant and result.post_quant
        assert result.post_quant.val_loss != plain.post_quant.val_loss


def test_finds_a_switch_that_never_was_on(tiny: OwnDataset, runs: object) -> None:
    result = run_tiny(tiny, "tech=[soft_round]", "tech.soft_round.lr_threshold=0.01")
    assert (result.state, result.reason) == (VOID, "soft_round was never switched on")


def test_draws_of_one_technique_hide_no_other(tiny_cfg: Config) -> None:
    """With other draws in each pass, everything would seem to act, and a training loss to change the score."""

    @technique("drops_channels")
    @dataclass
    class DropsChannels(Technique):
        source = "planted"

        def edit_model(self, model: GPT, cfg: Config) -> None:
            model.blocks[0].mlp.fc.weight_edits.append(lambda w, active: nn.functional.dropout(w, 0.3))

    @technique("does_nothing")
    @dataclass
    class DoesNothing(Technique):
        source = "planted"

    @technique("weighs_by_a_draw")
    @dataclass
    class WeighsByADraw(Technique):
        source = "planted"
        effect = CHANGES_LOSS

        def token_weights(self, cfg: Config) -> Weigh:
            return lambda done: torch.rand_like(done.nats)

    before = torch.get_rng_state()
    cfg = with_techniques(tiny_cfg, DropsChannels(), DoesNothing(), WeighsByADraw())
    failures = failed_proofs(cfg)
    assert "does_nothing changed neither the loss nor a gradient" in failures
    assert not [failure for failure in failures if "weighs_by_a_draw" in failure]
    assert torch.equal(torch.get_rng_state(), before)


def test_an_optimizer_that_undoes_what_is_set_at_a_switch_fails_the_proofs(tiny: OwnDataset, runs: Path) -> None:
    loop = ["tech.recurrence.first=1", "tech.recurrence.last=2", "tech.recurrence.enable_at=0.5"]
    overrides = [*tiny_overrides(tiny), *loop, "schedule.warmdown_iters=0", "rules.failed_check=stop"]
    golf_main(*overrides, "tech=[schedule_free,recurrence,untied_mlps]")
    result = read_result(only_run(runs) / "result.json")
    said = "the optimizers of schedule_free undo what untied_mlps sets at a switch"
    assert (result.state, result.reason) == (VOID, said)
    others = ["tech=[torch_optimizer,recurrence,untied_mlps]", "tech.torch_optimizer.optimizer=torch.optim.AdamW"]
    golf_main(*overrides, *others)
    assert {read_result(path).state for path in runs.glob("*/seed*/result.json")} == {VOID, OK}
