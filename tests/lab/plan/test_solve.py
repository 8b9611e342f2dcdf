"""Solving for a setting: the last value that fits, or a sentence if there is none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golf.errors import GolfError
from golf.lab.plan.plan import make_plan
from golf.lab.plan.solve import _fitting, solve
from tests.support import compose

SMALL = ["scale=laptop", "model=4l", "quant.scale_floor=eps", "model.model_dim=64", "rules.code_bytes=estimate"]


@given(low=st.integers(1, 50), width=st.integers(1, 300), limit=st.floats(0, 1), rising=st.booleans())
def test_bisection_finds_what_a_search_finds(low: int, width: int, limit: float, rising: bool) -> None:
    high, edge = low + width, low + limit * (width - 1) + 0.5
    values = {i: (edge - i if rising else i - edge) * 100 for i in range(low, high + 1)}
    fitting = [i for i, left in values.items() if left >= 0]
    assert _fitting(lambda i: {"bytes": values[i]}, low, high, "x") == (max(fitting) if rising else min(fitting))


@given(bytes_edge=st.floats(1.5, 98.5), steps_edge=st.floats(1.5, 98.5), spare=st.integers(0, 1))
def test_several_limits_bind_together(bytes_edge: float, steps_edge: float, spare: int) -> None:
    """Bytes fit up to an edge and steps from another one on, as with larger batches; memory always or never binds."""

    def left(i: int) -> dict[str, float]:
        return {"bytes": 100 * (bytes_edge - i), "steps": 10 * (i - steps_edge), "MiB": 1e6 - spare * i}

    fitting = [i for i in range(1, 100) if min(left(i).values()) >= 0]
    if fitting:
        assert _fitting(left, 1, 99, "x") == max(fitting)
    else:
        with pytest.raises(GolfError, match="no value keeps to bytes, steps, MiB together"):
            _fitting(left, 1, 99, "x")


@pytest.mark.parametrize(
    "left, sentence",
    [
        (lambda i: {"bytes": 5.0, "steps": 3.0}, "changes bytes, steps by nothing"),
        (lambda i: {"bytes": -1.0 * i}, "nowhere: at best 1 bytes are missing"),
        (lambda i: {"bytes": 50.0 - i, "steps": -200.0 - i}, "nowhere: at best 201 steps are missing"),
        (lambda i: {"bytes": 1.0 * i, "MiB": 500.0 - i}, "everywhere, with at least 1 bytes, 400 MiB left"),
    ],
)
def test_settings_without_a_solution_say_so(left: object, sentence: str) -> None:
    with pytest.raises(GolfError, match=sentence):
        _fitting(left, 1, 100, "x from 1 to 100")  # type: ignore[arg-type]


@pytest.mark.slow
def test_the_largest_mlp_under_the_cap() -> None:
    free = make_plan(compose([*SMALL, "model.mlp_hidden=150"]), []).headroom.low
    overrides = [*SMALL, f"budget.artifact_bytes={1_000_000 - round(free)}"]
    override = solve(overrides, "model.mlp_hidden", [], multiple_of=5)
    assert override in ("model.mlp_hidden=145", "model.mlp_hidden=150", "model.mlp_hidden=155")
    assert make_plan(compose([*overrides, override]), []).headroom.low >= 0
    hidden = int(override.rpartition("=")[2])
    assert make_plan(compose([*overrides, f"model.mlp_hidden={hidden + 5}"]), []).headroom.low < 0


@pytest.mark.parametrize("key", ["model.name", "quant.codec_levle", "model.tie_embeddings", "schedule.min_lr"])
def test_only_numbers_above_zero_can_be_solved_for(key: str) -> None:
    with pytest.raises(GolfError, match="not a number above zero"):
        solve(SMALL, key, [])


def test_a_width_is_solved_in_whole_heads() -> None:
    overrides = [*SMALL, "budget.artifact_bytes=200000"]
    width = int(solve(overrides, "model.model_dim", []).rpartition("=")[2])
    assert width % (2 * compose(overrides).model.num_heads) == 0 and 8 <= width <= 512


def test_a_value_on_the_way_that_cannot_be_is_named() -> None:
    with pytest.raises(GolfError, match=r"tried model.num_heads=1: .* does not divide .* --multiple-of"):
        solve(SMALL, "model.num_heads", [])


def test_a_multiple_that_is_out_of_reach_is_refused() -> None:
    with pytest.raises(GolfError, match=r"no multiple of 1000 up to 32, eight times model.num_layers"):
        solve(SMALL, "model.num_layers", [], multiple_of=1000)
