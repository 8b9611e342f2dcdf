"""The board: what its server tells and refuses, and its page in a real browser."""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from golf.errors import GolfError
from golf.files import write_json
from golf.lab.report.board_curves import MetricsTail
from golf.lab.report.board_field import public_field
from golf.lab.report.board_file import answers as board_answers
from golf.lab.report.board_file import single_file
from golf.lab.report.board_run import note_id
from golf.lab.report.board_server import Board, BoardServer, is_this_machine, plotly_file
from golf.lab.report.board_values import RunsRoot
from golf.lab.report.difference import differences
from golf.lab.report.findings import judged
from golf.lab.report.public_records import public_records
from golf.lab.report.results import results_table
from golf.lab.report.study import Study, read_study
from golf.lab.report.texts import FINEWEB
from golf.lab.report.variants import Variant
from golf.run.identity import variant_id
from golf.run.locks import run_lock_name, try_lock
from golf.settings.config import BudgetConfig, RulesConfig, ScheduleConfig
from tests.lab.report.runs import train_event, variant, with_lr, write_lr_sweep, write_run, write_sweep
from tests.support import ROOT, golf_command

SCORES = {0.06: [1.2440, 1.2447], 0.04: [1.2281, 1.2288], 0.02: [1.2229, 1.2236]}


@contextmanager
def served(root: Path, token: str = "", board: Board | None = None) -> Iterator[BoardServer]:
    with BoardServer(("127.0.0.1", 0), board or Board(root, RulesConfig()), token) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


@contextmanager
def opened_files() -> Iterator[list[str]]:
    """Yield the names of the files that are opened meanwhile. The hook itself stays, since Python removes none."""
    names: list[str] = []
    is_counting = True

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if is_counting and event == "open" and isinstance(arguments[0], str | Path):
            names.append(str(arguments[0]))

    sys.addaudithook(note)
    yield names
    is_counting = False


def get(server: BoardServer, address: str, **headers: str) -> tuple[int, bytes, http.client.HTTPMessage]:
    """Return status, body and headers of an address as it is written, dots and all."""
    place = urlsplit(server.url)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=900)
    connection.request("GET", place.path + address, headers=headers)
    response = connection.getresponse()
    return response.status, response.read(), response.headers


def values(server: BoardServer, address: str) -> Any:
    return json.loads(get(server, address)[1])


def test_the_overview_lists_runs_sweeps_and_only_the_settings_that_differ(runs: Path) -> None:
    write_lr_sweep(runs, SCORES)
    write_run(runs, with_lr(0.03), None)
    with served(runs) as server:
        found = values(server, "api/overview")
    (sweep,) = found["sweeps"]
    assert len(found["runs"]) == 7 and sweep["name"] == "lr" and len(sweep["runs"]) == 6 and sweep["waiting"] == 0
    assert sweep["rounds"] == 0
    assert {tuple(settings) for settings in found["settings"].values()} == {("optim.matrix_lr",)}
    assert {s["optim.matrix_lr"] for s in found["settings"].values()} == {"0.06", "0.04", "0.03", "0.02"}
    (unfinished,) = (run for run in found["runs"].values() if run["state"] == "unfinished")
    assert unfinished["steps"] == 9900 and unfinished["val_bpb"] is None and unfinished["written_at"] > 1e9


def test_a_sweep_is_shown_as_the_report_prints_it(runs: Path) -> None:
    write_lr_sweep(runs, SCORES)
    with served(runs) as server:
        found = values(server, "api/sweep?name=lr")
    findings = judged(read_study(["lr"]), RulesConfig())
    table = results_table(findings)
    assert found["rows"] == [[c.cell(row) for c in table.filled] for row in table.rows]
    assert [column["key"] for column in found["columns"]][:2] == ["optim.matrix_lr", "verdict"]
    assert found["notes"] == list(table.notes) and found["reference"] == findings.reference_name
    best = found["variants"][0]
    comparison = findings.verdicts[best["id"]].comparison
    assert comparison and tuple(best["difference_interval"]) == comparison.interval(findings.rules.confidence)
    assert best["kind"] == "better" and best["number"] == 0.02 and len(best["seeds"]) == 2


def test_the_first_view_reads_a_file_once_and_sends_little(runs: Path) -> None:
    write_lr_sweep(runs, {0.001 * i: [1.2 + 0.001 * i + 0.0005 * seed for seed in range(5)] for i in range(1, 9)})
    with opened_files() as opened, served(runs) as server:
        sent = [get(server, f"api/{what}", **{"Accept-Encoding": "gzip"})[1] for what in ("overview", "sweep?name=lr")]
    read = Counter(Path(name).name for name in opened if Path(name).is_relative_to(runs))
    assert read["result.json"] == read["environment.json"] == 40, "one look at each run"
    per_variant = 3 * 8  # settings that differ, labels and columns of the table
    assert read["config.json"] == per_variant + 40, "one look at each run's note and tags"
    assert read["metrics.jsonl"] == 0, "curves are read when they are seen"
    assert sum(map(len, sent)) < 12_000 and max(Counter(opened).values()) <= 4


def test_a_page_that_was_closed_prints_nothing(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with served(runs) as server:
        for error, is_said in ((BrokenPipeError(), False), (TimeoutError(), False), (KeyError("a defect"), True)):
            try:
                raise error
            except Exception:
                server.handle_error(None, ("127.0.0.1", 1))
            assert ("Traceback" in capsys.readouterr().err) == is_said


def test_what_a_cluster_says_of_a_sweep_comes_with_it(runs: Path) -> None:
    write_lr_sweep(runs, SCORES)
    told = {"runs": [{"variant": "a", "name": "lr=1", "seed": 3, "state": "waiting", "detail": "pending"}], "about": ""}
    with served(runs, board=Board(runs, RulesConfig(), {"lr": told}.__getitem__)) as server:
        assert values(server, "api/jobs?name=lr") == told
        assert get(server, "api/jobs?name=../lr")[0] == 400
    with served(runs) as server:
        assert values(server, "api/jobs?name=lr") == {"runs": [], "about": ""}


def test_another_reference_gives_the_verdicts_of_the_report_against_it(runs: Path) -> None:
    write_lr_sweep(runs, SCORES)
    chosen = with_lr(0.04)
    with served(runs) as server:
        found = values(server, f"api/sweep?name=lr&reference={variant_id(chosen)}")
        assert "is not among the variants" in values(server, "api/sweep?name=lr&reference=ffffffff")["error"]
        assert values(server, "api/sweep?name=lr")["reference"] == "optim.matrix_lr=0.06"
    findings = judged(read_study(["lr"], "0.04"), RulesConfig())
    assert found["reference_id"] == variant_id(chosen) and found["notes"] == list(results_table(findings).notes)
    assert {v["id"]: v["kind"] for v in found["variants"]} == {
        **{id: verdict.kind for id, verdict in findings.verdicts.items()},
        variant_id(chosen): "reference",
    }


def test_a_sweep_that_never_started_is_not_the_first(runs: Path) -> None:
    write_lr_sweep(runs, SCORES)
    write_sweep(runs, "newer", [([], with_lr(0.5), 1)], created="2026-02-01T00:00:00")
    assert [sweep["name"] for sweep in RunsRoot(runs).overview()["sweeps"]] == ["lr", "newer"]


def test_how_far_a_run_is_comes_with_it(runs: Path) -> None:
    cfg = with_lr(0.02, schedule=ScheduleConfig(iterations=19_800), budget=BudgetConfig(train_seconds=0))
    folder = write_run(runs, cfg, None)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"event": "validation", "step": 9900, "val_loss": 3.0, "val_bpb": 1.31}) + "\n")
    lock = try_lock(run_lock_name(variant_id(cfg), 1))
    assert lock
    with lock:
        (run,) = RunsRoot(runs).overview()["runs"].values()
    assert run["share"] == 0.5 and run["seconds_left"] == pytest.approx(594.0) and run["iterations"] == 19_800
    assert run["validation_bpb"] == 1.31 and run["line_seconds"] == pytest.approx(6.0) and run["is_held"]
    assert not next(iter(RunsRoot(runs).overview()["runs"].values()))["is_held"]


def test_the_overview_says_what_ends_the_training_of_each_variant(runs: Path) -> None:
    clock, steps = with_lr(0.02), with_lr(0.03, budget=BudgetConfig(train_seconds=0))
    write_run(runs, clock, 1.2)
    write_run(runs, steps, None)
    (write_run(runs, with_lr(0.04), 1.2) / "config.json").write_text("{")
    found = RunsRoot(runs).overview()["budgets"]
    assert found == {variant_id(clock): (600.0, 20_000), variant_id(steps): (0.0, 20_000)}


def test_the_page_of_a_run_has_its_settings_log_and_files(runs: Path) -> None:
    cfg = with_lr(0.02, note="from the command", tags=["one", "two"])
    folder = write_run(runs, cfg, 1.22, warnings=["the machine was slow"])
    (folder / "output.log").write_text("".join(f"line {i}\n" for i in range(5000)))
    (folder / "link.txt").symlink_to("/etc/passwd")
    id = quote(f"{folder.parent.name}/seed1")
    with served(runs) as server:
        found = values(server, f"api/run?run={id}")
        text, headers = get(server, f"file?run={id}&name=config.json")[1:]
        assert [get(server, f"file?run={id}&name={name}")[0] for name in ("link.txt", "../seed1/config.json")] == [
            400
        ] * 2
        assert "artifact.golf" in values(server, f"api/artifact?run={id}")["error"]
        run = values(server, "api/overview")["runs"][f"{folder.parent.name}/seed1"]
    assert found["settings"]["optim.matrix_lr"] == "0.02" and found["warnings"] == ["the machine was slow"]
    assert found["log"].endswith("line 4999\n") and found["log"].startswith("line ") and len(found["log"]) < 6000
    assert "link.txt" not in [name for name, _, _ in found["files"]]
    assert text == (folder / "config.json").read_bytes() and headers["Content-Type"].startswith("text/plain")
    assert run["note"] == "from the command" and run["tags"] == ["one", "two"]


def post(server: BoardServer, address: str, body: bytes, **headers: str) -> int:
    place = urlsplit(server.url)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=900)
    connection.request("POST", place.path + address, body, headers)
    return connection.getresponse().status


def test_a_note_is_written_by_the_page_alone(runs: Path) -> None:
    folder = write_run(runs, with_lr(0.02), 1.22)
    page = f"api/note?run={quote(f'{folder.parent.name}/seed1')}"
    address = f"{page}&seen={note_id('')}"
    with served(runs) as server:
        own = {"Origin": f"http://127.0.0.1:{server.server_address[1]}"}
        assert post(server, address, "größer".encode(), **own) == 200
        assert (folder / "note.txt").read_text() == "größer"
        assert values(server, "api/overview")["runs"][f"{folder.parent.name}/seed1"]["note"] == "größer"
        for body, headers in (
            (b"x", {"Origin": "http://evil.example"}),
            (b"x", {"Origin": "null"}),
            (b"x" * 10_001, own),
        ):
            assert post(server, address, body, **headers) == 403
        assert post(server, address, b"x") == 403, "a browser always names its page"
        address = f"{page}&seen={note_id('größer')}"
        assert post(server, address, b"\xff", **own) == post(server, "api/note?run=../x", b"x", **own) == 400
        assert post(server, "api/overview", b"x", **own) == 403
    assert (folder / "note.txt").read_text() == "größer"


def test_a_second_window_replaces_no_note_that_it_has_not_shown(runs: Path) -> None:
    folder = write_run(runs, with_lr(0.02, note="from the command"), 1.22)
    with served(runs) as server:
        own = {"Origin": f"http://127.0.0.1:{server.server_address[1]}"}
        (run,) = values(server, "api/overview")["runs"].values()
        address = f"api/note?run={quote(f'{folder.parent.name}/seed1')}&seen="
        assert post(server, address + run["note_id"], b"first", **own) == 200
        assert post(server, address + run["note_id"], b"second", **own) == 400
        assert (folder / "note.txt").read_text() == "first"
        assert post(server, address + note_id("first"), b"second", **own) == 200
    assert (folder / "note.txt").read_text() == "second"


@pytest.mark.parametrize("options", [[], ["--no-token"]])
def test_the_command_prints_an_address_that_another_account_does_not_know(runs: Path, options: list[str]) -> None:
    write_run(runs, with_lr(0.02), 1.22)
    command = [sys.executable, "-m", "golf", "board", "--port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout
        printed = process.stdout.readline()
        try:
            (address,) = re.findall(r"http://\S+", printed)
            place = urlsplit(address)
            found = {}
            for path in (place.path, "/", "/api/overview", "/x/api/overview"):
                connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=900)
                connection.request("GET", path)
                found[path] = connection.getresponse().status
        finally:
            # Not SIGINT, which a shell without job control lets its background processes ignore.
            process.terminate()
    if options:
        assert found == {"/": 200, "/api/overview": 200, "/x/api/overview": 404}
    else:
        assert len(place.path) > 20 and found.pop(place.path) == 200 and {*found.values()} == {403}


def test_a_board_for_all_machines_has_a_token(runs: Path) -> None:
    done = golf_command("board", "--host", "0.0.0.0", "--no-token")
    assert done.returncode == 2 and "leave one of the two out" in done.stderr


def test_the_public_field_is_shown_on_its_text_alone(runs: Path) -> None:
    write_lr_sweep(runs, SCORES)
    with served(runs) as server:
        field = values(server, "api/sweep?name=lr")["field"]
    assert field["records"] == [] and "the text of the data abcd" in field["about"]
    rows = [replace(row, data=FINEWEB) for row in variant("mine", [1.21, 1.2105]).rows]
    mine = Study("mine", (Variant("mine", "mine", tuple(rows)),), None)
    figures = {key: {"value": value} for key, value in {"val_bpb": 1.1, "seed": 1}.items()}
    run = {"name": "2026-03-17_NaiveBaseline", "variant": "x", "state": "ok", "reason": "", "faults": []}
    record = {"faults": [], "runs": [{**run, "figures": figures, "texts": {"scored_text": FINEWEB}}]}
    before = public_field(judged(mine, RulesConfig()), runs)["records"]
    write_json(runs / "imported" / "x" / "import.json", record)
    after = public_field(judged(mine, RulesConfig()), runs)["records"]
    scores = [entry["bpb"] for entry in before]
    assert len(before) == len(after) == len(public_records()) and scores == sorted(scores)
    assert {"name": run["name"], "bpb": 1.2271, "source": "published"} in before, "on today's text"
    assert {"name": run["name"], "bpb": 1.1, "source": "imported"} in after


def test_a_changed_result_changes_the_answer(runs: Path) -> None:
    write_lr_sweep(runs, SCORES)
    with served(runs) as server:
        before, headers = get(server, "api/sweep?name=lr")[1:]
        assert get(server, "api/sweep?name=lr", **{"If-None-Match": headers["ETag"]})[0] == 304
        result = next(runs.glob("*/seed1/result.json"))
        result.write_text(result.read_text().replace('"ok"', '"void"'))
        assert get(server, "api/sweep?name=lr", **{"If-None-Match": headers["ETag"]})[0] == 200
        assert get(server, "api/sweep?name=lr")[1] != before


def test_each_point_of_a_growing_curve_is_sent_once(runs: Path) -> None:
    folder = write_run(runs, with_lr(0.02), None)
    id = quote(f"{folder.parent.name}/seed1")
    with served(runs) as server:
        (first,) = values(server, f"api/curves?run={id}").values()
        assert len(first["points"]["train"]) == 100
        with (folder / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(train_event(100)) + "\n" + '{"event": "tra')
        (second,) = values(server, f"api/curves?run={id}&have=0.100.0").values()
        assert [point[0] for point in second["points"]["train"]] == [10_000] and second["first"]["train"] == 100


def test_a_resumed_run_has_each_step_once(tmp_path: Path) -> None:
    lines = [train_event(i) for i in range(5)] + [{"event": "resumed", "step": 200, "train_seconds": 12.0}]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(e) + "\n" for e in [*lines, train_event(3)]))
    tail = MetricsTail(tmp_path)
    found = tail.since(0, {"train": 5})
    assert found["generation"] == 1 and [point[0] for point in found["points"]["train"]] == [0, 100, 200, 300]


def test_a_file_that_was_replaced_by_a_shorter_one_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps(train_event(i)) + "\n" for i in range(9)))
    tail = MetricsTail(tmp_path)
    tail.refresh()
    path.write_text("not json\n[1]\n" + json.dumps({**train_event(1), "train_loss": float("nan")}) + "\n")
    found = tail.since(0, {"train": 9})
    assert found["first"] == {"train": 0, "validation": 0} and found["points"]["train"] == [
        (100, 51_200, 6.0, None, 1.0, None, None)
    ]


@pytest.mark.parametrize(
    "address",
    [
        *("../../etc/passwd", "%2e%2e/sweeps", "board_server.py", "sweeps/lr/sweep.json", "api/sweep"),
        *("api/curves?run=../../etc", "api/curves?run=linked-1/seed1", "api/curves?run=x&have=a.b.c"),
        *("api/sweep?name=../lr", "api/sweep?name=/etc", "api/why?one=/etc&other=/etc"),
    ],
)
def test_nothing_but_runs_of_the_root_is_readable(address: str, runs: Path, tmp_path: Path) -> None:
    write_lr_sweep(runs, SCORES)
    outside = write_run(tmp_path / "outside", with_lr(0.02), 1.2)
    (runs / "linked-1").symlink_to(outside.parent)
    with served(runs) as server:
        status, body, _ = get(server, address)
    assert status in (400, 404) and b"root:" not in body and b"train_loss" not in body


def test_a_linked_file_of_metrics_is_not_followed(runs: Path, tmp_path: Path) -> None:
    folder = write_run(runs, with_lr(0.02), None)
    (folder / "metrics.jsonl").rename(tmp_path / "elsewhere.jsonl")
    (folder / "metrics.jsonl").symlink_to(tmp_path / "elsewhere.jsonl")
    assert MetricsTail(folder).since(0, {})["points"]["train"] == []


def test_names_of_other_hosts_are_refused(runs: Path) -> None:
    with served(runs) as server:
        assert get(server, "api/overview", Host="rebound.example")[0] == 403
        assert get(server, "api/overview", Host="localhost:9000")[0] == 200


def test_a_token_is_required_where_there_is_one(runs: Path) -> None:
    with served(runs, token="secret") as server:
        assert urlsplit(server.url).path == "/secret/"
        assert get(server, "api/overview", Host="gpu-node:8008")[0] == 200
        server.token = "another"
        place = urlsplit(server.url)
        for path in ("/", "/api/overview", "/secret/api/overview", "/anothe/", "/%C3%A9/"):
            connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=900)
            connection.request("GET", path)
            assert connection.getresponse().status == 403


def test_only_loopback_addresses_need_no_token() -> None:
    assert all(map(is_this_machine, ("127.0.0.1", "localhost", "::1", "127.3.2.1")))
    assert not any(map(is_this_machine, ("0.0.0.0", "::", "", "10.0.0.1", "localhost.example", "127.0.0.1.example")))


def test_what_two_runs_differ_in_is_said(runs: Path) -> None:
    one, other = (write_run(runs, with_lr(lr), 1.2) for lr in (0.02, 0.04))
    with served(runs) as server:
        ids = [quote(f"{folder.parent.name}/seed1") for folder in (one, other)]
        lines = values(server, f"api/why?one={ids[0]}&other={ids[1]}")["lines"]
    (difference,) = differences(with_lr(0.02), with_lr(0.04))[0]
    assert f"  {difference.key}: 0.02 → 0.04" in lines


def test_damaged_files_are_rows_and_sentences(runs: Path) -> None:
    write_lr_sweep(runs, SCORES)
    next(runs.glob("*/seed1/result.json")).write_text("{")
    (runs / "sweeps" / "lr" / "sweep.json").write_text("[]")
    found = RunsRoot(runs).overview()
    assert sorted({run["state"] for run in found["runs"].values()}) == ["ok", "unreadable"]
    assert "not the record of a sweep" in found["sweeps"][0]["error"]
    with served(runs) as server:
        assert "not the record of a sweep" in values(server, "api/sweep?name=lr")["error"]


def test_an_empty_root_and_a_missing_package(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert RunsRoot(runs).overview() == {"root": "runs", "runs": {}, "settings": {}, "budgets": {}, "sweeps": []}
    monkeypatch.setattr("golf.lab.report.board_server.find_spec", lambda name: None)
    with pytest.raises(GolfError, match="pip install"):
        plotly_file()


def test_a_port_in_use_is_one_sentence(runs: Path) -> None:
    with served(runs) as server:
        done = golf_command("board", "--port", str(server.server_address[1]))
    assert done.returncode == 2 and "try another --host or --port" in done.stderr


def test_one_file_holds_the_sweep_and_fetches_nothing(runs: Path) -> None:
    write_lr_sweep(runs, SCORES)
    other = write_run(runs, with_lr(0.07), 1.3)
    text = single_file(judged(read_study(["l"]), RulesConfig()))
    assert not re.findall(r"<(?:script|link)[^>]+(?:src|href)=\"(?!data:)", text)
    (data,) = re.findall(r'<script id="saved" type="application/json">(.*?)</script>', text)
    found = json.loads(data)
    assert found["api/sweep"]["title"] == "lr: 3 variants, 6 runs" and len(found["api/curves"]) == 6
    assert other.parent.name not in text and str(runs) not in text


def test_a_long_curve_is_thinned_in_a_file_and_ends_where_it_ended(runs: Path) -> None:
    write_lr_sweep(runs, SCORES)
    lines = "".join(json.dumps(train_event(i)) + "\n" for i in range(2501))
    for path in runs.glob("*/seed*/metrics.jsonl"):
        path.write_text(lines)
    for curve in board_answers(judged(read_study(["lr"]), RulesConfig()))["api/curves"].values():
        steps = [point[0] for point in curve["points"]["train"]]
        assert steps == list(range(100, 250_001, 300)) and steps[-1] == 250_000


def test_a_file_to_send_names_no_machine_and_no_folder(runs: Path) -> None:
    write_lr_sweep(runs, SCORES)
    cfg = with_lr(0.03, note="see /home/alice/notes/first.txt, or ~/notes/second.txt")
    cfg.data.path = "/scratch/alice/data"
    warnings = ["node17.cluster was slow", "/scratch/alice/data/x.bin has changed"]
    for seed, host in ((1, "node17.cluster"), (2, "node18")):
        folder = write_run(runs, cfg, 1.23, seed, host=host, warnings=warnings, reason=f"on {host}")
        environment = json.loads((folder / "environment.json").read_text())
        environment |= {"command": ["python", "/home/alice/golf/golf/train.py", "ideas=/home/alice/ideas"]}
        write_json(folder / "environment.json", environment)
    write_sweep(runs, "mine", [(["optim.matrix_lr=0.03", f"seed={s}"], cfg, s) for s in (1, 2)])
    text = single_file(judged(read_study(["mine"]), RulesConfig()))
    (data,) = re.findall(r'<script id="saved" type="application/json">(.*?)</script>', text)
    assert not [word for word in ("node17", "node18", "alice", "/home", "/scratch", str(runs)) if word in data]
    assert "…/first.txt" in data and "machine 1 was slow" in data and "…/x.bin has changed" in data
