"""The board in a real browser: live and as one file, wide and as narrow as a phone."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from golf.files import read_json
from golf.lab.report import board_values
from golf.lab.report.board_file import single_file
from golf.lab.report.board_server import Board
from golf.lab.report.findings import judged
from golf.lab.report.study import read_study
from golf.settings.config import BudgetConfig, Config, RulesConfig
from tests.lab.report.runs import train_event, with_lr, write_lr_sweep, write_run, write_sweep
from tests.lab.report.test_board import SCORES, served
from tests.lab.report.test_texts import keep, seeds

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
TALL = "--window-size=1280,4000"  # all of the page is in view
HOSTILE = "<img src=x onerror=alert(1)></script><b>bold"
# Each frame is looked at from within, after its plots are drawn; `--dump-dom` then shows the attribute to the test.
INSPECTION = """<script>addEventListener('load', () => setTimeout(() => {
 document.body.setAttribute('data-found', JSON.stringify([...document.querySelectorAll('iframe')].map(frame => {
  const page = frame.contentWindow, d = page.document;
  const box = e => { const r = e.getBoundingClientRect(); return [r.left, r.top, r.right, r.bottom]; };
  const shown = e => e.checkVisibility({ visibilityProperty: true });
  const legend = (plot, mark, paint) => [...d.querySelectorAll(`${plot} .legend .traces`)].map(t => [
    t.querySelector('.legendtext').textContent, (p => p && page.getComputedStyle(p)[paint])(t.querySelector(mark))]);
  return {
    width: page.innerWidth, page: d.documentElement.scrollWidth, bold: d.querySelectorAll('b, img').length,
    requests: page.performance.getEntriesByType('resource').map(e => e.name), text: d.body.innerText,
    plots: [...d.querySelectorAll('.plot')].filter(shown).map(p => ({box: box(p), label: p.getAttribute('aria-label'),
      legend: [...p.querySelectorAll('.legendtext')].map(e => e.textContent),
      legendBox: box(p.querySelector('.legend')), axis: box(p.querySelector('.xtitle'))})),
    controls: [...d.querySelectorAll('a[href], button, input, select, [tabindex="0"]')].filter(shown).map(e => {
      const label = [...(e.labels || [])].map(l => l.textContent)[0];
      const name = e.textContent.trim() || e.getAttribute('aria-label') || label;
      e.focus();
      if (e.dataset.run) { e.click(); e.click(); }  // as the space bar does
      return [name || '', d.activeElement === e]; }),
    tables: [...d.querySelectorAll('table')].map(t => d.getElementById(t.getAttribute('aria-labelledby')).textContent),
    colours: {
      table: [...d.querySelectorAll('#verdict-table tbody tr')].map(
        r => [r.firstChild.textContent, page.getComputedStyle(r.querySelector('.swatch')).borderTopColor]),
      bytes: legend('#bytes', '.legendpoints path', 'fill'), curves: legend('#curves', '.legendlines path', 'stroke')},
    uploads: d.querySelectorAll('[data-title*="hare"]').length, scheme: page.getComputedStyle(d.body).backgroundColor
  };
 })));
}, 800));</script>"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="needs a Chromium (Debian: apt-get install chromium)"),
]


class GrowingBoard(Board):
    """Board of a run that logs one more step whenever somebody has asked for its curve."""

    folder: Path
    logged = 100

    def curves(self, query: dict[str, list[str]]) -> dict[str, Any]:
        found = super().curves(query)
        with (self.folder / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(train_event(self.logged)) + "\n")
        self.logged += 1
        return found


def variant_of(name: str) -> str:
    """Return `0.02` for `optim.matrix_lr=0.02 (2 runs)`, as a legend of curves names it."""
    return name.removeprefix("optim.matrix_lr=").partition(" ")[0]


def browse(address: str, folder: Path, *options: str) -> tuple[str, str]:
    """Return the page's document after ten seconds of its own time, and what it wrote to the console."""
    command = [
        str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync",
        "--disable-background-networking", "--disable-component-update", "--allow-file-access-from-files",
        f"--user-data-dir={folder / 'profile'}", "--enable-logging=stderr", "--virtual-time-budget=10000", *options,
        "--dump-dom", address,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    return done.stdout, "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)


def write_hostile_sweep(runs: Path) -> None:
    """Write a sweep whose names try to become HTML."""
    asked = []
    for number in range(3):
        cfg = replace(with_lr(0.02 + 0.01 * number), name=f"run{number}")
        for seed in (1, 2):
            write_run(runs, cfg, 1.22 + 0.01 * number + 0.0005 * seed, seed)
            asked.append(([f"optim.matrix_lr={HOSTILE}{number}"], cfg, seed))
    write_sweep(runs, "hostile", asked, command=["golf", HOSTILE])
    for result in runs.glob("*/seed*/result.json"):
        values = json.loads(result.read_text())
        result.write_text(json.dumps({**values, "name": HOSTILE, "reason": HOSTILE}))


def test_a_page_follows_a_run_that_goes_on(runs: Path, tmp_path: Path) -> None:
    board = GrowingBoard(runs, RulesConfig())
    board.folder = write_run(runs, Config(), None)
    with served(runs, board=board) as server:
        document, console = browse(server.url, tmp_path)
    polls, points = (int(re.findall(rf'data-{key}="(\d+)"', document)[0]) for key in ("polls", "points"))
    # The board is asked once a poll, and each answer comes before the line that it causes.
    assert polls >= 2 and points == 100 + polls - 1 and console == ""


@pytest.mark.parametrize(("seconds", "axis"), [(600.0, "share of the budget"), (0.0, "step")])
def test_curves_are_over_the_share_of_the_budget_where_a_clock_ends_runs(
    seconds: float, axis: str, runs: Path, tmp_path: Path
) -> None:
    """The fast variant's half of the clock is step 8000 and the slow one's step 4000."""
    for lr, pace in ((0.02, 0.0375), (0.03, 0.075)):
        folder = write_run(runs, with_lr(lr, budget=BudgetConfig(train_seconds=seconds)), 1.2)
        events = [{**train_event(i), "train_seconds": pace * 100 * i} for i in range(40 if lr == 0.03 else 80)]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    script = """<script>addEventListener('load', () => setTimeout(() => {
      const ends = document.getElementById('curves').data.map(trace => Math.max(...trace.x));
      document.body.setAttribute('data-found', JSON.stringify(ends)); }, 800));</script></body>"""
    page = single_file(judged(read_study([str(runs)]), RulesConfig())).replace("</body>", script)
    (tmp_path / "page.html").write_text(page)
    document, console = browse((tmp_path / "page.html").as_uri(), tmp_path, TALL)
    match = re.search(r'data-found="([^"]*)"', document)
    assert match and console == "" and f"over {axis}, 2 runs" in document, console
    ends = sorted(json.loads(match[1]))
    assert ends == pytest.approx([0.4875, 0.49375] if seconds else [3900, 7900])


def test_names_become_text_and_no_script_is_refused(runs: Path, tmp_path: Path) -> None:
    write_hostile_sweep(runs)
    with served(runs) as server:
        document, console = browse(server.url, tmp_path, TALL)
    assert console == ""
    assert not re.search(r"<(img|b)\b", document.partition("<body")[2])
    assert unescape(document).count(HOSTILE) > 6 and "legendtext" in document


@pytest.mark.parametrize("case", ["lr", "hostile"])
def test_one_file_has_everything_at_any_width(case: str, runs: Path, tmp_path: Path) -> None:
    write_lr_sweep(runs, SCORES) if case == "lr" else write_hostile_sweep(runs)
    (tmp_path / "page.html").write_text(single_file(judged(read_study([case]), RulesConfig())))
    widths = (1280, 390)
    frame = '<iframe src="page.html" width="{}" height="2600" style="border:0"></iframe>'
    frames = "".join(map(frame.format, widths))
    (tmp_path / "frame.html").write_text(f"<!DOCTYPE html><html><body>{frames}{INSPECTION}</body></html>")
    document, console = browse((tmp_path / "frame.html").as_uri(), tmp_path, "--window-size=1800,2700")
    match = re.search(r'<body data-found="([^"]*)"', document)
    assert match and console == "", console
    for width, found in zip(widths, json.loads(unescape(match[1])), strict=True):
        assert_everything_is_seen(found, width, case)


def assert_everything_is_seen(found: dict[str, Any], width: int, case: str) -> None:
    assert found["page"] <= found["width"] == width and found["requests"] == [] and found["bold"] == 0
    assert found["uploads"] == 0 and "Verdicts by rules=house" in found["text"]
    assert len(found["plots"]) == 4
    # Whoever has no mouse reaches everything in the order of the page, and hears what it is.
    assert found["controls"][0][0] == "Skip to the runs" and len(found["controls"]) > 15
    assert [c for c in found["controls"] if not all(c)] == []
    assert all(found["tables"]) and len(found["tables"]) == 4
    for plot in found["plots"]:
        assert plot["label"] and plot["legend"] and plot["box"][2] <= width
        assert plot["legendBox"][1] >= plot["axis"][3] - 2, f"the legend covers the axis: {plot}"
    if case == "lr":
        colours = {
            where: {name.rpartition("matrix_lr=")[2].split(" ")[0]: c for name, c in found["colours"][where]}
            for where in found["colours"]
        }
        assert len(set(colours["table"].values())) == 3
        for name, colour in colours["table"].items():
            assert colours["bytes"][name] == colours["curves"][name] == colour, "a variant has one colour everywhere"
    if case == "hostile":
        assert HOSTILE in found["text"]
        assert sum(name.startswith("<img src=x") for name in found["plots"][2]["legend"]) == 3


def test_long_names_that_differ_in_the_middle_stay_apart(runs: Path, tmp_path: Path) -> None:
    asked = []
    for number in range(3):
        cfg = with_lr(0.02 + 0.01 * number)
        write_run(runs, cfg, 1.22 + 0.01 * number)
        asked.append(([f"optim.matrix_lr={'begin' * 9}{number}{'end' * 9}"], cfg, 1))
    write_sweep(runs, "long", asked)
    (tmp_path / "page.html").write_text(single_file(judged(read_study(["long"]), RulesConfig())))
    document, console = browse((tmp_path / "page.html").as_uri(), tmp_path, TALL)
    ticks = re.findall(r'class="ytick"><text[^>]*data-unformatted="(begin\w+)"', document)
    assert console == "" and len(set(ticks)) == 3


def test_a_thousand_runs_are_a_short_page_of_one_configuration_a_variant(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_lr_sweep(runs, {0.001 * i: [1.2 + 0.0001 * i + 0.0005 * seed for seed in range(20)] for i in range(1, 51)})
    read: list[Path] = []

    def counted(path: Path) -> Any:
        read.append(path)
        return read_json(path)

    asked: list[Any] = []

    class SeenBoard(Board):
        def curves(self, query: dict[str, list[str]]) -> dict[str, Any]:
            asked.append(query)
            return super().curves(query)

    monkeypatch.setattr(board_values, "read_json", counted)
    with served(runs, board=SeenBoard(runs, RulesConfig())) as server:
        document, console = browse(server.url, tmp_path, "--virtual-time-budget=2000", "--window-size=1280,900")
    assert console == "" and "Show all 1000 rows" in document and "Runs (1000)" in document
    table = document.partition('id="run-table"')[2].partition("</table>")[0]
    assert table.count("<tr") == 151, "the heading and the first rows"
    assert len(read) == 50 and not asked
    assert document.count("<svg") < 20 and "api/curves" not in document, "plots below the window wait"
    assert 'src="plotly.min.js"' not in document, "and so does the script that draws them"


def test_the_page_shows_what_the_cluster_says_of_runs_without_a_result(runs: Path, tmp_path: Path) -> None:
    write_lr_sweep(runs, SCORES)
    folder = write_run(runs, with_lr(0.05), None)
    write_sweep(runs, "lr", [([f"optim.matrix_lr={lr}"], with_lr(lr), 1) for lr in (0.06, 0.05, 0.02)])
    running = {"variant": folder.parent.name[-8:], "name": "lr=0.05", "seed": 1, "state": "running", "detail": "step 7"}
    waiting = {"variant": "0f0f0f0f", "name": "lr=0.07", "seed": 2, "state": "lost", "detail": "Slurm says NODE_FAIL"}
    told = {"runs": [running, waiting], "about": "after round 1 of at most 3; job 9 sends the next"}
    with served(runs, board=Board(runs, RulesConfig(), lambda name: told)) as server:
        document, console = browse(f"{server.url}#sweep=lr", tmp_path)
    assert console == "" and "On the cluster: 1 running, 1 lost." in document and "job 9 sends the next" in document
    table = document.partition('id="run-table"')[2].partition("</table>")[0]
    assert "running: step 7" in table and "lost: Slurm says NODE_FAIL" in table and "lr=0.07 seed 2" in table
    assert table.count("<input") == 3, "what has no folder has no curve to select"


def test_imported_records_have_verdicts_and_no_curves(runs: Path, tmp_path: Path) -> None:
    """Their folders have no metrics, so their runs were once called silent."""
    for number in range(3):
        keep(runs, f"record{number}", seeds(1.2 + 0.01 * number))
    findings = judged(read_study([f"record{number}" for number in (2, 0, 1)]), RulesConfig())
    (tmp_path / "page.html").write_text(single_file(findings))
    document, console = browse((tmp_path / "page.html").as_uri(), tmp_path)
    assert console == "" and "Imported runs have no curves." in document
    assert "silent" not in document.partition("<script")[0]
    shown = unescape(document.partition('id="verdict-table"')[2].partition("</table>")[0])
    assert all(f"record{i}" in shown for i in range(3)) and shown.count("better") >= 2


def test_paper_has_every_plot_in_light_colours_and_as_wide_as_a_sheet(runs: Path, tmp_path: Path) -> None:
    write_lr_sweep(runs, SCORES)
    page = single_file(judged(read_study(["lr"]), RulesConfig()))
    # A window of 300 pixels, where most plots wait; printing has to draw them at once.
    script = """<script>addEventListener('load', () => setTimeout(async () => {
      const shown = () => [...document.querySelectorAll('figure:not([hidden]) .plot')];
      const plots = () => shown().map(p => p.querySelector('.main-svg')?.clientWidth);
      const ink = () => getComputedStyle(document.body).color;
      const before = [plots(), ink()];
      dispatchEvent(new Event('beforeprint'));
      await null;  // what a printer waits for
      const paper = [plots(), ink(), document.querySelector('.xtitle').style.fill];
      dispatchEvent(new Event('afterprint'));
      document.getElementById('curves').scrollIntoView();
      const tell = found => document.body.setAttribute('data-found', JSON.stringify(found));
      setTimeout(() => tell([before, paper, [plots(), ink()]]), 900);
    }, 800));</script></body>"""
    (tmp_path / "page.html").write_text(page.replace("</body>", script))
    options = ("--window-size=1280,300", "--blink-settings=preferredColorScheme=0")
    document, console = browse((tmp_path / "page.html").as_uri(), tmp_path, *options)
    match = re.search(r'data-found="([^"]*)"', document)
    assert match and console == "", console
    (before, dark), (paper, ink, axis), (after, again) = json.loads(unescape(match[1]))
    assert None in before and all(width and width <= 680 for width in paper)
    assert dark == again == "rgb(228, 232, 236)" and ink == axis == "rgb(29, 35, 42)"
    assert after[3] > 1000, "the window's width is back"


def test_the_page_is_dark_where_the_reader_wants_it(runs: Path, tmp_path: Path) -> None:
    write_lr_sweep(runs, SCORES)
    (tmp_path / "page.html").write_text(single_file(judged(read_study(["lr"]), RulesConfig())))
    frame = '<iframe src="page.html" width="1200" height="3000"></iframe>'
    (tmp_path / "frame.html").write_text(f"<!DOCTYPE html><html><body>{frame}{INSPECTION}")
    schemes = []
    for dark in ("0", "1"):
        address = (tmp_path / "frame.html").as_uri()
        document = browse(address, tmp_path, TALL, f"--blink-settings=preferredColorScheme={dark}")[0]
        schemes += re.findall(r"scheme&quot;:&quot;(rgb[^&]*)&quot;", document)
    assert schemes == ["rgb(20, 24, 28)", "rgb(255, 255, 255)"]


def test_the_page_of_a_run_shows_a_gap_that_is_less_than_a_thousandth(runs: Path, tmp_path: Path) -> None:
    folder = write_run(runs, Config(), 1.2, quant_gap_bpb=0.00027846, model_params=181_392)
    with served(runs) as server:
        document, console = browse(f"{server.url}#page={folder.parent.name}%2F{folder.name}", tmp_path)
    shown = dict(re.findall(r"<td[^>]*>([\w ]+)</td><td[^>]*>([\d.,]+)</td>", document))
    assert console == "" and shown["quant gap bpb"] == "0.000278" and shown["model params"] == "181,392"
