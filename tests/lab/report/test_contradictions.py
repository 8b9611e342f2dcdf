"""No row contradicts itself, whatever the runs: generated studies, and copies of runs in any order and of any age."""

from __future__ import annotations

import csv
import io
import math
import os
import random
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from golf.files import write_json
from golf.lab.report.board_sweep import sweep_values
from golf.lab.report.findings import Findings, judged
from golf.lab.report.results import BEST, TIED, results_table
from golf.lab.report.rows import IMPORTED, OWN, RunRow
from golf.lab.report.sequential import SequentialPlan
from golf.lab.report.study import Study, read_study
from golf.lab.report.table import as_text, render
from golf.lab.report.variants import Variant
from golf.lab.report.verdicts import BETTER, MARGIN_NOT_SHOWN, NO_DIFFERENCE, WORSE
from golf.settings.config import RulesConfig
from tests.lab.report.runs import BYTES_PER_TOKEN, with_lr, write_run, write_sweep

RULES = (
    RulesConfig(),
    RulesConfig("strict", alpha=0.01, confidence=0.98, margin_nats=0.005),
    RulesConfig("frontier", alpha=0.25),
)
LOST = ("diverged", "crashed", "over_bytes", "unreadable", "waiting", "interrupted", "pruned")
PAGE_KINDS = {"reference": "reference", "": "no verdict"}


@dataclass(frozen=True)
class Row:
    """A row in its forms: values, cells and data of the page, and the line of the CSV."""

    values: dict[str, Any]
    page: dict[str, Any]
    line: dict[str, str]

    @property
    def kind(self) -> str:
        return self.values["verdict"].partition(":")[0]


@st.composite
def variants(draw: Callable[..., Any], number: int, noise: random.Random) -> Variant:
    """Return a variant whose seeds may tie, be lost, share checkpoints or run on machines of which some are unknown."""
    machines = draw(st.sampled_from([("a",), ("b",), ("a", "b"), ("a", None), ("a", "b", "c"), (None,)]))
    decimals, effect = draw(st.sampled_from([3, 6])), draw(st.sampled_from([0.0, -0.003, 0.003, -0.02]))
    trouble = draw(st.sampled_from([0.0, 0.0, 0.2, 0.6]))
    source = draw(st.sampled_from([OWN, OWN, OWN, IMPORTED]))
    how = draw(st.sampled_from([None, "standard", "standard", "standard"]))
    rows = []
    for seed in range(1, draw(st.integers(1, 5)) + 1):
        host = noise.choice(machines)
        slow = {"a": 0.0, "b": -0.01, "c": 0.004}.get(host or "", 0.0)
        bpb = round(1.22 + effect + slow + noise.gauss(0, 0.0007), decimals)
        # Checkpoints of one seed are shared by the variants that say so, which makes them pairs.
        before = draw(st.sampled_from([None, 1.21 + seed / 1000, bpb - 0.004]))
        state = noise.choice(LOST) if noise.random() < trouble else "ok"
        rows.append(
            RunRow(
                f"v{number}", f"v{number}", seed, state, source=source, host=host, how=how, data="abcd",
                val_bpb=bpb, post_quant_bpb=bpb, pre_quant_bpb=before, bytes_per_token=BYTES_PER_TOKEN,
            )
        )  # fmt: skip
    return Variant(f"v{number}", f"v{number}", tuple(rows))


@st.composite
def studies(draw: Callable[..., Any]) -> tuple[Study, RulesConfig, dict[str, float | None]]:
    """Return a study, a rule, and the options of its report."""
    noise = random.Random(draw(st.integers(0, 10**6)))
    shown = tuple(draw(variants(number, noise)) for number in range(draw(st.integers(2, 5))))
    is_sequential = draw(st.booleans())
    plan = SequentialPlan((1, 2, 3, 4), shown[0].id) if is_sequential else None
    inseparable = {"v1": "changes a and b together"} if draw(st.integers(0, 5)) == 0 else {}
    study = Study("x", shown, shown[0], inseparable=inseparable, plan=plan)
    options = {
        "against": draw(st.sampled_from([None, None, None, 1.2200])),
        "sigma": draw(st.sampled_from([None, None, None, 0.0007])),
    }
    return study, draw(st.sampled_from(RULES)), options


def rows_of(found: Findings) -> dict[str, Row]:
    """Return the rows by variant id, having compared terminal, CSV and page cell by cell."""
    table, page = results_table(found), sweep_values(found, Path("nowhere"))
    lines = csv.DictReader(io.StringIO(render(table, "csv")))
    cells = [[column.cell(row) for column in table.filled] for row in table.rows]
    assert page["rows"] == cells and page["notes"] == list(table.notes)
    rows = {
        values["variant_id"]: Row(dict(values), data, line)
        for values, data, line in zip(table.rows, page["variants"], lines, strict=True)
    }
    for row in rows.values():
        assert row.line["verdict"] == row.values["verdict"] and row.line["rank"] == row.values["rank"]
        for key, shown in (("difference_bpb", "difference"), ("mean_bpb", "mean")):
            assert row.values[key] == row.page[shown] == (float(row.line[key]) if row.line[key] else None)
        assert row.values["interval_bpb"] == row.page["difference_interval"]
        assert row.page["kind"] == PAGE_KINDS.get(row.kind, row.kind)
    return rows


@settings(max_examples=60)
@given(studies())
def test_no_row_contradicts_itself(asked: tuple[Study, RulesConfig, dict[str, float | None]]) -> None:
    study, rules, options = asked
    found = judged(study, rules, **options)  # type: ignore[arg-type]
    rows, notes = rows_of(found), " ".join(results_table(found).notes)
    outside = (1 - rules.confidence) / 2
    for row in rows.values():
        difference, interval, p = (row.values[key] for key in ("difference_bpb", "interval_bpb", "p"))
        if row.values["difference_nats_per_token"] is not None:
            nats = difference * math.log(2) * BYTES_PER_TOKEN
            assert row.values["difference_nats_per_token"] == pytest.approx(nats, abs=1e-12)
        if interval is None:
            assert row.kind not in (BETTER, WORSE, NO_DIFFERENCE, MARGIN_NOT_SHOWN)
            continue
        assert interval[0] <= difference <= interval[1] and 0 <= p <= 1
        if row.kind in (BETTER, MARGIN_NOT_SHOWN):
            assert difference < 0
        if row.kind == WORSE:
            assert difference > 0
        if row.kind in (BETTER, WORSE):
            assert p < rules.alpha
        if row.kind in (NO_DIFFERENCE, MARGIN_NOT_SHOWN):
            assert p >= rules.alpha
        excludes_zero = not interval[0] <= 0 <= interval[1]
        if row.kind in (BETTER, WORSE, MARGIN_NOT_SHOWN) and rules.alpha <= outside:
            assert excludes_zero
        if excludes_zero and row.kind == NO_DIFFERENCE and rules.alpha >= outside:
            assert "p is corrected and the intervals are not" in notes or "p counts lost runs as the worst" in notes
    best = [row for row in rows.values() if row.values["rank"] == BEST]
    assert len(best) <= 1
    of_reference = rows.get(found.reference.id) if isinstance(found.reference, Variant) else None
    for row in best:
        assert row.kind != WORSE
        if of_reference and of_reference.values["rank"] == TIED:
            assert row.kind not in (BETTER, MARGIN_NOT_SHOWN)
        if row is of_reference:
            for other in rows.values():
                assert other.kind not in (BETTER, MARGIN_NOT_SHOWN)
                assert other.values["rank"] != TIED or other.kind != WORSE
                # A variant without a rank is shown to be worse than the best.
                assert other.values["rank"] or other.kind not in (NO_DIFFERENCE,)


@settings(max_examples=5)
@given(st.integers(0, 10**6), st.booleans())
def test_any_copy_of_the_runs_gives_the_same_table(seed: int, has_starts: bool) -> None:
    """A clone writes files in any order, `seed1.2` before `seed1`, and a copy has other times and another place."""
    order = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        first = Path(folder, "first")
        asked = []
        for lr in (0.04, 0.02):
            for number in (1, 2, 3):
                for attempt in (1, *order.sample((2, 3, 9, 10), order.randint(0, 2))):
                    bpb = 1.22 + round(order.gauss(0, 0.001), 5)
                    state = order.choice(("ok", "ok", "crashed", "diverged"))
                    made = write_run(first, with_lr(lr), bpb, number, attempt=attempt, state=state)
                    if has_starts:
                        started = {"started_at": 1.7e9 + order.random() * 1e6, "gpus": 8, "gpu": "H100"}
                        write_json(made / "environment.json", started)
                asked.append(([f"optim.matrix_lr={lr}"], with_lr(lr), number))
        write_sweep(first, "lr", asked)
        tables = []
        for root in (first, Path(folder, "second"), Path(folder, "third", "place")):
            if root != first:
                paths = sorted(path.relative_to(first) for path in first.rglob("*") if path.is_file())
                order.shuffle(paths)
                for path in paths:
                    (root / path).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(first / path, root / path)
                    os.utime(root / path, (age := order.randint(1, 10**9), age))
            patch.setenv("GOLF_RUNS", str(root))
            tables.append(as_text(results_table(judged(read_study(["lr"]), RulesConfig()))))
        assert tables[0] == tables[1] == tables[2]
