"""Experiments have the effective values of the public runs they are named for."""

import dataclasses
from pathlib import Path

import pytest
import torch

from golf.artifact.container import load, pack, unpack
from golf.lab.corpora.own_text import OwnDataset
from golf.launch.launcher import train_and_score
from golf.run.identity import flat
from golf.run.result import OK
from golf.settings.config import Config, OptimConfig, to_dict, training_seconds
from golf.settings.consistency import warnings
from golf.training.model.build import build_model
from tests.support import ROOT, compose, tiny_overrides

FLOAT32 = ["model.compute_dtype=fp32", "optim.muon_dtype=fp32", "eval.dtype=fp32", "model.attention=sdpa"]
GPTQ_PRESETS = {
    *("gptq_int6", "gptq_own_text", "int4_lqer", "sdclip_gptq", "sdclip_lqer", "sdclip_lqer_asym"),
    *("trellis", "trellis_sensitive", "trellis_retrained"),
}


def parameters(cfg: Config) -> int:
    with torch.device("meta"):
        return sum(p.numel() for p in build_model(cfg).parameters())


@pytest.mark.parametrize(
    ("experiment", "expected"),
    [
        ("naive_baseline", 17_059_912),
        ("lower_lr", 17_059_912),
        ("fp16_embed_wd3600", 16_765_000),
        ("single_h100_8l", 19_417_152),
        ("gold6_11l", 26_993_756),
        ("pr593_11l", 26_928_220),
    ],
)
def test_parameter_counts_are_the_published_ones(experiment: str, expected: int) -> None:
    assert parameters(compose([f"experiment={experiment}", "scale=record"])) == expected


def test_single_h100_8l() -> None:
    cfg = compose(["experiment=single_h100_8l", "scale=record"])
    assert set(cfg.tech) == {"partial_rope", "xsa", "norm_eps", "ortho_init"}
    assert (cfg.tech["partial_rope"].dims, cfg.tech["partial_rope"].reference_len) == (32, None)
    assert (cfg.tech["xsa"].last_n, cfg.tech["norm_eps"].attn, cfg.model.qk_gain_init) == (2, 1e-6, 1.7)
    o = cfg.optim
    assert (o.matrix_lr, o.scalar_lr, o.tied_embed_lr, o.muon_wd, o.adam_wd) == (0.032, 0.032, 0.04, 0.02, 0.04)
    assert (o.muon_momentum, o.muon_momentum_warmup_start, o.muon_momentum_warmup_steps) == (0.95, 0.85, 500)
    assert (cfg.schedule.warmdown_fraction, cfg.schedule.iterations, cfg.eval.stride) == (0.2, 35_000, 128)
    assert (cfg.data.train_seq_len, cfg.data.train_batch_tokens) == (2048, 524_288)
    assert (cfg.quant.attn.format, cfg.quant.embed.format, cfg.quant.small_numel, cfg.quant.codec) == (
        "int8",
        "int8",
        0,
        "zlib",
    )


def test_gold6_11l() -> None:
    cfg = compose(["experiment=gold6_11l", "scale=record"])
    t, o = cfg.tech, cfg.optim
    stack = {"partial_rope", "xsa", "bigram", "smear", "ln_scale", "value_embed", "ortho_init", "ema"}
    assert set(t) == stack and t["xsa"].last_n == 4 and t["ema"].decay == pytest.approx(0.997)
    assert (t["partial_rope"].dims, t["partial_rope"].reference_len) == (16, 1024)
    assert (t["bigram"].buckets, t["bigram"].dim, t["smear"].form) == (2048, 128, "blend")
    assert (t["value_embed"].dim, [i % 11 for i in t["value_embed"].layers]) == (128, [9, 10])
    assert (o.matrix_lr, o.scalar_lr, o.tied_embed_lr, o.muon_wd, o.adam_wd) == (0.025, 0.025, 0.035, 0.04, 0.04)
    assert (o.muon_momentum, o.muon_momentum_warmup_start, o.muon_momentum_warmup_steps) == (0.99, 0.92, 1500)
    assert (o.grad_clip_norm, cfg.schedule.warmdown_iters, cfg.schedule.iterations) == (0.3, 3500, 20_000)
    assert (cfg.data.train_seq_len, cfg.data.train_batch_tokens) == (2048, 262_144)
    assert [how.format for how in (cfg.quant.attn, cfg.quant.mlp, cfg.quant.embed)] == ["int6", "int6", "int8"]
    assert cfg.quant.mlp.clip == "search" and (cfg.quant.codec, cfg.quant.codec_level) == ("zstd", 22)


def test_pr593_11l() -> None:
    cfg, gold6 = (compose([f"experiment={name}", "scale=record"]) for name in ("pr593_11l", "gold6_11l"))
    assert set(cfg.tech) == {*gold6.tech, "leaky_relu"}
    assert (cfg.tech["bigram"].buckets, cfg.tech["leaky_relu"].slope) == (1536, 0.5)
    assert (cfg.optim.muon, cfg.data.train_batch_tokens, cfg.schedule.iterations) == ("parallel", 786_432, 9000)
    assert (cfg.eval.stride, cfg.quant.codec, cfg.quant.codec_level) == (64, "lzma", 6)
    assert cfg.optim.matrix_lr == gold6.optim.matrix_lr and cfg.optim.grad_clip_norm == gold6.optim.grad_clip_norm


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(path.stem for path in (ROOT / "conf/quant").glob("*.yaml")))
def test_a_run_in_every_number_format_from_training_to_the_score(name: str, tiny: OwnDataset, runs: Path) -> None:
    """The entropy coder gives the same weights from another file."""
    cfg = compose([*tiny_overrides(tiny), f"quant={name}", "quant.calibration.tokens=1024"])
    result, folder = train_and_score(cfg)
    assert result.state == OK and result.quant_gap_bpb is not None and abs(result.quant_gap_bpb) < 0.5, result.reason
    assert (result.calibration_seconds is not None) == (name in GPTQ_PRESETS)
    artifact = load(folder.artifact)
    coder = dataclasses.replace(cfg.quant, codec="context", layout=[])
    again = unpack(pack(artifact.coded, artifact.model, coder, cfg.tech)).state_dict()
    for key, weights in artifact.state_dict().items():
        torch.testing.assert_close(again.pop(key), weights, rtol=0, atol=0)
    assert again == {}


def test_a_preset_decides_on_small_tensors_and_the_scale_only_where_it_does_not() -> None:
    small = {name: compose([f"quant={name}", "scale=laptop"]).quant.small_numel for name in ("int8", "int8_all")}
    assert small == {"int8": 3136, "int8_all": 0} and compose(["scale=record"]).quant.small_numel == 65_536
    assert compose(["quant=int6_int8_packed", "scale=laptop"]).quant.small_numel == 0
    assert compose(["quant=int6_mixed", "scale=laptop", "quant.small_numel=7"]).quant.small_numel == 7


EXPERIMENTS = sorted((ROOT / "conf/experiment").rglob("*.yaml"))
FEW = ("naive_baseline", "fp16_embed_wd3600", "gold6_11l")


@pytest.mark.parametrize(
    "path", [p if p.stem in FEW else pytest.param(p, marks=pytest.mark.slow) for p in EXPERIMENTS], ids=lambda p: p.stem
)
def test_a_scale_tunes_rates_and_warmdown_that_a_preset_takes_from_the_baseline(path: Path) -> None:
    name = path.relative_to(ROOT / "conf/experiment").with_suffix("")
    record, laptop = (compose([f"experiment={name}", f"scale={scale}", *FLOAT32]) for scale in ("record", "laptop"))
    for key in ("matrix_lr", "scalar_lr", "tied_embed_lr"):
        before, now = getattr(record.optim, key), getattr(laptop.optim, key)
        is_baselines = before == getattr(OptimConfig, key)
        assert now == (pytest.approx(before * laptop.scale.rate_ratio) if is_baselines else before), key
    warmdown, shrunk = record.schedule.warmdown_iters, max(1, round(record.schedule.warmdown_iters * 0.12))
    expected = {0: 0, 1200: round(144 * laptop.scale.warmdown_ratio)}.get(warmdown, shrunk)
    assert laptop.schedule.warmdown_iters == expected
    assert record.scale.rate_ratio == 1 and laptop.scale.rate_ratio < 1
    said = [sentence for cfg in (record, laptop) for sentence in warnings(cfg) if "matrix_lr" in sentence]
    # 0.03 and more are too far from 0.014, where 0.02 was worse.
    assert len(said) == (laptop.optim.matrix_lr >= 0.03)


@pytest.mark.parametrize(("scale", "cards", "times"), [("one_card", 1, 8), ("two_cards", 2, 4), ("four_cards", 4, 2)])
@pytest.mark.parametrize("preset", ["naive_baseline", "records/2026-04-10_varlen_attn", "gold6_11l"])
def test_fewer_cards_take_the_steps_of_the_record_in_as_many_times_its_seconds(
    preset: str, scale: str, cards: int, times: int
) -> None:
    record = compose([f"experiment={preset}", "scale=record", *FLOAT32])
    longer = compose([f"experiment={preset}", f"scale={scale}", *FLOAT32])
    before, now = dict(flat(to_dict(record))), dict(flat(to_dict(longer)))
    seconds = {key for key in before if key.endswith("_seconds") and before[key] != now.get(key)}
    expected = {"budget.train_seconds", "budget.eval_seconds", "quant.calibration.reserve_seconds"}
    assert seconds == expected
    assert all(now[key] == times * before[key] for key in seconds)
    changed = {key for key in before.keys() | now.keys() if before.get(key) != now.get(key)} - seconds
    assert changed == {"scale.name", "scale.seconds_ratio", "launch.nproc", "quant.tune.reserve_seconds"}
    assert longer.launch.nproc == cards
    assert longer.quant.tune.reserve_seconds == times * record.quant.tune.reserve_seconds
    assert training_seconds(longer) == times * training_seconds(record)
