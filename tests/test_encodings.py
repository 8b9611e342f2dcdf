"""Every text that is read or written is UTF-8, whatever the locale says."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import ROOT

PROGRAMS = ("golf", "ideas", "bench", "scripts", "hydra_plugins")


def unnamed(source: str) -> Iterator[int]:
    """Yield the lines of a source that read or write text without naming its encoding."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        named = {keyword.arg: keyword.value for keyword in node.keywords}
        function = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        modes = [
            a.value for a in (*node.args, *named.values()) if isinstance(a, ast.Constant) and isinstance(a.value, str)
        ]
        is_binary = any("b" in mode and not set(mode) - set("rwaxb+") for mode in modes)
        is_text = isinstance(text := named.get("text"), ast.Constant) and text.value is True
        opens = function in ("open", "fdopen", "TextIOWrapper", "NamedTemporaryFile") and not is_binary
        # os.open, safe_open and such read no text; a record's own `open` has one argument, its folder.
        opens &= not (
            isinstance(node.func, ast.Attribute)
            and getattr(node.func.value, "id", "") in ("os", "gzip", "tarfile", "MirrorRecord")
        )
        opens |= function == "fdopen" and not is_binary
        if (function in ("read_text", "write_text") or opens or is_text) and "encoding" not in named:
            # `read_text("utf-8")` names it, too.
            place = {"read_text": 0, "write_text": 1, "TextIOWrapper": 1}.get(function, 9)
            if len(node.args) <= place:
                yield node.lineno


def test_every_read_and_write_names_its_encoding() -> None:
    paths = [path for top in PROGRAMS for path in (ROOT / top).rglob("*.py") if not path.name.startswith("test_")]
    found = [f"{p.relative_to(ROOT)}:{line}" for p in paths for line in unnamed(p.read_text(encoding="utf-8"))]
    assert len(paths) > 300 and found == []


@pytest.mark.parametrize(
    ("line", "counts"),
    [
        *((line, 1) for line in ("p.read_text()", "p.write_text(t)", 'p.open("a")', "open(p)", "run(x, text=True)")),
        *((line, 1) for line in ('os.fdopen(d, "w")', 'p.read_text(errors="replace")', 'p.open(newline="")')),
        *((line, 0) for line in ('p.read_text("utf-8")', 'p.open("rb")', 'open(p, encoding="utf-8")', "os.open(p, 0)")),
        *(
            (line, 0)
            for line in ('p.open("ab", buffering=0)', 'run(x, text=True, encoding="utf-8")', 'os.fdopen(d, "rb")')
        ),
    ],
)
def test_a_line_without_an_encoding_is_found(line: str, counts: int) -> None:
    assert len(list(unnamed(line))) == counts


ASCII = {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
COMMANDS = (["plan", "scale=laptop"], ["help", "settings", "lr"], ["report", "."], ["ledger"], ["doctor"], ["status"])


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_commands_run_in_an_ascii_locale(command: list[str], tmp_path: Path) -> None:
    environment = {**os.environ, **ASCII, "GOLF_RUNS": str(tmp_path / "runs")}
    call = [sys.executable, "-m", "golf", *command]
    done = subprocess.run(call, capture_output=True, cwd=ROOT, env=environment, timeout=900)
    assert b"Traceback" not in done.stderr and b"Unicode" not in done.stderr, done.stderr
    assert done.returncode in (0, 2)
