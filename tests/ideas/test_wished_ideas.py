"""Ideas of the organisers' wish list, and optimizers: two ranks, every proof, a script that packs the same bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from golf.commands.idea_check_command import check_runs
from golf.idea_folders import ideas
from tests.support import ROOT, further

ONE_LAYER = [f"{key}=0" for key in ("tech.recurrence.first", "tech.recurrence.last")]
# The ideas of the table in ideas/README.md and optimizers: one for each case, and those beside it. A case takes half a
# minute, so as many as go together share one; every one of them is proven to act.
CASES = {
    "jepa": ["attention_sink", "hnet", "chunk_ratio", "gated_deltanet", "mamba2", "seeded_maps"],
    "ternary_groups": ["differential_attention", "soft_experts", "adamuon", "cautious"],
    "binary": ["window_sink", "lion_matrices"],
    "token_ngram": ["schedule_free"],
    "byte_ppm": ["soap"],
    "recurrence": [],
    "masked_diffusion": ["centralized", "normuon"],
}
CHECKED = {name for case, others in CASES.items() for name in (case, *others)}
# What a small run of a case needs.
MORE = {"recurrence": ["model.num_layers=1", *ONE_LAYER, "tech.recurrence.passes=4"]}


def test_those_of_the_table_are_among_them() -> None:
    text = (ROOT / "ideas/README.md").read_text()
    table = text.partition("## The organisers' wish list")[2].partition("\n## ")[0]
    rows = [line.split("|")[2] for line in table.splitlines() if line.startswith("| ")][1:]
    wished = {name for name in ideas() if any(f"[{name}]({name}/README.md)" in row for row in rows)}
    assert "hnet" in wished and wished <= CHECKED


@pytest.mark.slow
@pytest.mark.parametrize("name", ["jepa", *(further(name) for name in CASES if name != "jepa")])
def test_they_train_on_two_ranks_and_the_script_is_the_framework(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The check sets this variable itself.
    monkeypatch.setenv("GOLF_RUNS", str(tmp_path / "runs"))
    chosen = [*([f"tech=[{','.join(CASES[name])}]"] if CASES[name] else []), *MORE.get(name, [])]
    variant, run, *_, script, code = check_runs(ideas()[name], chosen, tmp_path)
    assert "is another variant" in variant and "on 2 ranks, every proof" in run
    assert script.startswith("the exported script: the same") and "bytes of the wrapped script" in code
