"""Codes and scales against a loop, the way through the artifact, and the record's model against its definition."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from torch import Tensor

import golf
from golf.artifact.container import pack, unpack
from golf.artifact.quant.policy import dequantize, storage_class
from golf.lab.plan.simulation import CONTROL_MEAN, CONTROL_STD, simulate
from golf.lab.plan.tensors import stored_tensors
from golf.settings.config import Config

STORED = ["tech=[ternary_groups,fake_quant]", "quant.attn.format=ternary_groups", "quant.mlp.format=ternary_groups"]
RECORD = ["experiment=records/2026-03-24_ternary_unet", "scale=laptop", "quant.small_numel=1000"]


def composed(*overrides: str) -> Config:
    return golf.compose(["model=4l", "scale=laptop", *STORED, "quant.small_numel=1000", *overrides])


def weights(cfg: Config) -> dict[str, Tensor]:
    torch.manual_seed(0)
    model = golf.build_model(cfg)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.05)
    return dict(model.scored_weights())


def written_out(w: Tensor, group: int, scale: str) -> np.ndarray:
    """The decoded tensor, one group after the other, in float64 with scales in float16."""
    flat, found = w.detach().double().numpy().ravel(), []
    for start in range(0, len(flat), group):
        part = flat[start : start + group]
        size = np.abs(part).mean() if scale == "mean" else np.sqrt((part**2).mean())
        s = float(np.float16(size))
        found += [s * max(-1, min(1, round(x / s))) for x in part]
    return np.array(found).reshape(w.shape)


@pytest.mark.parametrize("scale", ["mean", "rms"])
@pytest.mark.parametrize("shape", [(4, 256), (3, 100), (7,), (2, 3, 50), (0, 128)])
def test_values_are_codes_times_scales(shape: tuple[int, ...], scale: str) -> None:
    form = composed(f"tech.ternary_groups.scale={scale}").tech["ternary_groups"].number_format()
    w = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    codes, scales = form.codes(w)
    assert len(scales) == form.scale_count(shape) and set(codes.unique().tolist()) <= {-1, 0, 1}
    np.testing.assert_allclose(form.values(codes, scales).numpy(), written_out(w, 128, scale), rtol=1e-6)


def test_a_group_of_zeros_stays_zero() -> None:
    form = composed().tech["ternary_groups"].number_format()
    assert not form.values(*form.codes(torch.zeros(3, 200))).any()


@pytest.mark.parametrize("codec", ["quant.layout=[pack_bits]", "quant.codec=context"])
def test_the_artifact_holds_what_fake_quant_trained(codec: str) -> None:
    if codec.endswith("context"):
        pytest.importorskip("numba")
    cfg = composed(codec)
    state, model = weights(cfg), golf.build_model(cfg)
    back = unpack(pack(golf.quantize(state, cfg.quant, tech=cfg.tech), cfg.model, cfg.quant, cfg.tech)).state_dict()
    model.load_state_dict(state)
    for name, module in model.named_modules():
        if name.startswith("blocks.") and hasattr(module, "edited_weight"):
            assert torch.equal(module.edited_weight(("fake_quant",)), back[f"{name}.weight"])


def test_the_file_has_the_planned_bytes_and_near_a_third_of_zeros() -> None:
    small = ["model.num_layers=3", "data=pydocs"]
    cfg = golf.compose([*RECORD, *small, "quant.codec=zlib", "quant.layout=[pack_bits]"])
    state = weights(cfg)
    for name, tensor in state.items():
        if storage_class(name, cfg.tech) == "control":
            tensor.normal_(CONTROL_MEAN, CONTROL_STD)
    tensors = stored_tensors(cfg, state)
    coded = golf.quantize(state, cfg.quant, tech=cfg.tech)
    planned = simulate(cfg, tensors, {t.role: 0.05 for t in tensors})
    assert abs(planned.total / len(pack(coded, cfg.model, cfg.quant, cfg.tech)) - 1) < 0.005
    # Of normal weights erf(1 / (2√π)) = 31.0 % are below half of their mean magnitude.
    zeros = [tensor.data == 0 for tensor in coded.values() if tensor.own and tensor.own.name == "ternary_groups"]
    assert torch.cat([z.flatten() for z in zeros]).float().mean() == pytest.approx(0.310, abs=0.003)


def test_what_does_not_go_together_is_refused_or_named() -> None:
    with pytest.raises(golf.GolfError, match="drop ema"):
        composed("tech=[ternary_groups,ema]")
    cfg = composed("tech=[ternary_groups]", "optim.muon_wd=0.1")
    assert [sentence.split()[0] for sentence in cfg.tech["ternary_groups"].warnings(cfg)] == [
        "ternary_groups",
        "optim.muon_wd",
    ]


def test_the_built_in_format_stores_the_same_numbers() -> None:
    how = ["quant.attn.format=ternary", "quant.attn.clip=absmean", "quant.attn.group_size=16"]
    own = composed("tech.ternary_groups.group=16", "quant.scale_rounding=before", "quant.scale_floor=eps")
    built_in = golf.compose(["model=4l", "scale=laptop", *how, "quant.scale_rounding=before", "quant.scale_floor=eps"])
    w = {"blocks.0.attn.proj.weight": weights(own)["blocks.0.attn.proj.weight"]}
    first, second = (dequantize(golf.quantize(w, cfg.quant, tech=cfg.tech)) for cfg in (own, built_in))
    assert torch.equal(first["blocks.0.attn.proj.weight"], second["blocks.0.attn.proj.weight"])


class Definition:
    """The record's forward pass, written out for one row of tokens in numpy and float64."""

    def __init__(self, cfg: Config, state: dict[str, Tensor]):
        self.m, self.state = cfg.model, {name: t.detach().double().numpy() for name, t in state.items()}
        self.table = state["tok_emb.weight"].float().to(torch.float8_e4m3fn).double().numpy()

    def ternary(self, name: str) -> np.ndarray:
        return written_out(torch.from_numpy(self.state[name]), 128, "mean")

    def e4m3(self, name: str) -> np.ndarray:
        return torch.from_numpy(self.state[name]).float().to(torch.float8_e4m3fn).double().numpy()

    @staticmethod
    def norm(x: np.ndarray) -> np.ndarray:
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + torch.finfo(torch.float32).eps)

    def turned(self, x: np.ndarray) -> np.ndarray:
        """Rotate heads `[T, H, D]`, the halves of a head paired."""
        out, dim = x.copy(), x.shape[-1]
        for j in range(dim // 2):
            ramp = min(max((2 * j / dim - 0.25) / 0.75, 0.0), 1.0)
            angle = np.arange(len(x)) * 5000 ** (-2 * j / dim) / (1 + ramp * (2 - 1))
            a, b = x[..., j], x[..., j + dim // 2]
            cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
            out[..., j], out[..., j + dim // 2] = a * cos + b * sin, b * cos - a * sin
        return out

    def attention(self, i: int, x: np.ndarray) -> np.ndarray:
        d, heads, kv = self.m.model_dim, self.m.num_heads, self.m.num_kv_heads
        dim = d // heads
        qkv = x @ self.ternary(f"blocks.{i}.attn.c_qkv.weight").T
        q, k, v = (part.reshape(len(x), -1, dim) for part in np.split(qkv, [d, d + kv * dim], axis=1))
        q = self.turned(self.norm(q)) * self.state[f"blocks.{i}.attn.q_gain"][:, None]
        k, y = self.turned(self.norm(k)), np.zeros_like(q)
        for h in range(heads):
            for t in range(len(x)):
                scores = np.exp(k[: t + 1, h * kv // heads] @ q[t, h] / np.sqrt(dim))
                y[t, h] = scores @ v[: t + 1, h * kv // heads] / scores.sum()
        return self.norm(y.reshape(len(x), d)) @ self.ternary(f"blocks.{i}.attn.proj.weight").T

    def block(self, i: int, x: np.ndarray, x0: np.ndarray) -> np.ndarray:
        mix = self.state[f"blocks.{i}.resid_mix"]
        x = mix[0] * x + mix[1] * x0
        x = x + self.state[f"blocks.{i}.attn_scale"] * self.attention(i, self.norm(x))
        hidden = np.maximum(self.norm(x) @ self.ternary(f"blocks.{i}.mlp.fc.weight").T, 0) ** 2
        return x + self.state[f"blocks.{i}.mlp_scale"] * (
            self.norm(hidden) @ self.ternary(f"blocks.{i}.mlp.proj.weight").T
        )

    def logits(self, ids: list[int]) -> np.ndarray:
        x0 = x = self.norm(self.table[ids] @ self.e4m3("embed_proj.weight").T)
        layers, kept = self.m.num_layers, []
        for i in range(layers):
            if i < layers // 2:
                x = self.block(i, x, x0)
                kept.append(x)
                continue
            if kept:
                x = x + self.state["skip_weights"][i - layers // 2] * kept.pop()
            x = self.block(i, x, x0)
        # The head reads the table as it is trained.
        raw = self.norm(x) @ self.e4m3("embed_proj_rev.weight").T @ self.state["tok_emb.weight"].T
        u = np.clip((raw + self.state["vocab_bias"]) / 10, -2, 2)
        return 10 * np.clip(u - u**3 / 3 + u**5 / 15, -1, 1)


def test_the_records_model_is_its_definition() -> None:
    small = ["model.num_layers=3", "model.model_dim=64", "data.vocab_size=60", "data.fingerprint=null"]
    cfg = golf.compose([*RECORD, *small, "model.compute_dtype=fp32", "data=pydocs"])
    model = golf.build_model(cfg)
    generator = torch.Generator().manual_seed(3)
    for parameter in model.parameters():
        parameter.data.normal_(0, 0.4, generator=generator)
    expected = Definition(cfg, dict(model.scored_weights()))
    ids = [3, 9, 9, 0, 17, 33, 59, 1, 2]
    with torch.no_grad():
        logits = model.double().logits(torch.tensor([ids]), ("fake_quant",))[0]
        np.testing.assert_allclose(logits.numpy(), expected.logits(ids), atol=2e-5)
        targets = torch.tensor([[*ids[1:], 5]])
        log_sums = logits.logsumexp(-1)
        nats = (log_sums - logits.gather(1, targets.T)[:, 0]).mean()
        loss = model(torch.tensor([ids]), targets, ("fake_quant",))
        assert loss.item() == pytest.approx((nats + 1e-4 * log_sums.square().mean()).item(), abs=1e-5)
    assert dataclasses.asdict(cfg.tech["fused_qkv"]) == {"as_one": True}
