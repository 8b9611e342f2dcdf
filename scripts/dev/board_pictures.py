"""Photograph the board's page of a sweep with Chromium: `python scripts/dev/board_pictures.py SWEEP FOLDER`.

It writes board.png, as a desktop shows the page, and board_phone.png. With `--field` it writes board_field.png, on
which the list of public records is open: for submissions that were imported. With `--plots` it writes each plot of the
page as its camera does. GOLF_RUNS names the runs root.
"""

from __future__ import annotations

import base64
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from golf.lab.report.board_file import single_file
from golf.lab.report.findings import judged
from golf.lab.report.study import read_study
from golf.settings.config import RulesConfig

SIZES = {"board": (1280, 1235), "board_phone": (390, 1200)}  # width and height in pixels
FIELD_SIZES = {"board_field": (1280, 1080)}
OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
PLOT_WIDTH = 768  # pixels of the window in which plots are drawn
# All plots have to be in view to be drawn, and a drawing may be under way.
SAVE_PLOTS = """<script>addEventListener("load", () => setTimeout(async () => {
  for (const plot of document.querySelectorAll(".plot")) {
    if (plot.closest("figure").hidden) continue;
    await painting.get(plot);
    const { width, height } = plot.getBoundingClientRect(), layout = { ...plot.layout, paper_bgcolor: "white" };
    const saved = document.createElement("i");
    saved.className = "saved";
    const picture = await Plotly.toImage({ data: plot.data, layout }, { format: "png", width, height });
    saved.textContent = plot.id + " " + picture;
    document.body.append(saved);
  }
}, 4000))</script>"""


def save_plots(sweep: str, folder: Path) -> None:
    """Write one PNG for each plot of the page of `sweep`, named as the plot, on white: a page may be dark."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        page = single_file(judged(read_study([sweep]), RulesConfig())) + SAVE_PLOTS
        (Path(name) / "page.html").write_text(page, encoding="utf-8")
        shown = _chromium(Path(name), f"--window-size={PLOT_WIDTH},6000", "--dump-dom", "page.html")
    for plot, picture in re.findall(r'<i class="saved">(\w+) data:image/png;base64,([^<]+)</i>', shown):
        (folder / f"{plot}.png").write_bytes(base64.b64decode(picture))


def photograph(sweep: str, folder: Path, *, field: bool = False) -> None:
    """Write the pictures of the page of `sweep`, or of an imported submission within the public `field`."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        page = single_file(judged(read_study([sweep]), RulesConfig()))
        page = page.replace('<details id="field">', '<details id="field" open>') if field else page
        (work / "page.html").write_text(page, encoding="utf-8")
        for picture, (width, height) in (FIELD_SIZES if field else SIZES).items():
            # A browser's window cannot be as narrow as a phone, but a frame in it can.
            frame = f'<iframe src="page.html" width="{width}" height="{height}" style="border:0"></iframe>'
            (work / "frame.html").write_text(
                f'<!DOCTYPE html><html><body style="margin:0">{frame}</body></html>', encoding="utf-8"
            )
            target = (folder / f"{picture}.png").absolute()
            _chromium(work, f"--window-size={width},{height}", f"--screenshot={target}", "frame.html")


def _chromium(work: Path, *options: str) -> str:
    """Open the last of `options`, a page in `work`, and return what Chromium prints."""
    *others, page = options
    fixed = ["chromium", *OPTIONS, "--allow-file-access-from-files", f"--user-data-dir={work / 'profile'}"]
    command = [*fixed, "--virtual-time-budget=10000", *others, (work / page).as_uri()]
    return subprocess.run(command, check=True, capture_output=True, encoding="utf-8", timeout=180).stdout


if __name__ == "__main__":
    if "--plots" in sys.argv:
        save_plots(sys.argv[1], Path(sys.argv[2]))
    else:
        photograph(sys.argv[1], Path(sys.argv[2]), field="--field" in sys.argv)
