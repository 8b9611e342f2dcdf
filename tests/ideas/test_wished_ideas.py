"""Every idea of the organisers' wish list: two ranks, every proof, and a script that trains and packs the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from golf.commands.idea_check_command import check_runs
from golf.idea_folders import ideas
from tests.support import ROOT

ONE_LAYER = [f"{key}=0" for key in ("tech.recurrence.first", "tech.recurrence.last")]
# The ideas of the table in ideas/README.md, with what a small run of them needs.
WISHED = {
    "gated_deltanet": [],
    "mamba2": [],
    "window_sink": [],
    "attention_sink": [],
    "differential_attention": [],
    "seeded_maps": [],
    "token_ngram": [],
    "byte_ppm": [],
    "ternary_groups": [],
    "binary": [],
    "hnet": [],
    "chunk_ratio": [],
    "jepa": [],
    "soft_experts": [],
    "recurrence": ["model.num_layers=1", *ONE_LAYER, "tech.recurrence.passes=4"],
    "masked_diffusion": [],
}


def test_they_are_those_of_the_table() -> None:
    text = (ROOT / "ideas/README.md").read_text()
    table = text.partition("## The organisers' wish list")[2].partition("\n## ")[0]
    rows = [line.split("|")[2] for line in table.splitlines() if line.startswith("| ")][1:]
    assert {name for name in ideas() if any(f"[{name}]({name}/README.md)" in row for row in rows)} == set(WISHED)


@pytest.mark.slow
@pytest.mark.parametrize("name", WISHED)
def test_it_trains_on_two_ranks_and_its_script_is_the_framework(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The check sets this variable itself.
    monkeypatch.setenv("GOLF_RUNS", str(tmp_path / "runs"))
    variant, run, script, code = check_runs(ideas()[name], WISHED[name], tmp_path)
    assert "is another variant" in variant and "on 2 ranks, every proof" in run
    assert script.startswith("the exported script: the same") and "bytes of the wrapped script" in code
