"""Sentences on where a difference comes from: of training, quantization and evaluation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from golf.lab.report.findings import judged
from golf.lab.report.origin import about_origins
from golf.lab.report.study import Study
from golf.lab.report.variants import Variant
from golf.settings.config import RulesConfig
from tests.lab.report.runs import variant

STEPS = {"a": 13_700, "b": 13_000}


def trained(name: str, pre: list[float], gap: float, evaluation: float = 0.0, size: int = 15_800_000) -> Variant:
    """Return a variant whose artifacts lose `gap`, of which its evaluation wins back `evaluation`."""
    made = variant(name, pre)
    noise = np.linspace(-1e-5, 1e-5, len(pre))
    rows = [
        replace(
            row,
            pre_quant_bpb=x,
            post_quant_bpb=x + gap + e,
            val_bpb=x + gap + e - evaluation,
            steps=STEPS[name],
            total_bytes=size,
        )
        for row, x, e in zip(made.rows, pre, noise, strict=True)
    ]
    return replace(made, rows=tuple(rows))


def sentences(reference: Variant, other: Variant) -> list[str]:
    study = Study("", (reference, other), reference)
    return list(about_origins(judged(study, RulesConfig())))


PRE = [1.2300, 1.2306, 1.2297, 1.2303]


def test_the_parts_of_a_difference_add_up() -> None:
    reference = trained("a", PRE, 0.0070)
    (said,) = sentences(reference, trained("b", [x - 0.0100 for x in PRE], 0.0030, size=15_841_000))
    assert said.startswith("b: the means' −0.0140 bpb are −0.0100 before quantization (")
    assert "and −0.0040 by quantization (−0.0040 to −0.0040)" in said
    assert said.endswith("; with 5.1% fewer steps and in 41,000 bytes more.")


@pytest.mark.parametrize("evaluation", [0.0, 0.02])
def test_an_evaluation_is_named_where_there_is_one(evaluation: float) -> None:
    reference = trained("a", PRE, 0.0070, evaluation)
    (said,) = sentences(reference, trained("b", [x - 0.0100 for x in PRE], 0.0070, evaluation * 1.5))
    assert ("by evaluation" in said) == (evaluation > 0)
    # All seeds gain the same, so that there is no spread to tell an interval by.
    assert "bytes" not in said and (evaluation == 0 or "−0.0100 by evaluation;" in said)


def test_what_is_not_better_has_no_sentence() -> None:
    reference = trained("a", PRE, 0.0070)
    assert sentences(reference, trained("b", PRE[::-1], 0.0070)) == []
    assert sentences(trained("b", [x - 0.01 for x in PRE], 0.007), reference) == []
