"""Choices and ranges at the fields: what they accept, their sentences, and the tables that follow them."""

import dataclasses
from typing import Any

import pytest

from golf.artifact.codec.codecs import CODEC_IDS
from golf.artifact.codec.layouts import LAYOUT_BITS
from golf.artifact.quant.formats import FLOAT_DTYPES, QMAX
from golf.errors import GolfError
from golf.settings.config import Config, LQERConfig, QuantConfig, TensorQuant
from golf.settings.consistency import CODEC_LEVELS
from golf.settings.fields import ALLOWED, check_fields, choices


def changed(key: str, value: Any) -> Config:
    cfg = Config()
    node: Any = cfg
    *groups, name = key.split(".")
    for group in groups:
        node = getattr(node, group)
    setattr(node, name, value)
    return cfg


def test_every_default_is_allowed() -> None:
    check_fields(Config())


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        (
            "data.loader",
            "random",
            "data.loader=random is not known: choose one of sequential, coprime, shuffled, packed, packed_shuffled.",
        ),
        ("launch.device", "tpu", "launch.device=tpu is not known: choose one of auto, cpu, cuda, mps."),
        ("sweep.reference", "last", "sweep.reference=last is not known: choose one of null, first, none."),
        ("quant.other.rounding", "up", "quant.other.rounding=up is not known: choose one of nearest, gptq, trellis."),
        ("track.attach", ["log", "x"], "track.attach=x is not known: choose one of config, log, curves, artifact."),
        ("seed", -1, "seed=-1 has to be at least 0."),
        ("launch.jobs", 0, "launch.jobs=0 has to be at least 1."),
        ("rules.alpha", 0.0, "rules.alpha=0.0 has to be above 0 and below 1."),
        ("rules.alpha", float("nan"), "rules.alpha=nan has to be above 0 and below 1."),
        ("model.qk_gain_init", float("nan"), "model.qk_gain_init=nan is not a finite number."),
        ("budget.eval_seconds", float("inf"), "budget.eval_seconds=inf is not a finite number."),
        ("seed", 2**64, f"seed={2**64} has to be at most {2**63 - 1}."),
        ("data.train_batch_tokens", 10**20, f"data.train_batch_tokens={10**20} has to be at most {2**63 - 1}."),
        ("model.num_layers", 10**7, "model.num_layers=10000000 has to be at least 1 and at most 1000."),
        ("eval.ttt.momentum", 1.0, "eval.ttt.momentum=1.0 has to be at least 0 and below 1."),
        ("quant.gptq.damping", [0.1, 2.0], "quant.gptq.damping=2.0 has to be at least 0 and at most 1."),
        ("quant.mlp.clip_search", [], "quant.mlp.clip_search is empty: list at least one number."),
    ],
)
def test_a_sentence_names_key_value_and_what_is_allowed(key: str, value: Any, sentence: str) -> None:
    with pytest.raises(GolfError) as caught:
        check_fields(changed(key, value))
    assert str(caught.value) == sentence


def test_the_values_of_a_dict_are_checked_by_name() -> None:
    with pytest.raises(GolfError, match=r"^quant\.by_name\.blocks\.0\.\*=int9 is not known: choose one of int8, int7"):
        check_fields(changed("quant.by_name", {"lm_head": "fp16", "blocks.0.*": "int9"}))


@pytest.mark.parametrize(("key", "value"), [("launch.jobs", None), ("sweep.kind", None), ("quant.layout", [])])
def test_null_and_empty_lists_are_allowed_where_they_are_the_default(key: str, value: Any) -> None:
    check_fields(changed(key, value))


def test_an_unused_group_is_not_checked() -> None:
    cfg = changed("eval.ttt.epochs", 0)
    check_fields(cfg, unused={"eval.ttt"})
    with pytest.raises(GolfError, match=r"eval\.ttt\.epochs=0"):
        check_fields(cfg)


def test_tables_have_a_row_for_every_choice() -> None:
    assert set(CODEC_IDS) == set(choices(QuantConfig, "codec")) == {*CODEC_LEVELS, "context"}
    assert set(LAYOUT_BITS) == set(choices(QuantConfig, "layout"))
    assert set(QMAX) == {*choices(LQERConfig, "format"), "ternary"}
    assert set(choices(TensorQuant, "format")) <= {*QMAX, *FLOAT_DTYPES}


def test_the_first_choice_is_the_default() -> None:
    declared = [f for kind in (TensorQuant, QuantConfig) for f in dataclasses.fields(kind) if f.metadata]
    for field in (f for f in declared if isinstance(f.default, str)):
        assert field.metadata[ALLOWED].names[0] == field.default
