"""Whole stacks of techniques against the public scripts' numbers, reached through configuration alone."""

from typing import Any

import numpy as np
import pytest
import torch

from golf.training.loop.calibration import collect
from golf.training.model.build import build_model, build_scored_model
from golf.training.model.gpt import GPT, State
from golf.training.model.layers import Context
from golf.training.ranks import Ranks
from ideas.parallel_lanes.parallel_lanes import Lanes, LaneStream
from tests.support import compose, parity

STACK = "tech=[bigram,smear,xsa,partial_rope,ln_scale,value_embed]"


def stack_overrides(config: dict[str, Any]) -> list[str]:
    """Overrides for a parity case in the public scripts' terms."""
    return [
        "scale=laptop",
        "data.fingerprint=null",
        f"data.vocab_size={config['vocab_size']}",
        *(f"model.{key}={config[key]}" for key in ("num_layers", "model_dim", "num_heads", "num_kv_heads", "mlp_mult")),
        "model.compute_dtype=fp32",
        f"tech.bigram.buckets={config['bigram_vocab_size']}",
        f"tech.bigram.dim={config['bigram_dim']}",
        f"tech.xsa.last_n={config['xsa_last_n']}",
        f"tech.partial_rope.dims={config['rope_dims']}",
        f"tech.value_embed.dim={config['ve_dim']}",
        f"tech.value_embed.layers=[{config['ve_layers']}]",
    ]


@pytest.mark.parametrize(
    ("case", "tech"), [("gold6_11l", STACK), ("pr593_leaky_banks", STACK.replace("]", ",leaky_relu]"))]
)
def test_parity_of_the_eleven_layer_stacks(case: str, tech: str) -> None:
    arrays, config = parity(case)
    assert_parity(build_model(compose([tech, *stack_overrides(config)])), arrays)


APRIL = "xsa,partial_rope,ln_scale,leaky_relu,recurrence,skip_gates"
LOOP09 = [f"tech=[{APRIL},parallel_lanes]", "tech.parallel_lanes.first=5", "tech.recurrence.first=2"]
RECUR03 = [f"tech=[{APRIL},value_embed]", "tech.value_embed.dim=12", "tech.value_embed.layers=[5,6]"]


@pytest.mark.parametrize(
    ("case", "overrides", "active", "suffix"),
    [
        ("loop09_parresid", [*LOOP09, "tech.recurrence.last=4", "tech.recurrence.passes=3"], ("recurrence",), ""),
        *(
            ("recur03_muoneqr", [*RECUR03, "tech.recurrence={first:2,last:3,skip_rows:repeated}"], active, suffix)
            for active, suffix in ((("recurrence",), ""), ((), "_off"))
        ),
    ],
)
def test_parity_of_the_april_stacks(case: str, overrides: list[str], active: tuple[str, ...], suffix: str) -> None:
    arrays, config = parity(case)
    assert_parity(build_model(compose([*overrides, *april_overrides(config["effective"])])), arrays, active, suffix)


LANES = ["tech.parallel_lanes={form:separate,first:5}", "tech.recurrence={first:3,last:4}"]
LANES08 = [f"tech=[{APRIL},parallel_lanes]", *LANES, "tech.recurrence.passes=3"]
LANES04 = [f"tech=[{APRIL},parallel_lanes,value_embed]", *LANES, "tech.recurrence.skip_rows=omitted"]
LANES04 += ["tech.value_embed.dim=12", "tech.value_embed.layers=[6,7]"]


class WithoutSkips(LaneStream):
    """The lanes of 4 April, which join no skip but the one in front of them."""

    def visit(self, model: GPT, x: State, skip: State | None, context: Context) -> State:
        return super().visit(model, x, None if isinstance(x, Lanes) else skip, context)


@pytest.mark.parametrize("case", ["lanes08", "lanes04"])
@pytest.mark.parametrize(("active", "suffix"), [(("recurrence",), ""), ((), "_off")])
def test_parity_of_separate_lanes(case: str, active: tuple[str, ...], suffix: str) -> None:
    arrays, config = parity(case)
    overrides = LANES08 if case == "lanes08" else LANES04
    model = build_model(compose([*overrides, *april_overrides(config["effective"])]))
    if case == "lanes04":
        model.stream = WithoutSkips("separate", 5)
    assert_parity(model, arrays, active, suffix)


LQER27 = [
    f"tech=[{APRIL},parallel_lanes,gated_attention,smear]",
    *("tech.parallel_lanes.first=6", "tech.parallel_lanes.form=crossed", "tech.recurrence={first:2,last:4,passes:3}"),
    *("tech.gated_attention={bias:null,window:12,scale:0.5}", "tech.smear={form:add,mask_bos:true}"),
]
FIRST_LANE = 6  # golf has lambdas for the layers in lanes alone


def of_lqer27(arrays: dict[str, np.ndarray], kind: str, first_lane: int = FIRST_LANE) -> dict[str, torch.Tensor]:
    """Return parameters or gradients of a 27 April case under golf's names."""
    found = {}
    for key, value in arrays.items():
        if key.startswith(f"{kind}/"):
            name = key.removeprefix(f"{kind}/").replace("attn_gate_w", "attn_gate.weight")
            name = name.replace("smear_lambda", "smear.strength").replace("smear_gate.", "smear.gate.")
            found[name] = torch.from_numpy(value[first_lane:] if name.startswith("parallel_") else value)
    return found


def lqer27_model(arrays: dict[str, np.ndarray], config: dict[str, Any], *overrides: str) -> GPT:
    model = build_model(compose([*LQER27, *april_overrides(config["effective"]), *overrides]))
    model.load_state_dict(of_lqer27(arrays, "param"))
    return model


def test_parity_of_27_april_on_rows() -> None:
    arrays, config = parity("lqer27_loop_on")
    model = lqer27_model(arrays, config)
    ids, targets = (torch.from_numpy(arrays[f"dense_{name}_ids"]) for name in ("input", "target"))
    assert model(ids, targets, ("recurrence",)).item() == pytest.approx(float(arrays["dense_loss"]), rel=1e-5)
    expected = torch.from_numpy(arrays["dense_logits"])
    torch.testing.assert_close(model.logits(ids, ("recurrence",)), expected, rtol=1e-4, atol=1e-4)


def test_parity_of_27_april_on_a_packed_row() -> None:
    """Documents longer than the sequence are cut, and attention ends with a document."""
    arrays, config = parity("lqer27_loop_on")
    model = lqer27_model(arrays, config, "model.within_documents=true", "eval.documents=true", "data.train_seq_len=32")
    ids, targets = torch.from_numpy(arrays["input_ids"]), torch.from_numpy(arrays["target_ids"])
    loss = model(ids, targets, ("recurrence",))
    loss.backward()
    assert loss.item() == pytest.approx(float(arrays["loss"]), rel=1e-5)
    for name, gradient in of_lqer27(arrays, "grad").items():
        found = model.get_parameter(name).grad
        assert found is not None and (found - gradient).norm() <= 1e-5 * gradient.norm() + 1e-8, name


def test_parity_of_27_aprils_hessians() -> None:
    """Every pass of a looped layer counts; the tied embedding has the inputs of the head."""
    arrays, config = parity("hessians27_loop")
    params, shape = parity("lqer27_loop_on")
    quant = ["quant=sdclip_lqer", "quant.small_numel=64", "quant.calibration.tokens=192", "eval.dtype=fp32"]
    cfg = compose([*LQER27, *april_overrides(shape["effective"]), *quant])
    batches = iter(torch.from_numpy(arrays["calibration_ids"]))
    model = build_model(cfg)
    weights = of_lqer27(params, "param")
    model.load_state_dict(weights)
    model = build_scored_model(cfg, torch.device("cpu"))
    found = collect(cfg, model, weights, Ranks(), lambda: (next(batches),) * 2).hessians
    for key, expected in arrays.items():
        kind, _, name = key.partition("/")
        if kind == "H":
            # The record divides by the number of batches, which changes no code.
            own = found[name] / config["n_calibration_batches"]
            assert (own - torch.from_numpy(expected)).norm() <= 1e-5 * float(np.linalg.norm(expected)), name
        elif kind == "trace":
            assert float(found[name].trace()) / 3 == pytest.approx(float(expected), rel=1e-5), name


def april_overrides(config: dict[str, Any]) -> list[str]:
    """Overrides for what all cases of April set."""
    shape = ("num_layers", "model_dim", "num_heads", "num_kv_heads", "mlp_mult", "qk_gain_init")
    return [
        *("scale=laptop", "data.fingerprint=null", f"data.vocab_size={config['vocab_size']}"),
        *(f"model.{key}={config[key]}" for key in shape),
        "model.compute_dtype=fp32",
        *("tech.xsa.last_n=null", f"tech.partial_rope.dims={config['rope_dims']}"),
        "tech.partial_rope.reference_len=null",
    ]


def assert_parity(model: GPT, arrays: dict[str, np.ndarray], active: tuple[str, ...] = (), suffix: str = "") -> None:
    """Load a case's parameters and compare loss, logits and gradients."""
    model.load_state_dict({k.removeprefix("param/"): torch.from_numpy(v) for k, v in arrays.items() if "param/" in k})
    ids, targets = torch.from_numpy(arrays["input_ids"]), torch.from_numpy(arrays["target_ids"])
    loss = model(ids, targets, active)
    loss.backward()
    assert loss.item() == pytest.approx(float(arrays[f"loss{suffix}"]), rel=1e-5)
    if f"logits{suffix}" in arrays:
        expected_logits = torch.from_numpy(arrays[f"logits{suffix}"])
        torch.testing.assert_close(model.logits(ids, active), expected_logits, rtol=1e-4, atol=1e-4)
    for name, param in model.named_parameters():
        assert param.grad is not None, name
        expected = torch.from_numpy(arrays[f"grad{suffix}/{name}"])
        assert (param.grad - expected).norm() <= 1e-5 * expected.norm() + 1e-8, name


def test_parity_of_a_cap_whose_two_halves_are_equal() -> None:
    """PR #1923: both halves start at 30 and nothing trains them, so its runs have the plain cap, as here."""
    arrays, config = parity("asym2014")
    e = config["effective"]
    loop = f"tech.recurrence={{first:{e['loop_start']},last:{e['loop_end']},passes:{e['num_loops'] + 1}}}"
    lanes, documents = (
        f"tech.parallel_lanes.first={e['parallel_start_layer']}",
        [
            *("model.within_documents=true", "eval.documents=true"),
            f"data.train_seq_len={e['train_seq_len']}",
        ],
    )
    model = build_model(compose([*LQER27, *april_overrides(e), loop, lanes, *documents]))
    model.load_state_dict(of_lqer27(arrays, "param", e["parallel_start_layer"]))
    ids = torch.from_numpy(arrays["input_ids"]).view(1, -1).long()
    raw = model.head(model.hidden(ids, ("recurrence",)))[0]
    shape = raw.shape
    torch.testing.assert_close(raw, torch.from_numpy(arrays["raw_logits"]).view(shape), rtol=1e-4, atol=1e-4)
    expected = torch.from_numpy(arrays["logits_symmetric"]).view(shape)
    torch.testing.assert_close(model.softcap(raw), expected, rtol=1e-4, atol=1e-4)
    assert config["gradients"]["training_forward"] == {"softcap_pos": None, "softcap_neg": None}
