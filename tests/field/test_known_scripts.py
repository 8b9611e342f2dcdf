"""A script whose functions are all a known one's is its preset; what differs in it is named."""

from __future__ import annotations

import ast
import csv
from pathlib import Path

import pytest

from golf.field import known_scripts as module
from golf.field.known_scripts import TABLE, KnownScript, digests, known_scripts, likeness, on_preset, unsettled
from golf.field.script_reader import parsed_script
from golf.field.script_translation import translated_script
from golf.field.script_variables import variables_of_script
from golf.run.identity import identity
from golf.settings.composition import compose
from tests.support import ROOT

PRESET = "records/2026-03-18_fp16_embed_wd3600"
SCRIPT = """import os


class Hyperparameters:
    matrix_lr = float(os.environ.get("MATRIX_LR", 0.06))
    mlp_hidden = int(os.environ.get("MLP_HIDDEN", 992))
    warmdown_iters = int(os.environ.get("WARMDOWN_ITERS", 3600))
    rows_kept = int(os.environ.get("ROWS_KEPT", 3))


def kept(name):
    return name == "tok_emb.weight"


def rounded(t, scale: float = 1.0):
    return (t / scale).round()


def first(h):
    return [h.matrix_lr, h.mlp_hidden, h.warmdown_iters]


def second(h):
    print(f"keeps {h.rows_kept}")
    return h.rows_kept + len(first(h))


print(second(Hyperparameters()), kept(""), rounded(1.0))
"""
MUTANTS = {  # what a relative may have otherwise, and the function that is named for it
    "scale).round()": "rounded",
    '== "tok_emb.weight"': "kept",
    "h.rows_kept + len": "second",
}


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> KnownScript:
    script = variables_of_script(parsed_script(SCRIPT), "x")
    monkeypatch.setattr(module, "known_scripts", lambda: ())
    plain = translated_script("", script).translation
    settled = dict(text.split("=") for text in plain.inexpressible)
    own = KnownScript("ours", PRESET, frozenset(digests(ast.parse(SCRIPT))), settled, tuple(plain.overrides))
    monkeypatch.setattr(module, "known_scripts", lambda: (own,))
    return own


def test_a_known_script_is_its_preset(known: KnownScript) -> None:
    found = translated_script("", variables_of_script(parsed_script(SCRIPT), "x"))
    assert found.missing == [] and found.record == PRESET
    assert identity(compose(found.overrides)) == identity(compose([f"experiment={PRESET}", "scale=record"]))


def test_what_changes_nothing_is_no_difference(known: KnownScript) -> None:
    other = SCRIPT.replace("keeps {h", "it keeps {h").replace("scale: float = 1.0", "scale=1.0").replace("\n\n\n", "\n")
    assert other != SCRIPT and likeness(ast.parse(other)).differing == ()  # type: ignore[union-attr]


@pytest.mark.parametrize("before", MUTANTS)
def test_a_function_that_differs_is_named(before: str, known: KnownScript) -> None:
    found = translated_script("", variables_of_script(parsed_script(SCRIPT.replace(before, before + " * 2")), "x"))
    assert found.record is None or any(f"names tell: {MUTANTS[before]}" in line for line in found.missing)
    assert found.missing


def test_a_variable_that_differs_is_an_override_or_named(known: KnownScript) -> None:
    found = translated_script("MATRIX_LR=0.03 ROWS_KEPT=4 x.py", variables_of_script(parsed_script(SCRIPT), "x"))
    assert found.overrides == [f"experiment={PRESET}", "scale=record", "optim.matrix_lr=0.03"]
    assert found.missing == ["not known here, so not in the list: ROWS_KEPT=4"]
    assert unsettled(known, {"ROWS_KEPT": "0"}, []) == ["ROWS_KEPT=0"] and not unsettled(known, {"ROWS_KEPT": "3"}, [])


def test_techniques_come_and_go(known: KnownScript) -> None:
    changed = on_preset(known, [*known.overrides, "tech=[xsa]", "tech.xsa.last_n=3"])
    assert compose(changed).tech["xsa"].last_n == 3 and "fp16" in compose(changed).quant.embed.format


def test_the_table_has_every_record_once() -> None:
    with (ROOT / "docs/records.csv").open(newline="") as file:
        records = {row["folder"]: row["experiment"] for row in csv.DictReader(file)}
    assert {known.folder: known.experiment for known in known_scripts()} == records
    assert all(len(known.digests) > 30 for known in known_scripts()) and len(records) == 51
    assert Path(TABLE).stat().st_size < 200_000
