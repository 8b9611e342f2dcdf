"""The exported script of the public presets: small, clean, and without a trace of what is not selected."""

import ast
import functools
import subprocess
import sys

import pytest

from golf.errors import GolfError
from golf.settings.config import Config
from golf.submission.script.bundle import Bundle
from tests.submission.script.contents import ON_H100, assert_only_what_is_selected
from tests.support import compose


@functools.cache
def bundle(experiment: str) -> tuple[Config, Bundle]:
    cfg = compose([f"experiment={experiment}", *ON_H100])
    return cfg, Bundle(cfg)


def assert_clean(readable: str) -> None:
    checked = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--isolated", "-"], input=readable, capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stdout


@pytest.mark.slow
def test_a_script_for_a_cpu_is_small_and_clean() -> None:
    cpu = ["launch.device=cpu", "model.compute_dtype=fp32", "optim.muon_dtype=fp32", "eval.dtype=fp32"]
    found = Bundle(compose(["experiment=naive_baseline", "scale=laptop", *cpu]))
    assert len(found.wrapped) <= 25_000
    assert "eager_cpu" not in found.readable and "sigmoid" not in found.readable  # faster on a CPU only
    assert_clean(found.readable)


def test_the_baseline_is_small_and_clean() -> None:
    _, found = bundle("naive_baseline")
    assert len(found.wrapped) <= 17_200
    assert_clean(found.readable)
    # The public script has 1,126 lines. Who raises the number says why in CHANGELOG.md.
    assert len(found.readable.splitlines()) <= 2_300
    assert max(map(len, found.readable.splitlines())) <= 120
    assert "# The header comes first and tells" in found.readable and "# nats per token" in found.readable  # comments
    # Techniques, clipping and proofs leave nothing where there are none.
    absent = ("listener.", "averager", "switched_on", "row_counts(", "squared_norm", "did not move", "late_controls")
    assert not [word for word in absent if word in found.readable]
    assert "\n\n\n" not in found.readable
    functions = [node for node in ast.walk(ast.parse(found.readable)) if isinstance(node, ast.FunctionDef)]
    assert all("\n\n" not in (ast.get_docstring(node) or "") for node in functions)
    assert "x00above" not in found.readable and "x00behind" not in found.readable  # none of their marks is left


@pytest.mark.slow
def test_a_readable_script_that_fills_the_cap_leaves_room_for_the_packed_one() -> None:
    """It once counted its own bytes, ten times as many, and packed other weights than the run."""
    found = Bundle(compose(["quant=int6_mixed", "quant.prune.to_fit=true", *ON_H100]))
    assert f"code_bytes={len(found.wrapped)})\n" in found.readable and "st_size" in found.minified
    assert "code_bytes=Path(__file__).stat().st_size)\n" in bundle("naive_baseline")[1].readable


@pytest.mark.slow
def test_the_record_of_27_april_does_not_grow_unnoticed() -> None:
    cfg = compose(["experiment=records/2026-04-27_caseops_lqer_9hp", "scale=record", "launch.device=cuda"])
    assert len(Bundle(cfg).readable.splitlines()) <= 5_530


def test_what_is_not_selected_leaves_no_byte() -> None:
    assert_only_what_is_selected(*bundle("naive_baseline"))


def test_nothing_is_left_on_the_nodes_that_all_trees_share() -> None:
    """The minifier's tree stayed there, and every later copy of a node copied it: a bundle took 30 s in place of 3."""
    assert len(bundle("naive_baseline")[1].wrapped) > 10_000
    (statement,) = ast.parse("x + 1").body
    assert isinstance(statement, ast.Expr) and isinstance(statement.value, ast.BinOp)
    assert not vars(statement.value.op) and not vars(statement.value.left.ctx)  # type: ignore[attr-defined]


def test_settings_are_those_of_the_configuration() -> None:
    _, found = bundle("naive_baseline")
    assert "train_seconds: float = 600.0" in found.readable
    assert 'path: str = "data/datasets/fineweb10B_sp1024"' in found.readable
    assert "matrix_lr: float = 0.04  # learning rate of Muon, on the matrices of the blocks" in found.readable


@pytest.mark.slow
def test_a_script_is_that_of_the_variant_whoever_makes_it_and_wherever() -> None:
    _, found = bundle("naive_baseline")
    here = ["data.path=/home/me/data/datasets/fineweb10B_sp1024", "seed=7", "rules=strict", "note=mine"]
    other = Bundle(compose(["experiment=naive_baseline", *ON_H100, *here]))
    assert other.wrapped == found.wrapped


def test_starting_weights_cannot_be_exported() -> None:
    cfg = compose(["experiment=lower_lr", *ON_H100])
    cfg.model.init_from = "weights.pt"
    with pytest.raises(GolfError, match="train from scratch"):
        Bundle(cfg)


@pytest.mark.slow
def test_a_check_of_a_number_that_may_be_null_is_no_obstacle() -> None:
    """`window is not None and window > …` is read operand by operand, whatever keeps the program from the second."""
    found = Bundle(compose(["tech=[gated_attention]", "scale=record", *ON_H100]))
    assert "class GatedAttention(" in found.readable
    # What only techniques need is there with one, and a script registers none.
    assert "edit_model(model, cfg)" in found.readable and "declared_row_counts(model)" in found.readable
    assert '@technique("' not in found.readable
