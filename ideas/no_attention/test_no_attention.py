"""A layer without attention is one whose attention gives nothing."""

from typing import Any

import pytest
import torch

from golf.training.data.documents import BOS_ID
from golf.training.model.build import build_model
from golf.training.model.documents import separate_documents
from golf.training.techniques.xsa import XSA
from ideas.fused_qkv.fused_qkv import FusedQKV
from ideas.no_attention.no_attention import NoAttention
from ideas.recurrence.recurrence import Recurrence
from ideas.untied_mlps.test_untied_mlps import IDS, ON, config, shaken
from tests.support import refusal

SMALL = ("scale=laptop", "model=4l")


@pytest.mark.parametrize(
    ("layers", "more", "active"),
    [([0], [], ()), ([-1, 1], [XSA(), FusedQKV()], ()), ([0], [Recurrence(first=1, last=2, controls="by_visit")], ON)],
)
def test_the_layer_is_that_of_attention_with_an_output_of_zero(
    layers: list[int], more: list[Any], active: tuple[str, ...]
) -> None:
    whole = shaken(build_model(config(*more)).double())
    for layer in layers:
        whole.blocks[layer].attn.proj.weight.data.zero_()
    model = build_model(config(*more, NoAttention(layers))).double()
    unused, missing = model.load_state_dict(whole.state_dict(), strict=False)[::-1]
    assert missing == [] and {name.split(".")[1] for name in unused} == {str(layer % 4) for layer in layers}
    assert all(".attn" in name for name in unused)
    assert torch.equal(model.logits(IDS, active), whole.logits(IDS, active))


def test_the_other_layers_keep_documents_apart() -> None:
    whole = shaken(build_model(config()).double())
    whole.blocks[0].attn.proj.weight.data.zero_()
    model = build_model(config(NoAttention([0]))).double()
    model.load_state_dict(whole.state_dict(), strict=False)
    ids = IDS.masked_fill(torch.arange(IDS.size(1)) % 3 == 0, BOS_ID)
    across = model.logits(ids)
    for separate in (whole, model):
        separate_documents(separate, ids.size(1))
    assert torch.equal(model.logits(ids), whole.logits(ids)) and not torch.allclose(model.logits(ids), across)


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["tech=[no_attention]", "tech.no_attention.layers=[4]"], "names layer 4"),
        (["tech=[no_attention]", "tech.no_attention.layers=[0,-4]"], "different layers"),
        (["tech=[no_attention]", "tech.no_attention.layers=[0,1,2,3]"], "not all"),
        (["tech=[no_attention,value_embed]", "tech.no_attention.layers=[3]"], "leave it out of its layers"),
        (["tech=[no_attention]", "eval=ttt_lora"], "lora_targets=[mlp,head]"),
        (["tech=[no_attention,recurrence]", "tech.recurrence={first:0,last:1,controls:by_visit}"], "before the loop"),
    ],
)
def test_what_does_not_go_with_it_is_refused(overrides: list[str], sentence: str) -> None:
    assert sentence in refusal(*SMALL, *overrides)
