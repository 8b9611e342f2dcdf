"""Tables say in which settings their variants differ; CSV has ids and seeds, and a terminal colours verdicts."""

from __future__ import annotations

import csv
import io
import sys
from pathlib import Path

import pytest

from golf.lab.report.findings import judged
from golf.lab.report.results import MOST_SHOWN, results_table, settings_columns
from golf.lab.report.rows import RunRow, row_of
from golf.lab.report.study import Study
from golf.lab.report.table import Column, Table, as_text, render
from golf.lab.report.variants import Variant
from golf.run.folder import create_run_folder
from golf.run.identity import variant_id
from golf.run.result import Result
from golf.settings.config import Config
from golf.training.techniques.xsa import XSA


def ran(cfg: Config) -> Variant:
    folder = create_run_folder(cfg, [])
    folder.write_result(Result(cfg.name, variant_id(cfg), cfg.seed, state="crashed", reason="x"))
    return Variant(variant_id(cfg), f"{cfg.name} · {variant_id(cfg)}", (row_of(folder.path),))


@pytest.fixture
def variants(runs: Path) -> list[Variant]:
    plain, faster, with_xsa = Config(), Config(seed=7), Config()
    faster.optim.matrix_lr = 0.02
    with_xsa.tech = {"xsa": XSA(last_n=None)}
    return [ran(plain), ran(faster), ran(with_xsa)]


def test_csv_has_ids_seeds_and_differing_settings(variants: list[Variant]) -> None:
    table = results_table(judged(Study("mixed", tuple(variants), None), Config().rules))
    rows = {row["variant_id"]: row for row in csv.DictReader(io.StringIO(render(table, "csv")))}
    assert [rows[v.id]["seeds"] for v in variants] == ["1337", "7", "1337"]
    assert [rows[v.id]["optim.matrix_lr"] for v in variants] == ["0.04", "0.02", "0.04"]
    assert [rows[v.id]["tech"] for v in variants] == ["", "", "xsa"]
    assert rows[variants[2].id]["tech.xsa.last_n"] == "null" and "model.num_layers" not in rows[variants[0].id]
    shown = render(table, "markdown")
    assert "| optim.matrix_lr |" in shown and "| tech |" in shown and "tech.xsa.last_n" not in shown


def test_a_sweeps_own_settings_are_shown_once(variants: list[Variant]) -> None:
    columns, _ = settings_columns(variants, labelled=True)
    assert not any(column.in_text for column in columns) and all(column.in_csv for column in columns)


def test_variants_that_have_not_started_have_the_values_of_their_sweep(variants: list[Variant]) -> None:
    waiting = Variant("w", "w", (RunRow("w", "w", 1, "waiting"),), {"optim.matrix_lr": "0.03", "model": "4l"})
    columns, values = settings_columns([*variants, waiting], labelled=True)
    assert values["w"] == {"optim.matrix_lr": "0.03"} and "model" not in {column.key for column in columns}
    # Also before any has started.
    (column,), values = settings_columns([waiting], labelled=True)
    assert column.key == "optim.matrix_lr" and values["w"] == {"optim.matrix_lr": "0.03"}


@pytest.mark.parametrize("kind", ["leave_one_out", "add_one", "interaction"])
def test_labels_that_name_what_is_missing_or_added_need_no_columns_besides(variants: list[Variant], kind: str) -> None:
    for study, shown in (
        (Study("s", tuple(variants), None, kind=kind), False),
        (Study("s", tuple(variants), None), True),
    ):
        assert ("| tech |" in render(results_table(judged(study, Config().rules)), "markdown")) == shown


def test_people_see_the_first_few_settings_only(runs: Path) -> None:
    other = Config()
    for key in ("matrix_lr", "scalar_lr", "tied_embed_lr", "embed_lr", "head_lr", "muon_wd", "adam_wd", "adam_eps"):
        setattr(other.optim, key, 0.123)
    columns, _ = settings_columns([ran(Config()), ran(other)], labelled=False)
    assert len(columns) == 8 and sum(column.in_text for column in columns) == MOST_SHOWN


def test_a_terminal_shows_styles_and_a_pipe_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    column = Column("verdict", "verdict", is_text=True, style=lambda cell: "green" if cell == "better" else "")
    table = Table((column,), [{"verdict": "better"}, {"verdict": "worse"}])
    assert "\x1b[" not in as_text(table)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert "\x1b[32mbetter" in as_text(table) and "mworse" not in as_text(table)
