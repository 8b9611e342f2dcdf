"""The text of a plan: an estimate is called one, and every shape of a model has a plan."""

import pytest

from golf.plan.lines import as_dict, plan_lines, short_lines
from golf.plan.plan import make_plan
from tests.support import compose

TINY = ["scale=laptop", "model=4l", "model.model_dim=32", "launch.device=cpu"]


@pytest.mark.parametrize("rule", ["exact", "estimate"])
def test_bytes_of_code_before_a_run_are_an_estimate(rule: str) -> None:
    plan = make_plan(compose([*TINY, f"rules.code_bytes={rule}"]), [], thorough=False)
    assert f"artifact + ≈ {plan.code_bytes:,} code of " in short_lines(plan)[0]
    assert as_dict(plan)["code_is_estimate"]


@pytest.mark.parametrize(("rule", "shown"), [("exact", "15,466"), ("estimate", "≈ 15,466")])
def test_bytes_of_code_are_marked_only_where_the_script_was_not_made(rule: str, shown: str) -> None:
    plan = make_plan(compose([*TINY, f"rules.code_bytes={rule}"]), [], code=15_466)
    assert plan_lines(plan)[1] == f"code       {shown} bytes, wrapped"
    assert f"+ {shown} code of" in short_lines(plan)[0]


@pytest.mark.parametrize("layers", [1, 5])
@pytest.mark.parametrize("width", [8, 1024])
@pytest.mark.parametrize("tied", [True, False])
def test_a_model_of_any_width_and_depth_has_a_plan(layers: int, width: int, tied: bool) -> None:
    shape = [f"model.num_layers={layers}", f"model.model_dim={width}", f"model.tie_embeddings={tied}"]
    plan = make_plan(compose(["scale=laptop", "launch.device=cpu", *shape]), [], thorough=False)
    low, expected, high = plan.artifact.bytes
    assert 0 <= low < expected < high and plan.params > layers * width**2
