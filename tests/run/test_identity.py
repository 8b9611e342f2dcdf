"""What makes a variant, and what does not."""

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import pytest

from golf.run.identity import identity, variant_id
from golf.settings.config import Config
from tests.support import compose


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (["optim.matrix_lr=0.02"], ["optim.matrix_lr=2e-2"]),
        (["optim.matrix_lr=1"], ["optim.matrix_lr=1.0"]),
        (["optim.matrix_lr=.02"], ["optim.matrix_lr=0.020"]),
        (["eval.ttt.momentum=0"], ["eval.ttt.momentum=0.0"]),
        (["eval.ttt.lr=1"], ["eval.ttt.lr=1.00"]),
        (["eval=sliding64"], ["eval.stride=64"]),
        (["seed=1"], ["seed=2"]),
        (["launch.train_log_every=7"], ["launch.threads=1"]),
        (["note=hello"], ["name=other"]),
        (["model=9l"], ["model=11l", "model.num_layers=9", "model.mlp_mult=2"]),
        (
            ["experiment=lower_lr"],
            ["model=9l", "optim.matrix_lr=0.02", "optim.scalar_lr=0.02", "optim.tied_embed_lr=0.03"],
        ),
    ],
)
def test_one_variant_under_two_descriptions(one: list[str], other: list[str]) -> None:
    assert variant_id(compose(one)) == variant_id(compose(other))


def setting_paths(node: Any, prefix: str = "") -> Iterator[str]:
    """`group.key` of every setting, nested groups too."""
    for field in dataclasses.fields(node):
        value = getattr(node, field.name)
        if dataclasses.is_dataclass(value):
            yield from setting_paths(value, f"{prefix}{field.name}.")
        else:
            yield prefix + field.name


def test_every_other_field_counts() -> None:
    """Change each field in turn: only labels, the seed, five groups and a default of another may leave the id alone."""
    reference = variant_id(Config())
    free = set()
    for path in setting_paths(Config()):
        cfg = Config()
        *groups, key = path.split(".")
        owner = functools.reduce(getattr, groups, cfg)
        value = getattr(owner, key)
        if isinstance(value, dict | list):
            changed: object = {"x": {}} if isinstance(value, dict) else ["x"]
        else:
            changed = not value if isinstance(value, bool) else "x" if isinstance(value, str | None) else value + 1
        setattr(owner, key, changed)
        if variant_id(cfg) == reference:
            free.add(path)
    neutral = ("launch", "rules", "sweep", "cluster", "track")
    launch = {f"{g}.{f.name}" for g in neutral for f in dataclasses.fields(getattr(Config(), g))}
    labels = {"model.name", "data.name", "quant.name", "quant.tag", "scale.name", "scale.small_tensor"}
    assert free == {"seed", "name", "note", "expect", "tags", "drop"} | launch | labels


def test_identity_is_flat_and_sorted() -> None:
    flat = identity(Config())
    assert list(flat) == sorted(flat) and flat["optim.matrix_lr"] == 0.04


def test_a_floor_of_a_class_counts_and_none_is_as_before_there_were_any() -> None:
    cfg, own = Config(), Config()
    own.quant.mlp.scale_floor = "eps"
    assert variant_id(own) != variant_id(cfg) and "quant.mlp.scale_floor" not in identity(cfg)
