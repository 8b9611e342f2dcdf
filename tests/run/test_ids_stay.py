"""Variant ids and finished runs of version 0.2.0 stay what they are when settings are added."""

import dataclasses
import shutil
import typing
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from golf.errors import GolfError
from golf.idea_folders import ONCE_BUILT_IN as ONCE_BUILT_IN_CODE
from golf.idea_folders import ideas
from golf.registry import technique_types
from golf.run.folder import finished_run
from golf.run.identity import flat, identity_of, variant_id
from golf.settings.composition import compose
from golf.settings.config import Config, from_dict, to_dict
from golf.settings.fields import LATER, later, one_of, written_values

FIXTURES = Path(__file__).parent / "fixtures"
FLOAT32 = ["model.compute_dtype=fp32", "optim.muon_dtype=fp32", "eval.dtype=fp32", "model.attention=sdpa"]
BFLOAT16 = ["model.compute_dtype=bf16", "optim.muon_dtype=bf16", "eval.dtype=fp32", "model.attention=sdpa"]
# The batch of 0.2.0 and, as they were the record's at every scale, its learning rates and warm-down.
BATCH = ["data.train_batch_tokens=8192", "data.micro_batches=4", "scale.step_ratio=0.03"]
BATCH += ["eval.val_loss_every=100", "eval.val_batch_tokens=16384"]
UNTUNED = ["scale=laptop", *BATCH, "scale.rate_ratio=1", "scale.warmdown_ratio=1"]
PINNED = {
    "af6012c2": [*UNTUNED, "model=4l", "data=pydocs", *FLOAT32],  # the default run
    "fced03d1": ["experiment=gold6_11l", "scale=laptop", *BATCH, "data=pydocs", *FLOAT32],
    "858e4fdd": ["experiment=gold6_11l", "scale=record", *FLOAT32],
}


ONCE_BUILT_IN = {  # variants of ideas that were techniques of golf
    "d923cb9b": ["experiment=negative/soft_round", "scale=record", *FLOAT32],
    "4543ef26": ["experiment=negative/fused_qkv", "scale=record", *FLOAT32],
    "c373b42b": ["experiment=negative/value_residual", "scale=record", *FLOAT32],
    "24a4b6b9": ["experiment=records/2026-04-19_caseops_gated_attn", "scale=record", *FLOAT32],
    "306c34cd": ["experiment=records/2026-03-31_parallel_mini_recurrence", "scale=record", *FLOAT32],
    "ea5292a9": ["experiment=records/2026-03-19_10l_muon_wd_overtone", "scale=record", *FLOAT32],
    "92fe4662": ["experiment=single_h100_8l", "scale=record", *FLOAT32],
    "dac95571": ["experiment=records/2026-03-20_int6_mlp3x_swa", "scale=laptop", *BATCH, *FLOAT32],
    "0ea3f8a3": ["experiment=records/2026-03-21_11l_partial_rope", "scale=record", *FLOAT32],
    "5b7962b7": ["experiment=records/2026-04-01_vocab4096_mlp4x", "scale=record", *FLOAT32],
    "16e45af9": ["experiment=records/2026-04-10_varlen_attn", "scale=record", *FLOAT32],
    "93d4ed36": ["model=9l", "tech=[swiglu]", "scale=record", *FLOAT32],
}


def settings_of(kind: type, prefix: str = "") -> Iterator[tuple[str, bool]]:
    """Yield the full key of every setting of a dataclass, and whether it was added later."""
    hints = typing.get_type_hints(kind)
    for declared in dataclasses.fields(kind):
        if dataclasses.is_dataclass(wanted := hints[declared.name]):
            yield from settings_of(typing.cast(type, wanted), f"{prefix}{declared.name}.")
        else:
            yield f"{prefix}{declared.name}", LATER in declared.metadata


@pytest.mark.parametrize(
    "pinned", [PINNED, pytest.param(ONCE_BUILT_IN, marks=pytest.mark.slow)], ids=["built in", "ideas"]
)
def test_pinned_variants_keep_their_ids(pinned: dict[str, list[str]]) -> None:
    assert {variant_id(compose(overrides)): overrides for overrides in pinned.values()} == pinned


def test_code_of_ideas_that_were_built_in_is_the_noted_one() -> None:
    """Else their variants have new ids. Who edits one writes its new hash, if it trains as before."""
    now = {name: ideas()[name].digest() for name in ONCE_BUILT_IN_CODE}
    assert now == ONCE_BUILT_IN_CODE, "golf/once_built_in.csv has other hashes"


def test_a_new_setting_is_declared_later() -> None:
    """A whole new technique may have any settings: its variants did not exist before."""
    known = (FIXTURES / "settings_0_2.txt").read_text().split()
    techniques = {key.split(".")[1] for key in known if key.startswith("tech.")}
    now = dict(settings_of(Config))
    for name in techniques:
        now |= dict(settings_of(technique_types()[name], f"tech.{name}."))
    undeclared = sorted(key for key, is_later in now.items() if key not in known and not is_later)
    assert undeclared == [], "declare it with later(…) of golf/settings/fields.py, or every variant gets a new id"
    # A setting that became a constant is still written, so ids stay.
    written = {key for key, _ in flat(to_dict(compose([])))}
    assert sorted(set(known) - now.keys() - written) == [], "a setting that is gone renames every variant"


def test_a_constant_that_was_a_setting_opens_at_its_value_alone() -> None:
    values = to_dict(compose([]))
    assert values["quant"]["prune"]["codes"] == "ones" and values["quant"]["gptq"]["act_order"] is True
    assert to_dict(from_dict(Config, values)) == values
    values["quant"]["prune"]["codes"] = "all"
    with pytest.raises(GolfError, match="PruneConfig does not know codes: it was written by another version of golf"):
        from_dict(Config, values)


def test_a_run_of_the_first_version_is_finished_today(runs: Path) -> None:
    shutil.copytree(FIXTURES / "finished_0_1", runs)
    small = ["schedule.iterations=6", "budget.train_seconds=0", "model.model_dim=64", "data=pydocs"]
    cfg = compose([*UNTUNED, "model=4l", "optim.matrix_lr=0.04", "seed=1", *small, *BFLOAT16])
    done = finished_run(variant_id(cfg), cfg.seed)
    assert done is not None and done[0].post_quant is not None and done[0].artifact_bytes == 107_202
    assert variant_id(done[1].read_config()) == variant_id(cfg) == "b83a0f66"


@dataclass
class Inner:
    form: str = one_of("plain", "rows")
    rows: str = later(one_of("off", "on"))


@dataclass
class Outer:
    inner: Inner = field(default_factory=Inner)
    taper: float = later(0.0)
    starts: list[float] = later(field(default_factory=list))
    tech: dict[str, Inner] = field(default_factory=dict)


def test_later_settings_are_written_once_they_change_something() -> None:
    assert written_values(Outer()) == {"inner": {"form": "plain"}, "tech": {}}
    changed = Outer(Inner("rows", "on"), 0.5, [0.3], {"gate": Inner()})
    assert written_values(changed) == {
        "inner": {"form": "rows", "rows": "on"},
        "taper": 0.5,
        "starts": [0.3],
        "tech": {"gate": {"form": "plain"}},
    }
    assert from_dict(Outer, written_values(dataclasses.replace(changed, tech={}))) == dataclasses.replace(
        changed, tech={}
    )


def test_a_later_setting_at_its_default_is_in_no_id() -> None:
    before = identity_of(to_dict(Config()))
    with_later = dataclasses.make_dataclass("WithLater", [("row_norm", bool, later(False))], bases=(Config,))
    assert identity_of(to_dict(with_later())) == before
    assert identity_of(to_dict(with_later(row_norm=True))) == before | {"row_norm": True}
