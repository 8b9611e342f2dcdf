"""Coloured, compressed, prefixed, interleaved, cut and broken logs: no traceback, and no number that the file lacks."""

from __future__ import annotations

import gzip
import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from golf.commands import import_command
from golf.errors import GolfError
from golf.field.folder_reader import ForeignFolder
from golf.field.import_store import import_folders, record
from golf.field.import_tables import as_csv, as_json, counts, explanation, fault_lines, summary, table
from golf.field.imported_entries import entries_of
from golf.field.log_reader import read_log
from golf.lab.report.imported_rows import rows_of_record
from tests.field.imports import log

FIXTURES = Path(__file__).parent / "fixtures"
LOGS = sorted(p for p in FIXTURES.glob("*/*") if p.suffix in (".log", ".txt"))
WHOLE = [p for p in LOGS if p.parent.name in ("a_standard", "b_phased", "c_ternary", "m_compatible")]
CHANGES = "gz bom crlf cr colour bars ranks srun default stamp ray clock nuls latin long"
NUMBERS = ["nan", "inf", "-inf", "1e3", "1e999", "1,234", "12,34", "1_000", ".5", "5.", "-1", "0x10", "½", "1.2.3"]
FORMS = """step:{}/200 val_loss:{} val_bpb:{}
step:{}/{} train_loss:{} train_time:{}ms step_avg:{}ms
{}/{} train_loss: {} train_time: {}m tok/s: {}
stopping_early: wallclock_cap train_time:{}ms step:{}/{}
seed:{}
val_loader:shards tokens:{}
Serialized model: {} bytes
Serialized model int8+zlib: {} bytes
Total submission size int8+zlib: {} bytes
Code size: {} bytes
budget:{}/16000000
artifact:{}MB code:{}
final_int8_zlib_roundtrip_exact val_loss:{} val_bpb:{}
total_eval_time:{}s
import torch
def f():
Traceback (most recent call last):
{}""".splitlines()
COLOURS = "\x1b[32m", "\x1b[0m"


def as_bytes(lines: list[str]) -> bytes:
    return "\n".join(lines).encode(errors="replace")


def only(found: list[ForeignFolder]) -> ForeignFolder:
    (one,) = found
    return one


def figures(path: Path) -> list[dict[str, float]]:
    """Return the numbers and the state of every run in a file, without line numbers."""
    runs = only(list(import_folders([path]))).runs
    return [{k: f.value for k, f in run.figures.items()} | {"state": hash(run.state)} for run in runs]


def coloured(text: str) -> bytes:
    return re.sub("val_bpb", COLOURS[0] + "val_bpb" + COLOURS[1], text).replace("step:", "\x1b[1mstep:\x1b[0m").encode()


def with_progress_bars(text: str) -> bytes:
    return "\r\n".join(f"  3%|▎  | 1/32\r 97%|█▉| 31/32\r{line}" for line in text.splitlines()).encode()


def of_rank_zero(text: str) -> bytes:
    lines = text.splitlines()
    other = [re.sub(r"val_bpb([:=]\s*)\d", r"val_bpb\g<1>7", line) for line in lines]  # each rank scores its share
    pairs = zip(lines, other, strict=True)
    return "\n".join(f"[rank0]: {mine}\n[rank5]: {its}" for mine, its in pairs).encode()


@pytest.mark.parametrize("path", WHOLE, ids=lambda p: f"{p.parent.name}/{p.stem}")
@pytest.mark.parametrize(
    "change",
    [
        lambda text: gzip.compress(text.encode()),
        lambda text: b"\xef\xbb\xbf" + text.encode(),
        lambda text: text.replace("\n", "\r\n").encode(),
        lambda text: text.replace("\n", "\r").encode(),
        coloured,
        with_progress_bars,
        of_rank_zero,
        lambda text: "\n".join(f"0: {line}" for line in text.splitlines()).encode(),
        lambda text: "\n".join(f"[default0]:{line}" for line in text.splitlines()).encode(),
        lambda text: "\n".join(f"2026-04-01 10:00:00,123 - INFO - {line}" for line in text.splitlines()).encode(),
        lambda text: "\n".join(f"(Trainer pid=77, ip=10.0.0.1) {line}" for line in text.splitlines()).encode(),
        lambda text: "\n".join(f"[10:00:01] {line}" for line in text.splitlines()).encode(),
        lambda text: (text + "\0" * 5000).encode(),
        lambda text: b"\xff\xfe\xfd caf\xe9 \x80\n".join(line.encode() for line in text.splitlines(keepends=True)),
        lambda text: ("x" * 400_000 + "\n" + text).encode(),
    ],
    ids=CHANGES.split(),
)
def test_encoding_and_prefixes_do_not_change_a_number(
    path: Path, change: Callable[[str], bytes], tmp_path: Path
) -> None:
    changed = tmp_path / path.name
    changed.write_bytes(change(path.read_text()))
    assert figures(changed) == figures(path)


def junk() -> st.SearchStrategy[str]:
    """Lines of the known forms with numbers that are none, and any text."""
    filled = st.builds(
        lambda form, number: form.format(*[number] * 9),
        st.sampled_from(FORMS),
        st.sampled_from(NUMBERS) | st.integers(-(10**30), 10**30).map(str),
    )
    return filled | st.text(max_size=60)


@st.composite
def damaged(draw: st.DrawFn) -> str:
    """A real log with lines dropped, doubled, swapped, cut and foreign ones put in."""
    lines = draw(st.sampled_from(LOGS)).read_text().splitlines()
    for _ in range(draw(st.integers(0, 8))):
        at = draw(st.integers(0, max(len(lines) - 1, 0)))
        what = draw(st.sampled_from(["drop", "double", "cut", "junk", "char", "end"]))
        if what == "drop":
            del lines[at : at + draw(st.integers(1, 5))]
        elif what == "double" and lines:
            lines.insert(at, lines[draw(st.integers(0, len(lines) - 1))])
        elif what == "cut" and lines:
            lines[at] = lines[at][: draw(st.integers(0, len(lines[at])))]
        elif what == "char" and lines:
            place = draw(st.integers(0, len(lines[at])))
            lines[at] = lines[at][:place] + draw(st.text(max_size=2)) + lines[at][place:]
        elif what == "end":
            lines = lines[:at]
        else:
            lines.insert(at, draw(junk()))
    return "\n".join(lines)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(damaged())
def test_a_number_is_in_the_line_that_it_is_said_to_be_from(tmp_path: Path, text: str) -> None:
    path = tmp_path / "train_seed1.log"
    path.write_bytes(text.encode(errors="replace"))
    lines = text.encode(errors="replace").decode().split("\n")
    found = only(list(import_folders([path])))
    for run in found.runs:
        for key, figure in run.figures.items():
            source = re.fullmatch(r"train_seed1\.log:(\d+)(?: \(.*\))?", figure.source, re.DOTALL)
            if source is None:
                assert key in ("step_ms", "eval_seconds", "total_bytes"), figure
                continue
            assert is_written(figure.value, lines[int(source[1]) - 1]), (
                f"{key} {figure} in {lines[int(source[1]) - 1]!r}"
            )
    assert_printable(found)


def is_written(value: float, line: str) -> bool:
    if not math.isfinite(value):
        return re.search("nan|inf|e[+]?[0-9]{3}", line, re.IGNORECASE) is not None
    found = re.findall(r"[-+]?(?:\d[\d,_]*\.?\d*|\.\d+)(?:e[-+]?\d+)?", line, re.IGNORECASE)
    numbers = [float(n.replace(",", "").replace("_", "")) for n in found]
    return any(math.isclose(value, n * scale, rel_tol=1e-12) for n in numbers for scale in (1, 1e-3, 60, 1000))


def assert_printable(found: ForeignFolder) -> None:
    """Assert that a folder can be stored, listed, printed and explained."""
    values = record(found)
    rows = rows_of_record(values)
    assert len(as_csv(rows).splitlines()) >= 1 + len(rows) and as_json([values])
    entries = entries_of([values])
    assert len(table(entries, 100).splitlines()) >= 2 + len(rows)
    assert all(isinstance(text, str) for text in (*fault_lines(entries), counts(entries), *summary([values])))
    for row in rows:
        assert row.name in explanation([values], row.name)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.binary(max_size=3000)
    | st.lists(junk(), max_size=40).map(lambda lines: "\n".join(lines).encode(errors="replace"))
)
def test_any_bytes_are_read_without_a_traceback(tmp_path: Path, content: bytes) -> None:
    for name in ("train.log", "submission.json"):
        path = tmp_path / name
        path.write_bytes(content)
        for found in import_folders([path]):
            assert_printable(found)


@pytest.mark.parametrize("cut", range(1, 9))
def test_an_exact_score_that_was_cut_off_is_not_the_score(tmp_path: Path, cut: int) -> None:
    log = (FIXTURES / "a_standard" / "train.log").read_text().rstrip()
    whole, rounded = (re.findall(rf"{tag} .*val_bpb:(\S+)", log)[-1] for tag in ("exact", "final_int8_zlib_roundtrip"))
    assert len(whole) == 10 and len(rounded) == 6
    cut_off = tmp_path / "train.log"
    cut_off.write_text(log[:-cut])
    assert figures(cut_off)[0]["val_bpb"] == float(whole[:-cut] if cut < 4 else rounded)


def test_a_cut_compressed_log_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    text = "".join(f"step:{i}/20000 train_loss:2.1 train_time:{i * 43}ms step_avg:43.00ms\n" for i in range(1, 9000))
    path = tmp_path / "train.log.gz"
    path.write_bytes(gzip.compress(text.encode())[:-4000])
    (run,) = only(list(import_folders([tmp_path]))).runs
    assert run.state == "unfinished" and 100 < (run.value("steps") or 0) < 9000
    assert any("compressed data ends" in fault for fault in run.faults)


def test_a_line_without_end_is_read_in_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    with path.open("wb") as file:
        for _ in range(40):
            file.write(b"val_bpb:1.0 " * 90_000)
        file.write(b"\nseed:3\nstep:5/10 train_loss:2.0 train_time:5ms step_avg:1.00ms\n")
    import tracemalloc

    tracemalloc.start()
    log = read_log(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8_000_000 and log.runs[-1].figures["seed"].value == 3 and log.runs[-1].steps == 5


def test_no_more_than_the_cap_is_unpacked_and_the_rest_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("golf.field.text.LARGEST_BYTES", 1 << 19)
    (tmp_path / "train.log.gz").write_bytes(gzip.compress(log().encode() + bytes(1 << 20)))
    (tmp_path / "nul.log.gz").write_bytes(gzip.compress(bytes(1 << 20)))
    (found,) = import_folders([tmp_path])
    cut = "only the first 524,288 bytes of its text were read"
    assert found.runs[0].bpb == 1.2 and any(cut in fault for fault in found.runs[0].faults)
    assert found.skipped["nul.log.gz"].startswith(f"holds no text, {cut}")


def test_memory_is_bounded_in_lines_and_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("golf.field.log_reader.LINES_KEPT", 100)
    monkeypatch.setattr("golf.field.log_reader.RUNS_KEPT", 20)
    lines = "".join(f"step:{i}/900 train_loss:2.1 train_time:{i}ms step_avg:1.00ms\n" for i in range(1, 901))
    (tmp_path / "train.log").write_text((log() + lines) * 30)
    read = read_log(tmp_path / "train.log")
    assert len(read.runs) == 20 and "only its first 20 runs" in read.problem
    assert all(len(run.curve) <= 101 and run.steps == 13_000 for run in read.runs)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("train.log", log().encode("utf-16"), "is UTF-16: save it as UTF-8"),
        ("submission.json", b'{"a":' * 200_000, "is not JSON"),
        ("submission.json", b'{"val_bpb": ' + b"1" * 5000 + b"}", "is not JSON"),
        ("submission.json", b'{"val_bpb": 0.0}', "claims no score"),
    ],
)
def test_import_says_why_there_is_no_run(tmp_path: Path, name: str, content: bytes, reason: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(GolfError, match=re.escape(f"({name} {reason})")):
        import_command.main([str(tmp_path), "--dry-run"])


def test_a_folder_without_permission_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with pytest.raises(GolfError, match="cannot be read: you have no permission"):
        import_command.main([str(tmp_path), "--dry-run"])
