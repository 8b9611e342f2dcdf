"""A reader's walk over the live board in a real browser: progress, another reference, a run's page, a note, a grid."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Callable
from html import unescape
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from golf.lab.report import board_server
from golf.lab.report.board_server import PAGE_FOLDER, Board
from golf.run.identity import variant_id
from golf.settings.config import Config, ModelConfig, OptimConfig, RulesConfig
from tests.lab.report.runs import with_lr, write_lr_sweep, write_run, write_sweep
from tests.lab.report.test_board import SCORES, served
from tests.lab.report.test_board_browser import BROWSER, browse

Walk = Callable[..., Any]
# The page may run no script but its own, so that the walk is added to these: `until` waits, `tell` ends it.
DRIVER = """
(async () => {
  const until = async (check, what) => {
    for (let i = 0; i < 80; i++) { if (check()) return; await new Promise(r => setTimeout(r, 100)); }
    throw new Error(`never ${what || check}`);
  };
  const text = id => byId(id).innerText, all = selector => [...document.querySelectorAll(selector)];
  const change = (element, value) => { element.value = value; element.dispatchEvent(new Event("input")); };
  const tell = found => document.body.setAttribute("data-found", JSON.stringify(found));
  try {
    await until(() => document.body.dataset.polls, "polled");
    tell(await (async () => { %s })());
  } catch (error) { tell({ error: String(error) }); }
})();
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="needs a Chromium (Debian: apt-get install chromium)"),
]


@pytest.fixture
def walk(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Walk:
    """Return a function that opens the board of `runs`, runs a script in the page, and returns what it tells."""

    def walked(script: str, *options: str, address: str = "") -> Any:
        folder = tmp_path / "page"
        shutil.copytree(PAGE_FOLDER, folder, dirs_exist_ok=True)
        with (folder / "board.js").open("a") as file:
            file.write(DRIVER % script)
        monkeypatch.setattr(board_server, "PAGE_FOLDER", folder)
        with served(runs, board=Board(runs, RulesConfig())) as server:
            document, console = browse(server.url + address, tmp_path, "--virtual-time-budget=20000", *options)
        match = re.search(r'data-found="([^"]*)"', document)
        assert match and console == "", console
        found = json.loads(unescape(match[1]))
        assert "error" not in found, found
        return found

    return walked


def write_grid(runs: Path) -> None:
    """Write a finished sweep over three learning rates and two depths."""
    asked = []
    for (number, lr), layers in product(enumerate((0.02, 0.04, 0.06)), (9, 11)):
        cfg = Config(optim=OptimConfig(matrix_lr=lr), model=ModelConfig(num_layers=layers))
        for seed in (1, 2):
            write_run(runs, cfg, 1.22 + 0.01 * number - 0.002 * (layers - 9) + 0.0004 * seed, seed)
            asked.append(([f"optim.matrix_lr={lr}", f"model.num_layers={layers}"], cfg, seed))
    write_sweep(runs, "grid", asked, swept=["optim.matrix_lr", "model.num_layers"])


def test_another_reference_a_page_and_a_note(runs: Path, walk: Walk) -> None:
    write_lr_sweep(runs, SCORES)
    found = walk("""
      const of = row => [row.querySelector("a").textContent, row.querySelector("strong").textContent];
      const kinds = () => Object.fromEntries(all("#verdict-table tbody tr").map(of));
      const before = kinds();
      document.querySelector('#verdict-table input[aria-label="compare with 0.04"]').click();
      await until(() => kinds()["0.04"] === "reference", "compared with another");
      const after = kinds(), focus = document.activeElement.ariaLabel;
      byId("verdict-table").querySelector("tbody a").click();
      await until(() => byId("page-title"), "opened");
      await until(() => document.querySelector("#page-body table"), "filled");
      const page = text("page"), hidden = byId("runs").hidden && byId("verdicts").hidden;
      document.querySelector("textarea").value = "worth another seed";
      document.querySelector(".note button").click();
      await until(() => text("page").includes("Saved"), "saved");
      history.back();
      await until(() => !byId("runs").hidden, "went back");
      return { before, after, page, hidden, runs: byId("run-table").textContent, reference: choice.reference };
    """)
    assert found["before"] == {"0.02": "better", "0.04": "better", "0.06": "reference"}
    assert found["after"] == {"0.02": "better", "0.04": "reference", "0.06": "worse"}
    assert found["hidden"] and "optim.matrix_lr" in found["page"] and "config.json" in found["page"]
    (note,) = runs.glob("*/seed*/note.txt")
    assert note.read_text() == "worth another seed" and "worth another seed" in found["runs"]
    assert note.parent.parent.name.endswith(variant_id(with_lr(0.02))), "the best one"
    assert found["reference"] == variant_id(with_lr(0.04)), "the way back keeps the view"


def test_running_and_silent_runs_are_told_apart(runs: Path, walk: Walk) -> None:
    asked = []
    for number, lr in enumerate((0.02, 0.04)):
        folder = write_run(runs, with_lr(lr), None)
        asked.append(([f"optim.matrix_lr={lr}"], with_lr(lr), 1))
        since = time.time() - 3600 * number
        os.utime(folder / "metrics.jsonl", (since, since))
    write_run(runs, with_lr(0.05), 1.22, train_seconds=600.0, eval_seconds=120.0)
    asked += [([f"optim.matrix_lr={lr}"], with_lr(lr), 1) for lr in (0.05, 0.06)]
    write_sweep(runs, "live", asked)
    found = walk("""
      const bars = all("#progress progress").map(bar => bar.value);
      return { bars, progress: text("progress"), verdicts: text("verdict-table"), status: text("status") };
    """)
    assert found["bars"] == pytest.approx([0.74, 0.99, 0.99], abs=0.01), "of the sweep, then of each run"
    # 1.02 runs of 720 s are missing, one at a time.
    assert "1 of 4 runs done, 74 % of the sweep, at least 12 min left" in found["progress"]
    assert "running: step 9,900 of 20,000, 99 %, 6 s left" in found["progress"]
    assert "silent: step 9,900 of 20,000, 99 %, last line 60 min ago, its lines take 6 s" in found["progress"]
    assert "1 running (99 %)" in found["verdicts"] and "1 silent (99 %)" in found["verdicts"]
    assert "Runs: 1 running, 1 silent, 1 ok." in found["status"] and "no result.json" not in found["verdicts"]


@pytest.mark.parametrize("width", [1280, 390])
def test_a_grid_has_a_column_for_each_setting_and_a_map(width: int, runs: Path, walk: Walk) -> None:
    write_grid(runs)
    # A browser's window cannot be as narrow as a phone, but its page can.
    found = walk(
        """
      document.body.style.width = "WIDTHpx";
      const cells = column => all("#verdict-table tbody tr").map(row => row.children[column].textContent);
      byId("verdict-table").querySelector('[data-key="column model.num_layers"]').click();
      const sorted = cells(1);
      change(byId("filter"), "matrix_lr=0.02");
      const filtered = cells(0);
      change(byId("filter"), "");
      byId("grid").scrollIntoView();
      const labels = () => all("#grid text").map(t => t.textContent).filter(t => /^1\\.2\\d{3}$/.test(t));
      await until(() => labels().length, "labelled");
      const verdict = document.querySelector("#verdict-table th:nth-child(3)").getBoundingClientRect();
      const table = byId("verdict-table").closest(".scroll").getBoundingClientRect();
      return {
        titles: all("#verdict-table th").map(th => th.textContent), sorted, filtered, labels: labels(),
        end: verdict.right - table.left, width: table.width, over: [...byId("over").options].map(o => o.value),
        unseen: all(".modebar-btn").filter(e => e.checkVisibility({ visibilityProperty: true })).length,
      };
    """.replace("WIDTH", str(width))
    )
    assert found["titles"][:3] == ["matrix_lr", "num_layers ▲", "verdict"]
    assert found["sorted"] == ["9"] * 3 + ["11"] * 3 and found["filtered"] == ["0.02"] * 2
    assert found["end"] <= min(width, found["width"] + 1), "the verdict is in sight"
    assert {"1.2206", "1.2166", "1.2406"} <= set(found["labels"])
    assert {"", "optim.matrix_lr", "model.num_layers", "total_bytes", "train_seconds"} <= set(found["over"])
    assert found["unseen"] == 0, "the tab key stops at nothing that is not seen"


def test_runs_are_grouped_by_tag_compared_side_by_side_and_short_ones_hidden(runs: Path, walk: Walk) -> None:
    for number, lr in enumerate((0.02, 0.03, 0.04)):
        write_run(runs, with_lr(lr, tags=["kept", "old"][: 1 + number % 2]), 1.22 + 0.01 * number, steps=13_000)
    write_run(runs, with_lr(0.5), 3.2, steps=20)
    found = walk("""
      const rows = () => all("#run-table tbody tr:not(.group)").length, before = rows();
      byId("no-short").click();
      const after = rows();
      change(byId("group"), "tags");
      const groups = all("#run-table tr.group").map(row => row.textContent);
      byId("side").open = true;
      await until(() => document.querySelector("#side-table td"), "compared");
      return { before, after, groups, side: text("side-table"), columns: all("#side-table th[scope=col]").length };
    """)
    assert (found["before"], found["after"]) == (4, 3)
    assert [group.partition(",")[0] for group in found["groups"]] == ["tags kept: 3 runs", "tags old: 1 run"]
    assert found["columns"] == 4 and "optim.matrix_lr" in found["side"] and "1.2200" in found["side"]


def test_the_best_variants_are_drawn_and_the_field_is_a_line(runs: Path, walk: Walk) -> None:
    asked = []
    for number in range(12):
        cfg, bpb = with_lr(0.01 * (number + 1)), 1.25 - 0.003 * number
        folder = write_run(runs, cfg, bpb)
        result = json.loads((folder / "result.json").read_text())
        result["post_quant"] |= {"tokens": 62_021_632, "bytes": 151_080_645}
        (folder / "result.json").write_text(json.dumps(result))
        asked.append(([f"optim.matrix_lr={0.01 * (number + 1):g}"], cfg, 1))
    write_sweep(runs, "many", asked)
    found = walk(
        """
      const legend = id => all(`#${id} .legendtext`).map(e => e.textContent);
      await until(() => legend("curves").length && legend("scores").length, "drawn");
      byId("field").open = true;
      const place = all("#field tr[aria-selected=true]").map(row => row.textContent);
      return { curves: legend("curves"), scores: legend("scores"), field: text("field"), place };
    """,
        "--window-size=1280,4000",
    )
    best = {f"matrix_lr={0.01 * (number + 1):g}" for number in range(5, 12)}
    assert set(found["curves"]) == best | {"matrix_lr=0.01"}, "the best seven and the reference"
    assert [name for name in found["scores"] if name.startswith("public: ")] == [
        "public: 2026-03-19_10L_MixedPrecision 1.2147",
        "public: 2026-03-18_FP16Embed_WD3600 1.2197",
    ]
    (place,) = found["place"]
    assert "1.2170" in place and "would stand" in found["field"]
