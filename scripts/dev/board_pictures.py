"""Photograph the board's page of a sweep with Chromium: `python scripts/dev/board_pictures.py SWEEP FOLDER`.

It writes board.png, as a desktop shows the page, and board_phone.png. With `--field` it writes board_field.png, on
which the list of public records is open: for submissions that were imported. GOLF_RUNS names the runs root.
"""

from __future__ import annotations

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
            subprocess.run(
                [
                    *("chromium", *OPTIONS, "--allow-file-access-from-files", f"--user-data-dir={work / 'profile'}"),
                    *(f"--window-size={width},{height}", "--virtual-time-budget=10000"),
                    *(f"--screenshot={(folder / f'{picture}.png').absolute()}", (work / "frame.html").as_uri()),
                ],
                check=True,
                capture_output=True,
                timeout=180,
            )


if __name__ == "__main__":
    photograph(sys.argv[1], Path(sys.argv[2]), field="--field" in sys.argv)
