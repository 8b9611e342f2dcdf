"""Control parameters are those of the public scripts and of the selected techniques, by whole names."""

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from golf.artifact.quant.policy import is_control, quantize, storage_class, storage_of, unmatched_patterns
from golf.lab.corpora.own_text import OwnDataset
from golf.run.result import read_result
from golf.settings.config import Config, QuantConfig, from_dict, to_dict
from golf.training.techniques.base import Technique, technique
from ideas.smear.smear import Smear
from ideas.swiglu.swiglu import SwiGLU
from tests.support import compose, golf_main, only_run, refusal, tiny_overrides

CONTROL = [
    *("skip_weights", "skip_gates", "smear.gate", "ve_shared.scale", "ve_layer_scales.1"),
    *("blocks.3.attn_scale", "blocks.3.mlp_scale", "blocks.3.resid_mix", "blocks.3.attn.q_gain"),
    *("blocks.3.attn.vr_lambda", "blocks.3.attn.vr_alpha", "blocks.3.attn.attn_gate.weight"),
    "blocks.3.attn.attn_gate.bias",
]
OTHERS = ["tok_emb.weight", "bigram.scale", "bigram.embed.weight", "ve_shared.proj.weight", "blocks.3.mlp.gate.weight"]


def test_the_names_of_every_technique() -> None:
    assert [name for name in CONTROL + OTHERS if is_control(name)] == CONTROL


def test_only_selected_techniques_count(registry: None) -> None:
    """A technique that nobody selects used to make control parameters of other techniques' matrices."""

    @technique("greedy")
    @dataclass
    class Greedy(Technique):
        source = "planted"
        control_names = ("*gate*",)

    name, matrix = "blocks.0.mlp.gate.weight", torch.ones(4, 4)
    assert is_control(name)  # where the selected techniques are not known
    selected = {"swiglu": SwiGLU()}
    assert not is_control(name, selected) and not is_control("smear.gate", selected)
    assert is_control("smear.gate", {"smear": Smear()}) and is_control(name, {**selected, "greedy": Greedy()})
    assert storage_class(name, selected) == "mlp"
    assert storage_of(name, matrix, QuantConfig(), selected).format == "fp16"
    assert quantize({name: matrix}, QuantConfig(), tech=selected)[name].data.dtype == torch.float16
    assert quantize({name: matrix}, QuantConfig(), tech={"greedy": Greedy()})[name].data.dtype == torch.float32


def test_a_pattern_is_of_the_whole_name() -> None:
    assert is_control("smear.gate", {"smear": Smear()})
    assert not is_control("x.smear.gate", {"smear": Smear()}) and not is_control("smeared.gate", {"smear": Smear()})


def test_names_on_the_command_line() -> None:
    rules = "{*attn_gate*:{format:int8,clip:quantile,rounding:nearest},blocks.0.*:int5}"
    cfg = compose(["quant=sdclip_gptq", f"quant.by_name={rules}", "quant.by_name.lm_head=fp16"])
    assert set(cfg.quant.by_name) == {"*attn_gate*", "blocks.0.*", "lm_head"}
    small = torch.zeros(3, 4)
    gate = storage_of("blocks.0.attn.attn_gate.weight", small, cfg.quant)
    assert (gate.format, gate.clip, gate.rounding, gate.clip_k) == (
        "int8",
        "quantile",
        "nearest",
        cfg.quant.attn.clip_k,
    )
    assert storage_of("blocks.0.attn.c_q.weight", small, cfg.quant).format == "int5"
    assert from_dict(Config, to_dict(cfg)).quant == cfg.quant


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        ("{format:int9}", "quant.by_name.*gate*.format=int9 is not known"),
        ("{clip:std}", "quant.by_name.*gate* sets no format"),
        ("{format:int8,rounding:gptq}", "needs inputs, which no class of tensors collects"),
        ("{format:int8,size:3}", "cannot set size: choose from format, clip"),
        ("7", "quant.by_name.*gate*=7 is not known"),
    ],
)
def test_impossible_rules_of_names_are_refused(rule: str, sentence: str) -> None:
    assert sentence in refusal(f"quant.by_name={{*gate*:{rule}}}")


def test_a_pattern_without_a_tensor_is_a_warning_of_the_run(tiny: OwnDataset, runs: Path) -> None:
    said = "quant.by_name.*nothing* is the name of no tensor, and changes nothing."
    done = golf_main(*tiny_overrides(tiny), "quant.by_name={*nothing*:fp16,*attn*:fp16}")
    assert done.returncode == 0 and done.stdout.count(said) + done.stderr.count(said) >= 1
    assert said in read_result(only_run(runs) / "result.json").warnings
    assert unmatched_patterns(QuantConfig(by_name={"a.*": {}, "c": {}}), ["a.b"]) == [
        "quant.by_name.c is the name of no tensor, and changes nothing."
    ]
