"""Leave-one-out and add-one lists over the techniques of an experiment."""

from __future__ import annotations

import re

import pytest

from golf.errors import GolfError
from golf.registry import technique_types
from golf.settings import composition
from golf.settings.ablation import add_one, interaction, leave_one_out, separable
from golf.settings.config import Config
from golf.settings.dropping import drop
from tests.support import compose

GOLD6 = [
    "bigram",
    "ema",
    "grad_clip",
    "ln_scale",
    "ortho_init",
    "partial_rope",
    "smear",
    "value_embed",
    "weight_decay",
    "xsa",
]


def gold6() -> Config:
    return compose(["experiment=gold6_11l", "scale=laptop"])


def test_every_technique_and_setting_that_the_stack_switches_on() -> None:
    assert separable(gold6()) == GOLD6
    assert separable(compose(["experiment=fp16_embed_wd3600", "scale=laptop"])) == ["fp16_embed"]
    assert separable(compose(["tech=[xsa]", "eval=sliding64", "scale=laptop", "optim=parallel_muon"])) == ["xsa"]


def test_lists_of_a_stack_of_separate_techniques() -> None:
    assert leave_one_out(gold6()) == [[], *([name] for name in GOLD6)]
    assert add_one(gold6()) == [GOLD6, *([n for n in GOLD6 if n != name] for name in GOLD6)]


def test_two_changes_run_alone_and_together(monkeypatch: pytest.MonkeyPatch) -> None:
    two = compose(["tech=[xsa,ema]", "scale=laptop"])
    assert interaction(two) == [["ema", "xsa"], ["xsa"], ["ema"], []]
    with_setting = compose(["tech=[xsa]", "optim.grad_clip_norm=1", "scale=laptop"])
    assert interaction(with_setting) == [["grad_clip", "xsa"], ["xsa"], ["grad_clip"], []]
    for overrides, sentence in ((["tech=[xsa]"], "here are 1 (xsa)"), (["tech=[xsa,ema,smear]"], "here are 3")):
        with pytest.raises(GolfError, match=re.escape(sentence)):
            interaction(compose([*overrides, "scale=laptop"]))
    monkeypatch.setattr(technique_types()["xsa"], "requires", ("ema",))
    with pytest.raises(GolfError, match="ema and xsa do not run alone"):
        interaction(compose(["tech=[xsa,ema]", "scale=laptop"]))


def test_every_row_is_a_variant_of_its_own() -> None:
    for lists in (leave_one_out(gold6()), add_one(gold6())):
        cfgs = [dropped(names) for names in lists]
        assert len({str(cfg.tech) + str(cfg.optim) for cfg in cfgs}) == len(GOLD6) + 1
        composed = compose(["experiment=gold6_11l", "scale=laptop", f"drop=[{','.join(lists[-1])}]"])
        assert (composed.tech, composed.optim) == (cfgs[-1].tech, cfgs[-1].optim)


def dropped(names: list[str]) -> Config:
    cfg = gold6()
    cfg.drop = names
    drop(cfg)
    return cfg


@pytest.mark.slow
def test_entangled_techniques_go_and_come_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """xsa needs smear, smear needs bigram; ema stands alone."""
    monkeypatch.setattr(technique_types()["xsa"], "requires", ("smear",))
    monkeypatch.setattr(technique_types()["smear"], "requires", ("bigram",))
    cfg = composition.compose(["tech=[bigram,smear,xsa,ema]", "scale=laptop"])
    assert leave_one_out(cfg) == [[], ["bigram", "smear", "xsa"], ["ema"], ["smear", "xsa"], ["xsa"]]
    everything = ["bigram", "ema", "smear", "xsa"]
    assert add_one(cfg) == [everything, ["ema", "smear", "xsa"], ["bigram", "smear", "xsa"], ["ema", "xsa"], ["ema"]]
    for names in (*leave_one_out(cfg), *add_one(cfg)):
        composition.compose(["tech=[bigram,smear,xsa,ema]", "scale=laptop", f"drop=[{','.join(names)}]"])


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        ([], "nothing to take out one at a time"),
        (["tech=[xsa]", "drop=[xsa]"], r"drop=\[xsa\] has no place in it"),
    ],
)
def test_what_cannot_be_taken_apart(overrides: list[str], sentence: str) -> None:
    with pytest.raises(GolfError, match=sentence):
        separable(compose([*overrides, "scale=laptop"]))
