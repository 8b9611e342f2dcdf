"""The text of a plan: an estimate is called one, and every shape of a model has a plan."""

import dataclasses

import pytest

from golf.lab.plan.artifact_size import Interval
from golf.lab.plan.lines import memory, plan_lines, plan_range, rounded, short_lines
from golf.lab.plan.plan import make_plan
from tests.support import compose

TINY = ["scale=laptop", "model=4l", "model.model_dim=32", "launch.device=cpu"]


@pytest.mark.parametrize(("rule", "shown"), [("exact", "15,466"), ("estimate", "≈ 15,466")])
def test_bytes_of_code_are_marked_only_where_the_script_was_not_made(rule: str, shown: str) -> None:
    cfg = compose([*TINY, f"rules.code_bytes={rule}"])
    plan = make_plan(cfg, [], code=15_466)
    assert plan_lines(cfg, plan)[1] == f"code       {shown} bytes, wrapped"
    assert f"+ {shown} code of" in short_lines(plan)[0]


@pytest.mark.slow
@pytest.mark.parametrize("layers", [1, 5])
@pytest.mark.parametrize("width", [8, 1024])
@pytest.mark.parametrize("tied", [True, False])
def test_a_model_of_any_width_and_depth_has_a_plan(layers: int, width: int, tied: bool) -> None:
    shape = [f"model.num_layers={layers}", f"model.model_dim={width}", f"model.tie_embeddings={tied}"]
    plan = make_plan(compose(["scale=laptop", "launch.device=cpu", *shape]), [], code=30_000)
    low, expected, high = plan.artifact.bytes
    assert 0 <= low < expected < high and plan.params > layers * width**2


@pytest.mark.parametrize(
    ("interval", "text"),
    [
        (Interval(1_970, 17_922, 127_784), "18,000 (2,000 to 128,000)"),
        (Interval(854_000, 964_000, 983_000), "964,000 (854,000 to 983,000)"),
        (Interval(358_000, 366_000, 374_000), "366,000 ± 8,000"),
        (Interval(90, 100, 112), "100 ± 12"),
        (Interval(5, 5, 5), "5"),
        (Interval(100, 100, 150), "100 (100 to 150)"),
    ],
)
def test_a_lopsided_interval_is_printed_as_a_range(interval: Interval, text: str) -> None:
    assert rounded(interval) == text


def test_a_range_begins_with_its_smaller_end() -> None:
    assert plan_range(Interval(118, 117.5, 117), "s") == "117 to 118 s"
    assert plan_range(Interval(7_200, 9_000, 36_000), "s") == "2 to 10 hours"


def test_memory_has_two_digits_and_no_exponent() -> None:
    plan = make_plan(compose(TINY), [], code=15_466)
    shown = [memory(dataclasses.replace(plan, memory_bytes=size)) for size in (1.34e9, 256e9, 1.99e12)]
    assert shown == [f"up to about {size} GB" for size in ("1.3", "260", "2000")]
