"""Plain settings that change nothing: each is planted here, by its value or in the code that should read it."""

import functools
from dataclasses import replace
from typing import Any

import pytest
import torch

from golf.lab.proofs import setting_proofs
from golf.lab.proofs.run_proofs import RandomPasses, failed_proofs
from golf.lab.proofs.setting_proofs import inert_settings
from golf.settings.config import Config, LQERConfig, PruneConfig
from golf.settings.dropping import OFF, is_on
from golf.training.model.build import build_model
from golf.training.model.gpt import GPT
from golf.training.optim import groups
from golf.training.optim.groups import ClippedOptimizer
from golf.training.optim.muon import Muon
from golf.training.optim.parallel_muon import ParallelMuon
from golf.training.scoring.scorer import Scorer
from tests.support import ROOT, compose, further

SMALL = [
    *("scale=laptop", "model=4l", "model.model_dim=32", "model.compute_dtype=fp32", "optim.muon_dtype=fp32"),
    *("data.fingerprint=null", "data.vocab_size=64", "quant.small_numel=64", "schedule.iterations=50"),
    *("schedule.warmdown_iters=20", "quant=int6_mixed", "quant.small_numel=64"),
]


CLIPPED = {"rounding": "gptq", "clip": "std"}


def cfg_with(**settings: Any) -> Config:
    """Return a small configuration with settings under keys like `optim__muon_wd`."""
    cfg = compose(SMALL)
    for key, value in settings.items():
        *path, name = key.split("__")
        setattr(functools.reduce(getattr, path, cfg), name, value)
    return cfg


def found(cfg: Config) -> list[str]:
    return inert_settings(cfg, lambda _: True)


def test_everything_that_acts_passes() -> None:
    cfg = cfg_with(
        optim__muon_wd=0.04,
        optim__adam_wd=0.02,
        optim__grad_clip_norm=1.0,
        optim__clip_before_reduction=True,  # acts where ranks differ, and is no fault on one
        optim__muon_momentum_warmup_steps=10,
        optim__muon="parallel",
        optim__muon_row_normalize=True,
        optim__muon_coefficients="polar_express",
        optim__muon_momentum_dtype="bf16",
        optim__adam_moment_dtype="fp32",
        schedule__muon_wd_taper_final=0.5,
        schedule__weight_decay_factors=[1.0, 2.0],
        schedule__weight_decay_shares=[0.4, 1.0],
        data__shard_order=[2, 0],
        quant__embed__format="fp16",
        quant__attn__rounding="gptq",
        quant__mlp__rotation="hadamard",
        quant__attn__clip_importance=0.5,
        quant__attn__columns=0.5,
        quant__prune__fraction=0.1,
        quant__control_format="fp16",
        quant__lqer__rank=2,
        quant__sensitive__top=1,
        quant__attn__format="int5",
        quant__mlp__format="int5",
        eval__stride=64,
        eval__ttt__method="sgd",
    )
    on = {name for name in OFF if is_on(cfg, name)}
    alone = {"loader", "documents", "short_chunks", "finer_columns", "tilt", "clip_sensitivity", "drift", "tuning"}
    alone |= {"step_sensitivity", "retraining"}
    assert on == OFF.keys() - alone and inert_settings(cfg, RandomPasses(cfg).differ) == []
    assert found(cfg_with(quant__attn__rounding="gptq", quant__gptq__drift=True, quant__tune__steps=10)) == []
    assert found(cfg_with(quant__attn__rounding="gptq", quant__retrain__steps=10)) == []
    packed = {"data__loader": "packed", "model__within_documents": True, "eval__documents": True}
    assert found(cfg_with(**packed)) == []
    assert found(cfg_with(eval__tilt__method="ngram", eval__ttt__method="lora")) == []
    clipped = {f"quant__{kind}__{key}": value for kind in ("attn", "mlp") for key, value in CLIPPED.items()}
    assert found(cfg_with(**clipped, quant__clip_sensitivity=0.15)) == []
    assert found(cfg_with(**clipped, quant__step_sensitivity=0.75)) == []
    assert found(cfg_with(quant__attn__rounding="gptq", quant__attn__finer_columns=8)) == []
    assert found(cfg_with(eval__ttt__method="lora", eval__ttt__lora_chunks=[[256, 8]])) == []
    assert found(cfg_with(data__loader="coprime")) == found(cfg_with(data__loader="shuffled")) == []


@pytest.mark.parametrize(
    "name, settings",
    [
        ("momentum_warmup", {"optim__muon_momentum_warmup_start": 0.95}),
        ("warmdown", {"schedule__min_lr": 1.0}),
        ("polar_express", {"optim__muon_coefficients": "polar_express", "optim__muon_backend_steps": 0}),
        ("shard_order", {"data__shard_order": [0, 1]}),
        ("short_chunks", {"eval__ttt__method": "sgd", "eval__stride": 64, "eval__ttt__lora_chunks": [[256, 8]]}),
        ("fp16_embed", {"quant__embed__format": "fp16", "quant__small_numel": 1_000_000}),
        ("gptq", {"quant__other__rounding": "gptq"}),
        ("rotation", {"quant__attn__rotation": "hadamard", "quant__small_numel": 1_000_000}),
    ],
)
def test_finds_a_value_that_acts_like_none(name: str, settings: dict[str, Any]) -> None:
    (finding,) = found(cfg_with(**settings))
    assert finding.startswith(f"{name} changed nothing: ") and finding.endswith(" could as well be off")


def test_pruning_to_fit_and_a_single_layer_show_nothing_before_training() -> None:
    assert found(cfg_with(quant__prune__to_fit=True)) == []
    single = cfg_with(model__num_layers=1)
    assert inert_settings(single, RandomPasses(single).differ) == []


@pytest.mark.parametrize("form", [Muon, ParallelMuon])
def test_finds_a_decay_that_one_optimizer_ignores(form: type, monkeypatch: pytest.MonkeyPatch) -> None:
    """Adam's decay acts, so that the weights change; Muon's is lost."""
    name = "parallel" if form is ParallelMuon else "sharded"
    cfg = cfg_with(optim__muon_wd=0.04, optim__adam_wd=0.02, optim__muon=name)
    without = staticmethod(lambda values, updates, lr, _: torch._foreach_add_(values, updates, alpha=-lr))
    monkeypatch.setattr(form, "apply", without)
    expected = ["optim.muon_wd changed nothing: weight_decay does not need it"]
    assert [finding for finding in found(cfg) if "parallel_muon" not in finding] == expected


def test_finds_a_decay_of_a_head_that_is_the_embedding() -> None:
    assert found(cfg_with(optim__adam_wd=0.02, optim__head_wd=0.04)) == [
        "optim.head_wd changed nothing: weight_decay does not need it"
    ]
    assert found(cfg_with(optim__adam_wd=0.02, optim__embed_wd=0.02)) == []  # it would act alone
    assert found(cfg_with(optim__adam_wd=0.02, optim__embed_wd=0.0)) == []  # it acts beside adam_wd


def test_finds_clipping_that_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClippedOptimizer, "_clip", lambda self: None)
    expected = "grad_clip changed nothing: optim.grad_clip_norm could as well be off"
    assert found(cfg_with(optim__grad_clip_norm=1.0)) == [expected]


def test_finds_the_form_of_muon_that_was_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "ParallelMuon", Muon)
    expected = "parallel_muon changed nothing: optim.muon could as well be off"
    assert found(cfg_with(optim__muon="parallel")) == [expected]


def test_finds_windows_that_do_not_slide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scorer, "sliding", Scorer.__call__)
    assert found(cfg_with(eval__stride=64)) == ["sliding changed nothing: eval.stride could as well be off"]


def test_finds_skips_that_the_model_leaves_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The join returns the stream as it was: skips are neither added nor trained."""

    init = GPT.__init__

    def unjoined(self: GPT, *args: Any) -> None:
        init(self, *args)
        self.join_skip = lambda model, x, stored, i: x

    monkeypatch.setattr(GPT, "__init__", unjoined)
    sentences = failed_proofs(cfg_with())
    assert "unet_skips changed nothing: model.unet_skips could as well be off" in sentences
    assert "parameter skip_weights [2, 32] is used by nothing: the loss does not depend on it" in sentences


def test_skips_that_their_gates_need_are_not_taken_out() -> None:
    def builds(other: Config) -> bool:
        return build_model(other) is not None

    assert inert_settings(replace(cfg_with(), tech=compose(["tech=[skip_gates]"]).tech), builds) == []


def test_finds_pruning_and_factors_that_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    quantize = setting_proofs.quantize

    def plain(state: Any, quant: Any, *rest: Any) -> Any:
        return quantize(state, replace(quant, prune=PruneConfig(), lqer=LQERConfig()), *rest)

    monkeypatch.setattr(setting_proofs, "quantize", plain)
    assert found(cfg_with(quant__prune__fraction=0.1, quant__lqer__rank=2)) == [
        "pruning changed nothing: quant.prune.fraction could as well be off",
        "lqer changed nothing: quant.lqer.rank could as well be off",
    ]


@pytest.mark.slow
def test_the_settings_of_every_experiment_act() -> None:
    for experiment in sorted(path.stem for path in (ROOT / "conf/experiment").glob("*.yaml")):
        cfg = compose(["scale=laptop", f"experiment={experiment}", "data=pydocs", "launch.device=cpu"])
        assert found(cfg) == [], experiment


@pytest.mark.slow
def test_the_settings_of_a_record_act() -> None:
    cfg = compose(["scale=record", "experiment=gold6_11l", "data=pydocs", "launch.device=cpu"])
    assert found(cfg) == []


RECORDS = sorted(path.stem for path in (ROOT / "conf/experiment/records").glob("*.yaml"))


@pytest.mark.slow
@pytest.mark.parametrize("preset", [further(name) if i % 2 else name for i, name in enumerate(RECORDS)])
def test_no_record_has_a_setting_that_changes_nothing(preset: str) -> None:
    """Such a setting would end its run as void."""
    assert found(compose([f"experiment=records/{preset}", "scale=laptop", "launch.device=cpu"])) == []
