"""The forward pass of training is that of the exported weights; gradients pass as if nothing were rounded."""

import numpy as np
import pytest
import torch
from torch import Tensor

from golf.artifact.quant.policy import dequantize, quantize
from golf.run.progress import Progress
from golf.settings.config import Config, ModelConfig, QuantConfig, TensorQuant
from golf.training.model.build import build_model
from golf.training.model.gpt import GPT
from golf.training.techniques.fake_quant import FakeQuant
from tests.support import compose

ON, OFF = ("fake_quant",), ()
IDS = torch.randint(20, (2, 9), generator=torch.Generator().manual_seed(0))
QUANTS = {
    "int8": QuantConfig(small_numel=0, embed=TensorQuant("fp16")),
    "int6": QuantConfig(
        small_numel=0, attn=TensorQuant("int6"), mlp=TensorQuant("int6"), embed=TensorQuant("fp16"), scale_floor="eps"
    ),
    "int5": QuantConfig(small_numel=0, attn=TensorQuant("int5"), mlp=TensorQuant("int5"), embed=TensorQuant("fp16")),
    "searched": QuantConfig(
        small_numel=0,
        attn=TensorQuant("int6", clip="search", clip_search=[0.9, 0.97, 1.0]),
        mlp=TensorQuant("int5", clip="search", clip_search=[0.9, 0.97, 1.0]),
        scale_floor="eps",
    ),
    **{
        f"{fmt} {rotation}": QuantConfig(
            small_numel=0,
            attn=TensorQuant(fmt, clip=clip, clip_k=3.0, rotation=rotation),
            mlp=TensorQuant(fmt, clip=clip, clip_k=3.0, rotation=rotation),
            scale_floor="eps",
            scale_rounding="before",
        )
        for fmt, clip in (("int8", "std"), ("int7", "std"), ("int4", "std"), ("ternary", "absmean"))
        for rotation in ("none", "hadamard")
    },
    "clipped": QuantConfig(small_numel=0, attn=TensorQuant("int6", clip_quantile=0.9), scale_floor="eps"),
}


def small_model(quant: QuantConfig, *techniques: FakeQuant) -> GPT:
    shape = ModelConfig(vocab_size=20, num_layers=3, model_dim=16, num_heads=4, num_kv_heads=2, compute_dtype="fp32")
    model = build_model(Config(model=shape, quant=quant, tech={t.name: t for t in techniques}))
    generator = torch.Generator().manual_seed(1)
    for param in model.parameters():
        param.data.normal_(0, 0.3, generator=generator)
    return model


def is_linear(name: str) -> bool:
    return ".attn.c_" in name or ".proj." in name or ".mlp.fc." in name


def exported(model: GPT, quant: QuantConfig) -> dict[str, Tensor]:
    """The model's state with its linear layers as they come back from the artifact."""
    state = model.state_dict()
    back = dequantize(quantize(state, quant))
    return {name: back[name] if is_linear(name) else tensor for name, tensor in state.items()}


@pytest.mark.parametrize("quant", QUANTS.values(), ids=QUANTS.keys())
def test_logits_and_gradients_are_those_of_the_exported_weights(quant: QuantConfig) -> None:
    model, plain = small_model(quant, FakeQuant()), small_model(quant)
    plain.load_state_dict(exported(model, quant))
    assert not torch.allclose(model.logits(IDS, ON), model.logits(IDS, OFF), atol=1e-3)
    torch.testing.assert_close(model.logits(IDS, ON), plain.logits(IDS), rtol=1e-6, atol=1e-6)
    model(IDS[:, :-1], IDS[:, 1:], ON).backward()
    plain(IDS[:, :-1], IDS[:, 1:]).backward()
    assert all(p.grad is not None for p in plain.parameters())
    found, expected = ({k: p.grad for k, p in m.named_parameters()} for m in (model, plain))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)  # no mask, for clipped weights either


@pytest.mark.parametrize(("fmt", "qmax"), [("int8", 127), ("int6", 31), ("int5", 15)])
@pytest.mark.parametrize("floor", ["one_over_qmax", "eps"])
def test_a_row_is_clipped_at_its_quantile_and_rounded_to_its_grid(fmt: str, qmax: int, floor: str) -> None:
    quant = QuantConfig(small_numel=0, mlp=TensorQuant(fmt, clip_quantile=0.95), scale_floor=floor)
    linear = small_model(quant, FakeQuant()).blocks[0].mlp.fc
    effective = linear(torch.eye(16), ON).T.detach().numpy()
    for row, found in zip(linear.weight.detach().double().numpy(), effective, strict=True):
        magnitudes = np.sort(np.abs(row))
        at = 0.95 * 15
        clip = magnitudes[int(at)] + (at - int(at)) * (magnitudes[int(at) + 1] - magnitudes[int(at)])
        step = max(clip, 1.0) / qmax if floor == "one_over_qmax" else clip / qmax
        codes = np.rint(np.clip(row, -clip, clip) / step)
        np.testing.assert_allclose(found, codes * np.float64(np.float16(step)), rtol=1e-5, atol=1e-7)


def test_only_linear_layers_that_are_stored_as_integers_are_rounded() -> None:
    quant = QuantConfig(
        small_numel=511, attn=TensorQuant("int6"), embed=TensorQuant("int5"), by_name={"blocks.1.mlp.fc*": "fp16"}
    )
    model, plain = small_model(quant, FakeQuant()), small_model(quant)  # attention's matrices are smaller than 512
    rounded = {f"blocks.{i}.mlp.{part}.weight" for i in range(3) for part in ("fc", "proj")} - {
        "blocks.1.mlp.fc.weight"
    }
    back = exported(model, quant)
    plain.load_state_dict({name: back[name] if name in rounded else t for name, t in model.state_dict().items()})
    torch.testing.assert_close(model.logits(IDS, ON), plain.logits(IDS), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("technique", "on"),
    [
        (FakeQuant(), [True, True, True, True]),
        (FakeQuant(start_fraction=0.85), [False, False, True, True]),
        (FakeQuant(lr_threshold=0.15), [False, False, False, True]),
    ],
)
def test_starts_with_the_run_at_a_fraction_or_below_a_multiplier(technique: FakeQuant, on: list[bool]) -> None:
    times = [(0.0, 1.0), (0.849, 0.3), (0.85, 0.15), (0.9, 0.149)]
    assert [technique.is_on(Progress(0, fraction, multiplier)) for fraction, multiplier in times] == on


def test_the_untied_head_is_rounded_too() -> None:
    cfg = compose(
        [
            *("scale=laptop", "model=4l", "model.model_dim=32", "model.compute_dtype=fp32"),
            *("model.tie_embeddings=false", "quant.small_numel=0", "data.fingerprint=null", "data.vocab_size=64"),
            "tech=[fake_quant]",
        ]
    )
    model = build_model(cfg)
    with torch.no_grad():
        model.lm_head.weight.normal_(std=0.1)
        model.tok_emb.weight.normal_()
    other = build_model(cfg)
    stored = dequantize(quantize(model.state_dict(), cfg.quant))
    other.load_state_dict(
        {**model.state_dict(), **{k: t for k, t in stored.items() if ".weight" in k and "emb" not in k}}
    )
    ids = torch.arange(24)[None]
    torch.testing.assert_close(model.logits(ids, ("fake_quant",)), other.logits(ids, ()), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("clip", ["artifact", "max"])
def test_training_may_round_by_another_range_than_the_artifact(clip: str) -> None:
    """Steps of the row's own range in training, where the artifact has the floor of 1/31 and cuts at a quantile."""
    quant = QuantConfig(small_numel=0, mlp=TensorQuant("int6", clip_quantile=0.95), scale_floor="one_over_qmax")
    linear = small_model(quant, FakeQuant(clip=clip, scale_floor="eps")).blocks[0].mlp.fc
    weight = linear.weight.detach()
    limit = weight.abs().amax(1) if clip == "max" else weight.abs().quantile(0.95, dim=1)
    assert limit.max() < 1.0  # so that the artifact's floor would be active
    step = limit / 31
    codes = (weight.clamp(-limit[:, None], limit[:, None]) / step[:, None]).round()
    found = linear(torch.eye(16), ON).T.detach()
    torch.testing.assert_close(found, codes * step.half().float()[:, None], rtol=1e-5, atol=1e-7)
