"""The board of one sweep as a single HTML file: page, scripts and data. It fetches nothing."""

from __future__ import annotations

import re
from typing import Any

from golf.report.board_server import PAGE_FOLDER, PLOTLY, Board, as_json, plotly_file

MOST_POINTS = 1000  # points of a curve and event, so that a file of many runs can still be sent
# A browser enforces it for a file, too: scripts and data of this file, and no other place.
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"


def single_file(board: Board, sweep: str) -> str:
    """Return the page of a recorded sweep as HTML with everything in it. Raises `GolfError` for an unknown sweep."""
    text = (PAGE_FOLDER / "index.html").read_text(encoding="utf-8")
    text = re.sub(r'<link rel="stylesheet" href="([\w.]+)">', lambda m: f"<style>{_page_file(m[1])}</style>", text)
    data = _inside_script(as_json(answers(board, sweep)).decode())
    saved = f'<script id="saved" type="application/json">{data}</script>\n'
    text = re.sub(r'<script src="([\w.]+)"></script>', lambda m: f"<script>{_script(m[1])}</script>", text)
    policy = f'<meta charset="utf-8">\n<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
    head, body = text.replace('<meta charset="utf-8">', policy, 1).split("<script>", 1)
    return f"{head}{saved}<script>{body}"


def answers(board: Board, name: str) -> dict[str, Any]:
    """Return what the page would ask for, by address, for the runs of one sweep."""
    findings, overview = board.sweep({"name": [name]}), board.overview({})
    (sweep,) = (sweep for sweep in overview["sweeps"] if sweep["name"] == name)
    runs = {id: overview["runs"][id] for id in sweep["runs"]}
    variants = {run["variant"] for run in runs.values()}
    settings = {id: values for id, values in overview["settings"].items() if id in variants}
    curves = {id: _thinned(board.runs.tail(id).since(0, {})) for id in runs}
    return {
        "api/overview": {**overview, "runs": runs, "settings": settings, "sweeps": [sweep]},
        "api/sweep": findings,
        "api/curves": curves,
    }


def _thinned(curve: dict[str, Any]) -> dict[str, Any]:
    """Return the curve with evenly spread points, the last one among them."""
    points = {event: found[:: -max(1, -(-len(found) // MOST_POINTS))][::-1] for event, found in curve["points"].items()}
    return {**curve, "points": points}


def _page_file(name: str) -> str:
    return (PAGE_FOLDER / name).read_text(encoding="utf-8")


def _script(name: str) -> str:
    text = plotly_file().read_text(encoding="utf-8") if name == PLOTLY else _page_file(name)
    return re.sub(r"</(script)", r"<\\/\1", text, flags=re.IGNORECASE)


def _inside_script(json_text: str) -> str:
    # A name with `</script>` or `<!--` in it would end the element or hide its end.
    return json_text.replace("<", "\\u003c")
