"""Simulated bytes against packed Gaussian weights, and against the entropy of Gaussian codes."""

import math
from collections.abc import Sequence

import pytest
import torch

from golf.artifact.container import pack
from golf.artifact.quant.policy import quantize, rounded_to_nearest
from golf.lab.plan.simulation import CONTROL_STD, simulate
from golf.lab.plan.tensors import StoredTensor, stored_tensors
from golf.settings.config import Config
from golf.training.model.build import build_model, shapeless_model
from tests.support import compose


def gaussian(cfg: Config, rms: float) -> tuple[Sequence[StoredTensor], dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(5)
    tensors = stored_tensors(cfg, shapeless_model(cfg).state_dict())
    weights = {}
    for tensor in tensors:
        drawn = torch.randn(tensor.shape, generator=generator)
        weights[tensor.name] = 1 + CONTROL_STD * drawn if tensor.tensor_class == "control" else rms * drawn
    return tensors, weights


@pytest.mark.parametrize(
    "rms, overrides",
    [
        (0.05, ["model=4l"]),
        (0.3, ["model=4l"]),
        (0.05, ["model=4l", "quant=int6_mixed", "quant.scale_floor=eps", "tech=[ortho_init]"]),  # not uniform
        (0.05, ["model=9l", "model.model_dim=192", "tech=[bigram]", "quant.codec=zstd"]),  # too large to do it whole
        (0.3, ["model=9l", "model.model_dim=192", "quant=int8_all"]),
    ],
)
def test_gaussian_weights_take_the_simulated_bytes(rms: float, overrides: list[str]) -> None:
    cfg = compose(["scale=laptop", *overrides])
    tensors, weights = gaussian(cfg, rms)
    actual = len(pack(quantize(weights, cfg.quant), cfg.model, cfg.quant, cfg.tech))
    simulated = simulate(cfg, tensors, {t.role: rms for t in tensors})
    assert simulated.total == pytest.approx(actual, rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("rms", [0.02, 0.3])
@pytest.mark.parametrize(
    "codec",
    [pytest.param("quant.codec=brotli quant.codec_level=11", marks=pytest.mark.slow), "quant.codec=context"],
)
def test_clips_of_k_deviations_are_known_to_a_percent_whatever_the_weights(rms: float, codec: str) -> None:
    """Neither GPTQ nor the size of the weights changes the entropy of the codes, so no finished run is needed."""
    cfg = compose(["scale=laptop", "model=9l", "quant=sdclip_gptq", *codec.split()])
    tensors, weights = gaussian(cfg, rms)
    actual = len(pack(quantize(weights, rounded_to_nearest(cfg.quant)), cfg.model, cfg.quant, cfg.tech))
    assert simulate(cfg, tensors, {}).total == pytest.approx(actual, rel=0.01)


@pytest.mark.slow
def test_low_rank_factors_are_paid_for() -> None:
    cfg, bare = (
        compose(["scale=laptop", "model=4l", "quant=int4_lqer", "quant.codec=context", f"quant.lqer.rank={r}"])
        for r in (8, 0)
    )
    tensors, weights = gaussian(cfg, 0.1)
    hessians = {n: torch.eye(t.size(1)) for n, t in weights.items() if t.ndim == 2}
    actual, without = (len(pack(quantize(weights, c.quant, hessians), c.model, c.quant, c.tech)) for c in (cfg, bare))
    simulated, base = (simulate(c, tensors, {t.role: 0.1 for t in tensors}).total for c in (cfg, bare))
    assert simulated - base == pytest.approx(actual - without, rel=0.1)


@pytest.mark.parametrize("codec", ["quant.codec=context", "quant.codec=zlib quant.codec_level=9"])
def test_finer_columns_of_the_embedding_are_paid_for(codec: str) -> None:
    planned, packed = [], []
    for finer in (24, 0):
        overrides = ["scale=laptop", "model=4l", "quant=sdclip_gptq", f"quant.embed.finer_columns={finer}"]
        cfg = compose([*overrides, *codec.split()])
        tensors, weights = gaussian(cfg, 0.1)
        (embedding,) = [t for t in tensors if t.name == "tok_emb.weight"]
        assert embedding.format != "fp16" and embedding.columns > 2 * 24
        alone = {embedding.name: weights[embedding.name]}
        coded = quantize(alone, cfg.quant, {embedding.name: torch.eye(embedding.columns)})
        assert (coded[embedding.name].columns is not None) == (finer > 0)
        packed.append(len(pack(coded, cfg.model, cfg.quant, cfg.tech)))
        planned.append(simulate(cfg, [embedding], {embedding.role: 0.1}).total)
    assert planned[0] - planned[1] == pytest.approx(packed[0] - packed[1], rel=0.05)
    assert planned[0] == pytest.approx(packed[0], rel=0.01)


def test_codes_of_a_fixed_step_cost_their_entropy() -> None:
    """A floored step is 1/127, so codes have log2(σ·127·√(2πe)) bits; zlib and scales need 4.7 % more in records."""
    cfg = compose(["scale=laptop", "model=4l"])
    tensors = stored_tensors(cfg, shapeless_model(cfg).state_dict())
    simulated = simulate(cfg, tensors, {t.role: 0.1 for t in tensors})
    matrices = [t for t in tensors if t.tensor_class in ("attn", "mlp") and t.format == "int8"]
    bits = 8 * sum(simulated.by_role[role] for role in {t.role for t in matrices}) / sum(t.numel for t in matrices)
    assert math.log2(0.1 * 127 * math.sqrt(2 * math.pi * math.e)) < bits < 1.06 * math.log2(0.1 * 127 * 4.1327)


def test_the_same_plan_twice_and_only_what_is_stored_is_paid_for() -> None:
    cfg = compose(["scale=laptop", "model=4l"])
    tensors = stored_tensors(cfg, build_model(cfg).state_dict())
    first, second = simulate(cfg, tensors, {}), simulate(cfg, tensors, {})
    assert first == second
    assert set(first.by_role) == {t.role for t in tensors}
