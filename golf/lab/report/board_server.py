"""The web server of the board: a page, its scripts, and JSON that is read from the runs root.

It writes nothing but the notes on runs that a reader saves.
"""

from __future__ import annotations

import gzip
import hashlib
import hmac
import ipaddress
import json
import math
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from golf.errors import GolfError
from golf.lab.report.board_run import MOST_NOTE_BYTES, artifact_values, file_of, run_values, write_note
from golf.lab.report.board_sweep import sweep_values
from golf.lab.report.board_values import RunsRoot
from golf.lab.report.findings import judged
from golf.lab.report.study import read_study
from golf.settings.config import RulesConfig

PAGE_FOLDER = Path(__file__).parent / "board_page"
PAGE_FILES = {
    "index.html": "text/html",
    "board.css": "text/css",
    "board.js": "text/javascript",
    **{f"{name}.js": "text/javascript" for name in ("plots", "score_plots", "tables", "run_page")},
}
PLOTLY = "plotly.min.js"
MOST_RUNS = 200  # runs whose curves one request may ask for
Query = dict[str, list[str]]
# The page loads only what this server sends and runs no script that is written inside a page.
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


class Board:
    """Answers to the page: each method answers one address with plain values.

    `jobs` returns the runs of a sweep that a cluster has without a result, and a sentence on its rounds.
    """

    def __init__(self, root: Path, rules: RulesConfig, jobs: Callable[[str], dict[str, Any]] | None = None) -> None:
        self.root, self.rules, self._jobs = root, rules, jobs
        self.runs = RunsRoot(root)
        self._sweeps: dict[tuple[str, str], tuple[Any, dict[str, Any]]] = {}  # by name and chosen reference

    def overview(self, query: Query) -> dict[str, Any]:
        """Return all runs and sweeps."""
        return self.runs.overview()

    def curves(self, query: Query) -> dict[str, Any]:
        """Return the new points of each `run=<id>`, which may say `have=<generation>.<train>.<validation>`."""
        ids, have = query.get("run", []), query.get("have", [])
        if len(ids) > MOST_RUNS:
            raise GolfError(f"Curves of {len(ids)} runs were asked for; at most {MOST_RUNS} are shown at once.")
        by_run = {}
        for number, id in enumerate(ids):
            generation, train, validation = _counts(have[number]) if number < len(have) else (0, 0, 0)
            by_run[id] = self.runs.tail(id).since(generation, {"train": train, "validation": validation})
        return by_run

    def sweep(self, query: Query) -> dict[str, Any]:
        """Return the findings on the sweep `name`, judged anew only if a file has changed.

        `reference` names a variant by its id that all others are compared with in place of the sweep's own reference.
        """
        name, reference = _one(query, "name"), query.get("reference", [""])[0]
        record = self.runs.sweep_record(name)
        self.runs.refresh()
        state = self.runs.state(name)
        if (known := self._sweeps.get((name, reference))) is None or known[0] != state:
            # The path, because a name could be a folder of the directory that the server was started in.
            study = read_study([str(record)], reference or None, row_of=self.runs.row)
            self._sweeps[name, reference] = state, sweep_values(judged(study, self.rules), self.root)
        return self._sweeps[name, reference][1]

    def run(self, query: Query) -> dict[str, Any]:
        """Return settings, command, warnings, log and files of the run `run`."""
        return run_values(self.runs.folder(_one(query, "run")))

    def artifact(self, query: Query) -> dict[str, Any]:
        """Return the bytes of the artifact of the run `run` by tensor class."""
        return artifact_values(self.runs.folder(_one(query, "run")))

    def file(self, query: Query) -> tuple[bytes, str]:
        """Return content and kind of the file `name` of the run `run`."""
        return file_of(self.runs.folder(_one(query, "run")), _one(query, "name"))

    def note(self, query: Query, content: bytes) -> dict[str, Any]:
        """Write the note on the run `run` and return what the overview now says of it."""
        write_note(self.runs.folder(_one(query, "run")), content, _one(query, "seen"))
        return self.runs.overview()["runs"][_one(query, "run")]

    def jobs(self, query: Query) -> dict[str, Any]:
        """Return what the cluster says about the runs of the sweep `name` that have no result."""
        name = _one(query, "name")
        self.runs.sweep_record(name)  # refuses names that are no sweeps
        return self._jobs(name) if self._jobs else {"runs": [], "about": ""}

    def why(self, query: Query) -> dict[str, Any]:
        """Return the sentences about the settings in which the runs `one` and `other` differ."""
        from golf.lab.report.why import explained, side  # composes configurations, which takes a while to import

        one, other = (side(str(self.runs.folder(_one(query, key)).path)) for key in ("one", "other"))
        return {"lines": explained(one, other)}


class BoardServer(ThreadingHTTPServer):
    """Server of one board. With a `token`, every address begins with it; without one, only this machine is served."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], board: Board, token: str = "") -> None:
        self.board, self.token = board, token
        self.lock = threading.Lock()  # the board's caches are not made for several threads
        super().__init__(address, _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing about a page that was closed before its answer came; print any other error."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)

    @property
    def url(self) -> str:
        """Return the address of the page, with the token if there is one."""
        host, port = self.server_address[:2]
        return f"http://{host!s}:{port}/{f'{self.token}/' if self.token else ''}"


class _Handler(BaseHTTPRequestHandler):
    server: BoardServer
    timeout = 30  # seconds; a silent client does not hold a thread for longer

    def do_GET(self) -> None:
        """Answer with a file of the page or of a run, or with JSON; anything else is 404."""
        parts = urlsplit(self.path)
        name, board, query = self._name(parts.path), self.server.board, parse_qs(parts.query)
        told = (board.overview, board.curves, board.sweep, board.jobs, board.why, board.run, board.artifact)
        answers = {f"api/{one.__name__}": one for one in told}
        if name is None:
            self._refuse()
        elif name in answers:
            self._answer(lambda: answers[name](query))
        elif name == "file":
            self._answer(lambda: board.file(query))
        elif name == PLOTLY:
            self._send(200, plotly_file().read_bytes(), "text/javascript")
        elif (file := name or "index.html") in PAGE_FILES:
            self._send(200, (PAGE_FOLDER / file).read_bytes(), PAGE_FILES[file])
        else:
            self._send(404, b"There is nothing here.", "text/plain")

    def do_POST(self) -> None:
        """Write a note on a run; anything else is refused, and so is a page of another origin."""
        parts = urlsplit(self.path)
        name, board, query = self._name(parts.path), self.server.board, parse_qs(parts.query)
        length = self.headers.get("Content-Length", "")
        # A browser names the page that sends: without this, any page could write notes here.
        is_own = urlsplit(self.headers.get("Origin", "")).netloc == self.headers.get("Host")
        if name != "api/note" or not is_own or not length.isdecimal() or int(length) > MOST_NOTE_BYTES:
            self.close_connection = True
            self._refuse(f"Only notes of at most {MOST_NOTE_BYTES:,} bytes are taken, and from this page alone.")
        else:
            content = self.rfile.read(int(length))
            self._answer(lambda: board.note(query, content))

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: a page that is left open asks every few seconds."""

    def _name(self, path: str) -> str | None:
        """Return the address without slash and token; None for a caller who may not read it."""
        if not self.server.token:
            # A web page elsewhere can point its own name at this machine, but the name then stands in this header.
            host = urlsplit(f"//{self.headers.get('Host', '')}").hostname
            return path.removeprefix("/") if is_this_machine(host or "") else None
        given, _, rest = path.removeprefix("/").partition("/")
        return rest if hmac.compare_digest(given.encode(), self.server.token.encode()) else None

    def _refuse(self, why: str = "This address lacks the token that `golf board` has printed.") -> None:
        self._send(403, as_json({"error": why}), "application/json")

    def _answer(self, answer: Callable[[], Any]) -> None:
        try:
            with self.server.lock:
                status, answered = 200, answer()
        except GolfError as error:
            status, answered = 400, {"error": str(error)}
        content, kind = answered if isinstance(answered, tuple) else (as_json(answered), "application/json")
        self._send(status, content, kind)

    def _send(self, status: int, content: bytes, kind: str) -> None:
        tag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
        if self.headers.get("If-None-Match") == tag:
            status, content = 304, b""
        is_packed = len(content) > 2000 and "gzip" in self.headers.get("Accept-Encoding", "")
        self.send_response(status)
        if is_packed:
            content = gzip.compress(content, compresslevel=1)
            self.send_header("Content-Encoding", "gzip")
        for key, value in {**HEADERS, "ETag": tag, "Content-Type": f"{kind}; charset=utf-8"}.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def is_this_machine(host: str) -> bool:
    """Tell whether a host name or address reaches only this machine."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def plotly_file() -> Path:
    """Return the plotting library's script, part of the package plotly. Raises `GolfError` without the package."""
    # Importing the package takes a second, and only its file is needed.
    spec = find_spec("plotly")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        if (path := Path(folder, "package_data", PLOTLY)).is_file():
            return path
    raise GolfError("The board draws with the package plotly, which is missing: `pip install -e .` in Golf's folder.")


def as_json(values: Any) -> bytes:
    """Return `values` as JSON that browsers read: numbers that are not finite become null."""
    try:
        text = json.dumps(values, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(values), ensure_ascii=False, separators=(",", ":"))
    # JSON may hold halves of characters, which no UTF-8 has.
    return text.encode(errors="replace")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _one(query: Query, key: str) -> str:
    if len(query.get(key, [])) != 1:
        raise GolfError(f"The address needs one {key}=.")
    return query[key][0]


def _counts(text: str) -> tuple[int, int, int]:
    numbers = text.split(".")
    if len(numbers) != 3 or not all(number.isdecimal() for number in numbers):
        raise GolfError("have= is three numbers with dots between them: generation, train and validation points.")
    return int(numbers[0]), int(numbers[1]), int(numbers[2])
