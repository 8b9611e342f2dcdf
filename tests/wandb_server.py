"""A loopback server that speaks as much of W&B's protocol as a run needs: run, history, summary, files, artifacts."""

from __future__ import annotations

import gzip
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEY = "0123456789" * 4
DEAD = -1  # as a status: the connection is closed without an answer


@dataclass
class ServedRun:
    """What the server knows about a run."""

    described: dict[str, Any] = field(default_factory=dict)  # last values of the run's own fields: groupName, tags, …
    lines: dict[str, dict[int, str]] = field(default_factory=dict)  # streamed file → line number → line
    complete: bool = False

    @property
    def config(self) -> dict[str, Any]:
        return {key: entry["value"] for key, entry in json.loads(self.described["config"]).items() if key != "_wandb"}

    @property
    def history(self) -> list[dict[str, Any]]:
        return [json.loads(line) for _, line in sorted(self.lines.get("wandb-history.jsonl", {}).items())]

    @property
    def summary(self) -> dict[str, Any]:
        return json.loads(self.lines["wandb-summary.json"][0])


class WandbServer(ThreadingHTTPServer):
    """`delay` seconds before every answer; `refuse(request number)` gives an HTTP status instead of it, or DEAD."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.runs: dict[str, ServedRun] = {}
        self.uploads: dict[str, bytes] = {}  # <run>/<file> or artifacts/<artifact>/<file> → content
        self.requests: list[str] = []
        self.delay = 0.0
        self.refuse: Callable[[int], int | None] = lambda number: None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def environment(self) -> dict[str, str]:
        """What points the client here."""
        return {"WANDB_BASE_URL": self.url, "WANDB_API_KEY": KEY}

    def answer(self, operation: str, v: dict[str, Any]) -> dict[str, Any]:
        """The data of a GraphQL answer."""
        if operation == "Viewer":
            return {"viewer": {"id": "u", "entity": "me", "username": "me", "flags": "{}", "teams": {"edges": []}}}
        if operation == "UpsertBucket":
            known = {key: value for key, value in v.items() if value is not None}
            self.runs.setdefault(v["name"], ServedRun()).described.update(known)
            project = {"id": "p", "name": v["project"], "entity": {"id": "e", "name": v.get("entity") or "me"}}
            bucket = {"id": "r", "name": v["name"], "displayName": v.get("displayName"), "project": project}
            return {"upsertBucket": {"bucket": {**bucket, "historyLineCount": 0}, "inserted": True}}
        if operation == "CreateRunFiles":
            files = [{"name": name, "uploadUrl": self._upload_url(f"{v['run']}/{name}")} for name in v["files"]]
            return {"createRunFiles": {"runID": "r", "uploadHeaders": [], "files": files}}
        if operation == "ArtifactType":
            return {"project": {"artifact": None}}
        if operation == "CreateArtifact":
            name = v["input"]["artifactCollectionName"]
            artifact = {"id": name, "state": "PENDING", "artifactSequence": {"id": "s", "latestArtifact": None}}
            return {"createArtifact": {"artifact": artifact}}
        if operation == "CreateArtifactManifest":
            upload = {"id": "f", "name": "m", "displayName": "m", "uploadHeaders": []}
            upload["uploadUrl"] = self._upload_url("manifest")
            return {"createArtifactManifest": {"artifactManifest": {"id": "m", "file": upload}}}
        if operation == "CreateArtifactFiles":
            nodes = [self._artifact_file(spec) for spec in v["input"]["artifactFiles"]]
            return {"createArtifactFiles": {"files": {"edges": [{"node": node} for node in nodes]}}}
        if operation == "CommitArtifact":
            return {"commitArtifact": {"artifact": {"id": v["artifactID"], "digest": "d"}}}
        return {"organization": None, "entity": {"organization": None}, "serverInfo": {"features": []}}

    def handle_error(self, *_: object) -> None:
        pass  # a client that was killed

    def stream(self, run: ServedRun, sent: dict[str, Any]) -> None:
        """Lines of the files that grow: they replace those from the offset on."""
        for name, part in sent.get("files", {}).items():
            offset = 0 if name == "wandb-summary.json" else part["offset"]
            run.lines.setdefault(name, {}).update({offset + i: line for i, line in enumerate(part["content"])})
        run.complete = run.complete or bool(sent.get("complete"))

    def _upload_url(self, name: str) -> str:
        return f"{self.url}/upload/{name}"

    def _artifact_file(self, spec: dict[str, Any]) -> dict[str, Any]:
        name = spec["name"]
        url = self._upload_url(f"artifacts/{spec['artifactID']}/{name}")
        return {
            "id": name,
            "name": name,
            "displayName": name,
            "storagePath": name,
            "artifact": {"id": "a"},
            "uploadUrl": url,
            "uploadHeaders": [],
            "uploadMultipartUrls": None,
        }


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: WandbServer

    def log_message(self, *_: object) -> None:
        pass

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Content-Encoding") == "gzip":
            content = gzip.decompress(content)
        self.server.requests.append(self.path)
        if self.server.delay:
            time.sleep(self.server.delay)
        status = self.server.refuse(len(self.server.requests))
        if status == DEAD:
            self.close_connection = True
        elif status:
            self._send(status, {"error": "refused"})
        elif self.path == "/graphql":
            asked = json.loads(content)
            match = re.search(r"(?:query|mutation)\s+(\w+)", asked["query"])
            self._send(200, {"data": self.server.answer(match[1] if match else "", asked.get("variables") or {})})
        elif self.path.endswith("/file_stream"):
            run = self.server.runs[self.path.split("/")[-2]]
            self.server.stream(run, json.loads(content))
            self._send(200, {})
        elif self.path.startswith("/upload/"):
            self.server.uploads[self.path.removeprefix("/upload/")] = content
            self._send(200, {})
        else:  # telemetry
            self._send(200, {})

    do_PUT = do_GET = do_POST  # noqa: N815

    def _send(self, status: int, values: dict[str, Any]) -> None:
        content = json.dumps(values).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def serve_wandb() -> Iterator[WandbServer]:
    server = WandbServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
