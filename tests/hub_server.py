"""A loopback server that speaks as much of the hub's protocol as a download of single files needs."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

COMMIT = "0" * 40


class Hub(ThreadingHTTPServer):
    """Serves `root/<file>` as `/datasets/<owner>/<name>/resolve/<revision>/<file>`.

    `cut_after` maps a file name to the bytes after which its next transfer breaks off.
    """

    def __init__(self, root: Path):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.root = root
        self.cut_after: dict[str, int] = {}
        self.paths: list[str] = []  # of all requests
        self.requests: list[tuple[str, str, str | None]] = []  # method, file, Range header

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self, *, with_body: bool) -> None:
        self.server.paths.append(self.path)
        name = self.path.partition("?")[0].partition("/resolve/")[2].partition("/")[2]
        ranged = self.headers.get("Range")
        self.server.requests.append((self.command, name, ranged))
        path = self.server.root / name
        if not name or not path.is_file():
            self.send_response(404)
            self.send_header("X-Error-Code", "EntryNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        content = path.read_bytes()
        start = int(ranged.removeprefix("bytes=").partition("-")[0]) if ranged else 0
        self.send_response(206 if ranged else 200)
        self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(len(content) - start))
        if ranged:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.end_headers()
        if not with_body:
            return
        cut = self.server.cut_after.pop(name, None)
        self.wfile.write(content[start:] if cut is None else content[start : start + cut])
        if cut is not None:
            self.close_connection = True


@contextmanager
def serve(root: Path) -> Iterator[Hub]:
    hub = Hub(root)
    thread = threading.Thread(target=hub.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        hub.server_close()
