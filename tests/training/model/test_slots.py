"""A slot holds what one technique set, or construction ends in a sentence that names both."""

from dataclasses import dataclass
from typing import Any

import pytest

from golf.errors import GolfError
from golf.settings.config import Config, ModelConfig
from golf.training.model.build import build_model
from golf.training.model.gpt import GPT
from golf.training.model.layers import MLP, RMSNorm
from golf.training.model.slots import RECORD, set_fields, set_slot
from golf.training.techniques.base import Technique

SMALL = ModelConfig(vocab_size=20, num_layers=2, model_dim=8, num_heads=2, num_kv_heads=1, compute_dtype="fp32")


@dataclass
class Planted(Technique):
    """A technique that does what a test says."""

    name: str  # type: ignore[misc]
    edit: Any

    def edit_model(self, model: GPT, cfg: Config) -> None:
        self.edit(model)


def built(*edits: Any) -> GPT:
    planted = [Planted(name, edit) for name, edit in zip(("first", "second"), edits, strict=False)]
    return build_model(Config(model=SMALL, tech={technique.name: technique for technique in planted}))


def activation(by: str) -> Any:
    return lambda model: set_slot(model.blocks[0].mlp, "activation", abs, by)


def new_mlp(by: str) -> Any:
    return lambda model: set_slot(model.blocks[0], "mlp", MLP(8, 4), by)


def norm(by: str, **values: float) -> Any:
    return lambda model: set_fields(model.blocks[1], "attn_norm", by, **values)


def replaced_norm(model: GPT) -> None:
    set_slot(model.blocks[1], "attn_norm", model.final_norm, "second")


@pytest.mark.parametrize(
    ("first", "second", "slot"),
    [
        (activation("first"), activation("second"), "MLP.activation"),
        (activation("first"), new_mlp("second"), "Block.mlp"),
        (norm("first", eps=1.0), norm("second", eps=1.0), "Block.attn_norm.eps"),
        (norm("first", eps=1.0), replaced_norm, "Block.attn_norm"),
    ],
    ids=["slot", "module around it", "field", "all fields"],
)
def test_setting_a_slot_twice_names_both_techniques(first: Any, second: Any, slot: str) -> None:
    with pytest.raises(GolfError) as refused:
        built(first, second)
    sentence = f"first and second both set {slot}, which holds one thing: drop one of them."
    assert str(refused.value) == sentence


def test_a_slot_that_does_not_hold_what_was_set_is_refused() -> None:
    def overwrite(model: GPT) -> None:
        model.blocks[1].attn_norm = RMSNorm(factor=3.0)  # type: ignore[assignment]

    with pytest.raises(GolfError, match=r"^first set Block\.attn_norm\.factor, and a later edit replaced that"):
        built(norm("first", factor=2.0), overwrite)


def test_different_fields_of_a_slot_go_together_and_leave_no_record() -> None:
    model = built(norm("first", eps=1.0), norm("second", factor=2.0))
    found: Any = model.blocks[1].attn_norm
    assert (found.eps, found.factor) == (1.0, 2.0)
    assert all(RECORD not in module.__dict__ for module in model.modules())


def test_a_slot_that_does_not_exist_cannot_be_set() -> None:
    with pytest.raises(AttributeError):
        built(lambda model: set_slot(model.blocks[0].mlp, "actvation", abs, "first"))
