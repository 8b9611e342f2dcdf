"""Which score is the run's, and a result that survives its file."""

import json
from pathlib import Path

import pytest

from golf.bits import Score
from golf.run.result import Result, read_result, to_json

STANDARD = Score(2.0, 1.25, 100, 50, 1.0)
SLIDING = Score(1.9, 1.2, 100, 50, 4.0, "sliding window, stride 64")
TRAINED = Score(1.8, 1.1, 100, 50, 9.0, "test-time training (lora), chunks of 64")


@pytest.mark.parametrize(
    ("scores", "final"),
    [
        ({}, None),
        ({"pre_quant": STANDARD}, None),
        ({"post_quant": STANDARD}, STANDARD),
        ({"post_quant": STANDARD, "post_quant_sliding": SLIDING}, SLIDING),
        ({"post_quant": STANDARD, "post_quant_ttt": TRAINED}, TRAINED),
        ({"post_quant": STANDARD, "post_quant_sliding": SLIDING, "post_quant_ttt": TRAINED}, TRAINED),
    ],
)
def test_final_score_is_the_last_one_of_the_artifact(
    scores: dict[str, Score], final: Score | None, tmp_path: Path
) -> None:
    result = Result("x", "1234abcd", 1, **scores)  # type: ignore[arg-type]
    assert result.final_score == final
    (tmp_path / "result.json").write_text(json.dumps(to_json(result)))
    assert read_result(tmp_path / "result.json") == result
