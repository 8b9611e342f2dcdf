"""Files in conf/ as editors and other machines leave them."""

from __future__ import annotations

from pathlib import Path

import pytest

from golf.errors import GolfError
from golf.settings import mistakes
from golf.settings.mistakes import refuse_odd_files

SWEEP = b"# @package _global_\nsweep: { kind: grid, reference: first }\nhydra:\n  mode: MULTIRUN\n"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (SWEEP, ""),
        (SWEEP.replace(b"\n", b"\r\n"), ""),
        (SWEEP.replace(b"grid", "Zürich".encode()), ""),
        (b"", ""),
        (SWEEP.replace(b"  mode", b"\tmode"), r"no YAML in line 4 .*: indent by spaces, not by tabs\.$"),
        (SWEEP.replace(b"first }", b"first"), r"no YAML in line \d"),
        (b"\xef\xbb\xbf" + SWEEP, "begins with a byte order mark: save it as UTF-8 without one"),
        (SWEEP.decode().encode("utf-16"), r"is not UTF-8 \(byte 1\): save it as UTF-8"),
        (SWEEP.replace(b"grid", "Zürich".encode("latin-1")), r"is not UTF-8 \(byte \d+\): save it as UTF-8"),
        (SWEEP.replace(b"grid", b"\0"), "no YAML"),
    ],
)
def test_an_odd_file_is_named(content: bytes, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mistakes, "ROOT", tmp_path)
    (tmp_path / "conf/sweep").mkdir(parents=True)
    (tmp_path / "conf/sweep/mine.yaml").write_bytes(content)
    for overrides in (["+sweep=mine"], ["a=b", "sweep=[other,mine]"]):
        if not sentence:
            refuse_odd_files(overrides)
            continue
        with pytest.raises(GolfError, match=rf"^conf/sweep/mine\.yaml {sentence}|^conf/sweep/mine\.yaml is {sentence}"):
            refuse_odd_files(overrides)
