"""The HTML page is self-contained, and readable in a real browser if one is installed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from golf.report.findings import Findings, judged
from golf.report.study import Study, read_study
from golf.settings.config import Config, RulesConfig
from tests.report.runs import LOWER_LR, variant, with_lr, write_lr_sweep, write_run, write_sweep

NOISE = (-0.0006, 0.0001, 0.0005)
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
# The page measures its own layout and writes it into an attribute, which `--dump-dom` shows to the test.
INSPECTION = """<script>addEventListener('load', () => {
  const box = e => { const r = e.getBoundingClientRect(); return [r.left, r.top, r.right, r.bottom]; };
  const lines = c => { const r = document.createRange(); r.selectNodeContents(c); return r.getClientRects().length; };
  const texts = svg => [...svg.querySelectorAll('text')].map(e => ({text: e.textContent.trim(), box: box(e)}));
  document.body.setAttribute('data-found', JSON.stringify({
    width: innerWidth, page: document.documentElement.scrollWidth,
    requests: performance.getEntriesByType('resource').map(e => e.name),
    scroller: (s => [s.clientWidth, s.scrollWidth])(document.querySelector('.scroll')),
    figures: [...document.querySelectorAll('figure svg')].map(s => ({box: box(s), texts: texts(s)})),
    broken: [...document.querySelectorAll('td')].filter(c => c.textContent.length < 24 && lines(c) > 1)
      .map(c => c.textContent),
    cells: [...document.querySelectorAll('td')].filter(c => c.scrollWidth > c.clientWidth + 1).map(c => c.textContent),
    small: [...document.querySelectorAll('figure text')].map(box).filter(b => Math.min(b[3] - b[1], b[2] - b[0]) < 4)
  }));
});</script>"""


def lr_sweep(runs: Path) -> Findings:
    write_lr_sweep(runs, {float(value): [bpb + e for e in NOISE] for value, bpb in LOWER_LR.items()})
    return judged(read_study(["lr"]), RulesConfig())


def ablation(runs: Path) -> Findings:
    """Write a sweep with long names, an outlier, seeds over the cap and an unfinished variant; return its findings."""
    stacks = {f"negative/a_rather_long_name_of_an_experiment_{i}": with_lr(0.01 * i) for i in range(1, 13)}
    asked = []
    for number, (name, cfg) in enumerate(stacks.items()):
        for seed, noise in enumerate(NOISE):
            over: dict[str, Any] = {}
            if seed == 2:
                over = {"state": "over_bytes", "reason": "16,047,642 bytes", "total_bytes": 16_047_642}
            bpb = None if number == 5 else 1.2 + 0.0007 * number + noise + (0.05 if number == 11 else 0)
            write_run(runs, replace(cfg, name=name.replace("/", "_")), bpb, seed, **over)
            asked.append(([f"experiment={name}"], replace(cfg, name=name.replace("/", "_")), seed))
    write_sweep(runs, "ablation", asked, swept=["experiment"])
    return judged(read_study(["ablation"]), RulesConfig())


def two_variants(runs: Path) -> Findings:
    """Write a sweep of few rows with a long key; return its findings."""
    asked = []
    for layers, bpb in ((4, 1.21), (9, 1.22)):
        cfg = replace(Config(), model=replace(Config().model, num_layers=layers))
        for seed, noise in enumerate(NOISE):
            write_run(runs, cfg, bpb + noise, seed)
            asked.append(([f"model.num_layers={layers}"], cfg, seed))
    write_sweep(runs, "two", asked, swept=["model.num_layers"])
    return judged(read_study(["two"]), RulesConfig())


def single_run(runs: Path) -> Findings:
    return judged(read_study([str(write_run(runs, Config(), 1.2244))]), RulesConfig())


def nothing_counted(runs: Path) -> Findings:
    return judged(read_study([str(write_run(runs, Config(), None))]), RulesConfig())


CASES = {"lr": lr_sweep, "ablation": ablation, "two": two_variants, "single": single_run, "nothing": nothing_counted}


def page(findings: Findings) -> str:
    """Return the page. Its module imports matplotlib, which the collection of tests need not wait for."""
    from golf.report import page as module

    return module.page(findings)


class Links(HTMLParser):
    """Everything in a page that a browser would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        links = [value for key, value in attrs if key in ("src", "href", "xlink:href", "srcset", "data") and value]
        self.found += [value for value in links if not value.startswith("#")]
        self.found += [tag] if tag in ("script", "link", "iframe", "image", "img", "object") else []


@pytest.mark.parametrize("case", CASES)
def test_a_page_fetches_nothing_and_has_a_plot_for_what_there_is(case: str, runs: Path) -> None:
    text = page(CASES[case](runs))
    links = Links()
    links.feed(text)
    assert links.found == [] and not re.search(r"@import|url\((?!#)", text)
    assert text.count("<figure>") == {"lr": 4, "ablation": 4, "two": 4, "single": 3, "nothing": 1}[case]
    assert "<metadata>" not in text and str(runs) not in text


def test_axes_have_names_with_units(runs: Path) -> None:
    text = page(lr_sweep(runs))
    for label in (
        "optim.matrix_lr",
        "post-quant score",
        "(bits per byte)",
        "difference in bits per byte; left is better",
    ):
        assert label in text
    for label in ("artifact + code (MB of 1,000,000 bytes)", "seconds of training", "training loss (nats per token)"):
        assert label in text


def test_every_plot_explains_its_colours(runs: Path) -> None:
    pictures = page(lr_sweep(runs)).split("<figure>")[1:]
    scores, differences, sizes, curves = (set(re.findall(r">([^<>]+)</text>", picture)) for picture in pictures)
    assert scores >= {"reference", "better", "seed"} and differences >= {"reference", "better"}
    assert sizes >= {"0.06 (reference)", "0.02", "cap"} and curves >= {"0.06 (reference)", "0.02"}


def test_names_are_text_not_markup() -> None:
    odd = variant("<script>alert(1)</script>$x$", [1.2, 1.21])
    text = page(judged(Study("a<b> $title", (odd, variant("b", [1.1, 1.11])), odd), RulesConfig()))
    assert "<script" not in text and "a&lt;b&gt; $title" in text


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="needs a Chromium (Debian: apt-get install chromium)")
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("case", ["lr", "ablation", "two", "single"])
def test_a_page_can_be_read_in_a_browser(case: str, width: int, runs: Path, tmp_path: Path) -> None:
    found = looked_at(page(CASES[case](runs)), width, tmp_path)
    assert found["requests"] == []
    assert found["page"] <= found["width"] == width  # the page itself never scrolls sideways …
    inside, content = found["scroller"]
    assert width > 1000 or case == "single" or content > inside  # … a wide table does, in its own frame
    assert found["cells"] == found["broken"] == []
    assert found["figures"] and found["small"] == []
    for figure in found["figures"]:
        assert len(figure["texts"]) >= 4
        for text in figure["texts"]:
            assert contains(figure["box"], text["box"]), f"{text['text']} is cut off"
        assert overlapping(figure["texts"]) == []
        ticks = [text["text"] for text in figure["texts"]]
        assert case != "ablation" or len(set(ticks)) >= 8  # long names keep what tells them apart


def test_the_measure_of_overlap_finds_some() -> None:
    a, b = {"text": "a", "box": [0, 0, 10, 10]}, {"text": "b", "box": [8, 4, 20, 14]}
    assert overlapping([a, b]) == [("a", "b")] and overlapping([a, {"text": "c", "box": [11, 0, 20, 10]}]) == []


def looked_at(text: str, width: int, folder: Path) -> dict:
    """Return the page's measurements of itself in a frame of `width` pixels; a browser's window cannot be as narrow."""
    (folder / "page.html").write_text(text.replace("</body>", INSPECTION + "</body>"))
    frame = f'<iframe src="page.html" width="{width}" height="2000" style="border:0"></iframe>'
    report = "<script>addEventListener('load', () => setTimeout(() => document.body.setAttribute('data-found', "
    report += "document.querySelector('iframe').contentDocument.body.getAttribute('data-found')), 300));</script>"
    (folder / "frame.html").write_text(f"<!DOCTYPE html><html><body>{frame}{report}</body></html>")
    command = [
        str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files",
        f"--user-data-dir={folder / 'profile'}", "--window-size=1400,2200", "--virtual-time-budget=4000", "--dump-dom",
        (folder / "frame.html").as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    match = re.search(r'<body data-found="([^"]*)"', done.stdout)
    assert match, done.stderr[-2000:]
    return json.loads(match[1].replace("&quot;", '"').replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))


def contains(outer: list[float], inner: list[float]) -> bool:
    return (
        inner[0] >= outer[0] - 1 and inner[1] >= outer[1] - 1 and inner[2] <= outer[2] + 1 and inner[3] <= outer[3] + 1
    )


def overlapping(texts: list[dict]) -> list[tuple[str, str]]:
    """Return the pairs of texts that overlap by more than a pixel in both directions."""
    pairs = []
    for index, first in enumerate(texts):
        for second in texts[index + 1 :]:
            a, b = first["box"], second["box"]
            if min(a[2], b[2]) - max(a[0], b[0]) > 1 and min(a[3], b[3]) - max(a[1], b[1]) > 1:
                pairs.append((first["text"], second["text"]))
    return pairs
