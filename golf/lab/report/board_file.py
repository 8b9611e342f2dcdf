"""The board of one report as a single HTML file: page, scripts and data. It fetches nothing."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from golf.lab.report.board_run import run_values
from golf.lab.report.board_server import PAGE_FOLDER, PLOTLY, as_json, plotly_file
from golf.lab.report.board_sweep import page_of, sweep_values
from golf.lab.report.board_values import RunsRoot
from golf.lab.report.findings import Findings
from golf.run.folder import RunFolder, runs_root

FOLDERS = re.compile(r"(?:~|(?<![\w.~]))/(?:[^\s/'\"=,:]+/)+")  # of an absolute path, or one below a home
MOST_PAGES = 40  # runs whose pages are in a file
MOST_POINTS = 1000  # points of a curve and event, so that a file of many runs can still be sent
# A browser enforces it for a file, too: scripts and data of this file, and no other place.
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"


def single_file(findings: Findings) -> str:
    """Return the page of findings as HTML with everything in it. Raises `GolfError` without the package plotly."""
    text = (PAGE_FOLDER / "index.html").read_text(encoding="utf-8")
    text = re.sub(r'<link rel="stylesheet" href="([\w.]+)">', lambda m: f"<style>{_page_file(m[1])}</style>", text)
    # A name with `</script>` or `<!--` in it would end the element or hide its end.
    data = as_json(answers(findings)).decode().replace("<", "\\u003c")
    saved = f'<script id="saved" type="application/json">{data}</script>\n'
    # The live page loads plotly when it draws for the first time; a file has nowhere to load it from.
    text = text.replace('<script src="plots.js">', f'<script src="{PLOTLY}"></script>\n<script src="plots.js">', 1)
    text = re.sub(r'<script src="([\w.]+)"></script>', lambda m: f"<script>{_script(m[1])}</script>", text)
    policy = f'<meta charset="utf-8">\n<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
    head, body = text.replace('<meta charset="utf-8">', policy, 1).split("<script>", 1)
    return f"{head}{saved}<script>{body}"


def answers(findings: Findings) -> dict[str, Any]:
    """Return what the page would ask for, by address. Imported runs have no page: they are in the verdicts alone."""
    rows = [row for variant in findings.study.variants for row in variant.rows]
    folders = {id: row.path for row in rows if (id := page_of(row)) and row.path}
    runs = RunsRoot(Path(findings.study.title), folders)
    waiting = sum(row.path is None and row.is_open for row in rows)
    sweep = {"name": findings.study.title, "kind": findings.study.kind, "created": "", "error": ""}
    pages = dict(list(folders.items())[:MOST_PAGES])
    names = dict.fromkeys(row.host for row in rows if row.host)
    hosts = {host: f"machine {number}" for number, host in enumerate(names, start=1)}
    told = {
        "api/overview": {**runs.overview(), "sweeps": [{**sweep, "runs": list(folders), "waiting": waiting}]},
        "api/sweep": sweep_values(findings, runs_root()),
        "api/run": {id: _without_files(run_values(RunFolder(path))) for id, path in pages.items()},
    }
    curves = {id: _thinned(runs.tail(id).since(0, {})) for id in folders}
    return {"written_at": time.time(), "api/curves": curves, **_without_places(told, hosts)}


def _without_files(page: dict[str, Any]) -> dict[str, Any]:
    """Return the page of a run without log, files and host, which say more than a report is for."""
    result = {key: value for key, value in page["result"].items() if key != "host"}
    return {**page, "folder": "", "log": "", "files": [], "made": {**page["made"], "host": ""}, "result": result}


def _without_places(value: Any, hosts: Mapping[str, str]) -> Any:
    """Return plain values without folders, in whose sentences `hosts` have numbers: the file may go to anybody."""
    if isinstance(value, dict):
        return {key: _without_places(part, hosts) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_without_places(part, hosts) for part in value]
    if not isinstance(value, str):
        return value
    text = FOLDERS.sub("…/", value)
    # A single word is a state, a name or a number, which may be called like a machine.
    names = "|".join(map(re.escape, sorted(hosts, key=len, reverse=True)))
    return re.sub(rf"(?<![\w-])(?:{names})(?![\w-])", lambda m: hosts[m[0]], text) if names and " " in text else text


def _thinned(curve: dict[str, Any]) -> dict[str, Any]:
    """Return the curve with evenly spread points, the last one among them."""
    points = {event: lines[:: -max(1, -(-len(lines) // MOST_POINTS))][::-1] for event, lines in curve["points"].items()}
    return {**curve, "points": points}


def _page_file(name: str) -> str:
    return (PAGE_FOLDER / name).read_text(encoding="utf-8")


def _script(name: str) -> str:
    text = plotly_file().read_text(encoding="utf-8") if name == PLOTLY else _page_file(name)
    return re.sub(r"</(script)", r"<\\/\1", text, flags=re.IGNORECASE)
