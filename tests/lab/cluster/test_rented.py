"""Files through a pipe are whole or not there, and what was heard of a machine says how its runs stand."""

from __future__ import annotations

import dataclasses
import io
import itertools
import json
import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from golf.errors import GolfError
from golf.files import read_json, write_atomic, write_json
from golf.lab.cluster.batch import Batch, Heard, owners, rented_states, write_heard
from golf.lab.cluster.bring import _run_done
from golf.lab.cluster.ending import ending
from golf.lab.cluster.line import _failure, read_answer
from golf.lab.cluster.parcel import pack, stamps, unpack
from golf.lab.cluster.pod import _states, send
from golf.lab.cluster.rented import _data_to_send, _so_far
from golf.run.folder import RunFolder, runs_root
from golf.run.locks import lock_file
from golf.run.sweeps import sweep_folder
from golf.settings.jobs_config import ClusterConfig
from tests.support import ROOT


def parcel(folder: Path) -> bytes:
    folder.mkdir()
    (folder / "log").write_bytes(b"a line\n" * 2000)
    (folder / "empty").touch()
    (folder / "weights").write_bytes(os.urandom(30_000))
    os.utime(folder / "log", ns=(1, 1_700_000_000_123_456_789))
    out = io.BytesIO()
    pack(out, [(path.name, path) for path in [*sorted(folder.iterdir()), folder / "gone meanwhile"]])
    return out.getvalue()


def test_files_arrive_with_their_bytes_and_times(tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    content = parcel(there)
    assert unpack(io.BytesIO(content), lambda name: here / name) == ["empty", "log", "weights"]
    assert stamps(here.iterdir(), here) == stamps(there.iterdir(), there)
    assert unpack(io.BytesIO(content), lambda _: None) == [] and len(list(here.iterdir())) == 3


def test_a_parcel_that_is_cut_anywhere_leaves_whole_files_only(tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    content = parcel(there)
    ends = content.rindex(b"end of the parcel")
    # Tar pads its end, so what is cut there was complete.
    for length in (0, 1, *range(100, ends, 512), *range(100, ends, 3700)):
        with pytest.raises(tarfile.TarError):
            unpack(io.BytesIO(content[:length]), lambda name: here / name)
        for path in here.glob("*"):
            assert path.read_bytes() == (there / path.name).read_bytes()
            path.unlink()
        assert not list(here.glob(".*")), "a part of a file was left"


def write_checkpoints(folder: Path, ranks: int, stop: threading.Event) -> None:
    """Replace a checkpoint as fast as the disk allows, as golf/training/loop/checkpoint.py does."""
    for step in itertools.count(1):
        for rank in range(ranks):
            write_atomic(folder / f"step{step}/rank{rank}.safetensors", f"{step}".encode() * 5000)
        write_json(folder / "latest.json", {"step": step, "ranks": ranks})
        shutil.rmtree(folder / f"step{step - 1}", ignore_errors=True)
        time.sleep(0.001)
        if stop.is_set():
            return


def brought_home(here: Path, patch: pytest.MonkeyPatch) -> None:
    """Unpack the answer of a machine."""
    out = io.TextIOWrapper(io.BytesIO())
    patch.setattr(sys, "stdout", out)
    send({"sweep": "s", "batch": "b", "keys": [("abc", 1)], "all_keys": [], "known": {}})
    out.buffer.seek(0)
    listed = read_answer(iter(out.buffer.readline, b""))["files"]
    assert sorted(unpack(out.buffer, lambda name: here / name)) == sorted(listed)


def sent_on(here: Path, patch: pytest.MonkeyPatch) -> None:
    """Unpack what a machine gets of earlier attempts."""
    out = io.BytesIO()
    pack(out, [(str(path.relative_to(runs_root())), file) for path, file in _so_far([("abc", 1)])])
    out.seek(0)
    unpack(out, lambda name: here / name)


@pytest.mark.parametrize("way", [brought_home, sent_on])
def test_a_checkpoint_is_one_state_on_either_way_while_it_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: Callable[[Path, pytest.MonkeyPatch], None]
) -> None:
    there, here, stop = tmp_path / "there", tmp_path / "here", threading.Event()
    monkeypatch.setenv("GOLF_RUNS", str(there))
    checkpoint = Path("4l-abc/seed1/checkpoint")
    write_json(there / checkpoint.parent / "config.json", {})
    writer = threading.Thread(target=write_checkpoints, args=(there / checkpoint, 3, stop))
    writer.start()
    step = 0
    try:
        for _ in range(40):
            with monkeypatch.context() as patch:
                way(here, patch)
            if (here / checkpoint).exists():
                step = read_json(here / checkpoint / "latest.json")["step"]
                assert {path.parent.name for path in (here / checkpoint).rglob("rank*")} == {f"step{step}"}
                for rank in range(3):
                    content = (here / checkpoint / f"step{step}/rank{rank}.safetensors").read_text()
                    assert content == str(step) * 5000
            assert (here / checkpoint.parent / "config.json").exists()
            shutil.rmtree(here)
    finally:
        stop.set()
        writer.join()
    assert step > 20, "the checkpoint was not replaced often enough to show anything"


def batch(runs: Path, number: int, sweep: str = "s") -> Batch:
    made = Batch(
        f"b{number}", sweep, float(number), f"pod{number}", "ssh", "0123", "", [("abc", 1), ("abc", 2)], "", 10.0
    )
    made.write()
    return made


def test_a_silent_machine_is_unreachable_and_then_lost(runs: Path) -> None:
    sent, now = batch(runs, 1), time.time()
    first, second = sent.jobs()
    assert {s.name for s in rented_states([first, second, "12_3"]).values()} == {"PENDING"}, "nothing was heard yet"
    jobs = {"0": ["RUNNING", ""]}
    write_heard(sent, Heard(heard_at=now, tried_at=now, jobs=jobs))
    assert {job: s.name for job, s in rented_states([first, second]).items()} == {first: "RUNNING", second: "ENDED"}
    silent = Heard(now - 400, now - 300, now, 10.0, "pod1 does not answer", jobs)
    write_heard(sent, silent)
    state = rented_states([first])[first]
    assert state.is_open and state.name == "UNREACHABLE" and "no answer for 5 min: pod1 does not" in state.reason
    silent.lost_minutes = 5
    write_heard(sent, silent)
    state = rented_states([first])[first]
    assert not state.is_open
    kind, sentence = ending(first, state, runs)
    assert kind == "lost" and sentence.endswith("the same command with another cluster.host goes on from what is here")
    assert ending(second, rented_states([second])[second], runs) == ("lost", "it ended without a result: submit again")


def test_a_run_belongs_to_the_machine_that_got_it_last(runs: Path) -> None:
    batch(runs, 2, "another sweep"), batch(runs, 1)
    assert {owner.host for owner in owners().values()} == {"pod2"}


def test_the_last_sweep_of_a_machine_stops_it_once(runs: Path, tmp_path: Path) -> None:
    stopped = tmp_path / "stopped"
    done = f"echo $GOLF_HOST >> {stopped}"
    ended, other = (dataclasses.replace(batch(runs, 1, sweep), id=sweep, done=done) for sweep in ("s", "t"))
    (runs / "sweeps/s/ssh/b1.batch.json").unlink()
    (runs / "sweeps/t/ssh/b1.batch.json").unlink()
    for sent in (ended, other):
        sent.write()
    write_heard(ended, Heard(heard_at=1.0, is_home=True))
    assert _run_done("s") == [] and not stopped.exists(), "the other sweep is at work on the machine"
    write_heard(other, Heard(heard_at=1.0, is_home=True))
    assert _run_done("t") == [] == _run_done("s") and stopped.read_text() == "pod1\n"
    failing = dataclasses.replace(other, id="u", done="exit 3")
    failing.write()
    write_heard(failing, Heard(heard_at=1.0, is_home=True))
    assert _run_done("t") == ["cluster.done failed with status 3, and golf follow t tries again: exit 3"]


FOLLOW = """
import sys, time
from golf.lab.cluster import bring
# The last rounds are decided at the same moment, and a busy machine takes its time to end the processes.
bring._sends_a_round = lambda name: time.sleep(float(sys.argv[2]) - time.time())
run_done = bring._run_done
bring._run_done = lambda name: (run_done(name), time.sleep(1))[0]
sys.exit(bring.follow(sys.argv[1]))
"""


def test_two_sweeps_in_rounds_that_end_at_once_stop_their_machine_once(runs: Path, tmp_path: Path) -> None:
    stopped = tmp_path / "stopped"
    for sweep in ("s", "t"):
        sent = dataclasses.replace(batch(runs, 1, sweep), done=f"echo $GOLF_HOST >> {stopped}")
        sent.write()
        write_heard(sent, Heard(heard_at=1.0, is_home=True))
        (runs / f"sweeps/{sweep}/waves.jsonl").touch()
    command = [sys.executable, "-c", FOLLOW]
    at = str(time.time() + 3)
    followers = [subprocess.Popen([*command, sweep, at], cwd=ROOT) for sweep in ("s", "t")]
    assert [follower.wait(60) for follower in followers] == [0, 0]
    assert stopped.read_text() == "pod1\n"


def test_a_crash_is_seen_on_a_machine_whose_clock_is_behind(runs: Path) -> None:
    asked, folder = sweep_folder("s") / "ssh/b.jobs.json", RunFolder(runs / "4l-abc/seed1")
    write_json(asked, {})
    # The batch has the time of the machine that sent it.
    os.utime(asked, (time.time() + 3600,) * 2)
    before = RunFolder(runs / "4l-abc/seed2")
    for one in (folder, before):
        write_json(one.config, {})
    write_json(before.result, {"state": "crashed", "variant_id": "abc", "seed": 2})
    os.utime(before.result, (time.time() - 60,) * 2)
    lock = lock_file(asked.with_suffix(".lock"))
    assert lock
    with lock:
        write_json(folder.result, {"state": "crashed", "variant_id": "abc", "seed": 1})
        states = _states(asked, [("abc", 1), ("abc", 2)], is_alive=True)
    assert states["0"][0] == "ENDED" and states["1"][0] == "PENDING", "an earlier crash is tried again"


def test_hundreds_of_checkpoints_come_home(runs: Path, tmp_path: Path) -> None:
    keys = [(f"{number:08x}", 1) for number in range(80)]
    for variant, seed in keys:
        folder = runs / f"4l-{variant}/seed{seed}"
        (folder / "checkpoint/step1").mkdir(parents=True)
        (folder / "config.json").write_text("{}")
        (folder / "checkpoint/latest.json").write_text('{"step": 1, "ranks": 1}')
        (folder / "checkpoint/step1/rank0.safetensors").write_text(variant)
    asked = {"sweep": "s", "batch": "b", "keys": keys, "all_keys": keys, "known": {}}
    few = "ulimit -S -n 100 && exec " + shlex.join([sys.executable, "-m", "golf.lab.cluster.pod", "send"])
    done = subprocess.run(["sh", "-c", few], input=json.dumps(asked).encode() + b"\n", capture_output=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    out = io.BytesIO(done.stdout)
    read_answer(iter(out.readline, b""))
    assert len(unpack(out, lambda name: tmp_path / "home" / name)) == 240


@pytest.mark.parametrize(
    ("status", "said", "words"),
    [
        (
            255,
            "ssh: connect to host 1.2.3.4 port 22: Connection timed out\r\n",
            "does not answer (ssh: connect to host",
        ),
        (255, "root@1.2.3.4: Permission denied (publickey,password).\r\n", "golf asks for no password"),
        (255, "REMOTE HOST IDENTIFICATION HAS CHANGED!\nblah", "ssh-keygen -R '[1.2.3.4]:22022' forgets"),
        (0, "", "does not answer (the stream ended)"),
        (
            1,
            "Traceback\nModuleNotFoundError: No module named 'yaml'\n",
            "refused (ModuleNotFoundError: No module named",
        ),
        (97, "", "has nothing of golf any more"),
    ],
)
def test_a_line_that_fails_says_what_to_do(status: int, said: str, words: str) -> None:
    error = _failure("root@1.2.3.4:22022", status, said, "the stream ended")
    assert words in str(error)


def test_a_greeting_is_no_answer() -> None:
    assert read_answer([b"Welcome!\n", b'golf-answer {"a": 1}\n', b"more"]) == {"a": 1}
    with pytest.raises(EOFError, match="it said “Your SSH client doesn't support PTY” and ended"):
        read_answer([b"Your SSH client doesn't support PTY\n"])


def test_data_are_sent_if_they_are_small_and_else_by_a_command(tmp_path: Path) -> None:
    (tmp_path / "val.bin").write_bytes(b"1" * 3_000_000)
    (tmp_path / "train.bin").write_bytes(b"2" * 1_000_000)
    name, get = f"at:{tmp_path}", "golf data get"
    nothing: dict[str, dict[str, int]] = {name: {}}
    there = {name: {"val.bin": 3_000_000, "train.bin": 999}}

    def sent(there: dict[str, dict[str, int]], **settings: object) -> tuple[list[str], str]:
        files, command = _data_to_send({name: False}, there, ClusterConfig(host="h", **settings))  # type: ignore[arg-type]
        return [place.rpartition("/")[2] for place, _ in files], command

    assert sent(nothing) == (["train.bin", "val.bin"], "") and sent(there) == (["train.bin"], "")
    assert sent(there, data=get, data_mb=2) == (["train.bin"], "") and sent(nothing, data=get, data_mb=2) == ([], get)
    with pytest.raises(
        GolfError, match=r"4\.00 MB of data are more than cluster\.data_mb=2: give the command that gets them to h"
    ):
        sent(nothing, data_mb=2)
    missing = {"at:/no/data": False}
    with pytest.raises(GolfError, match="/no/data is neither here nor there: give the command"):
        _data_to_send(missing, {"at:/no/data": {}}, ClusterConfig(host="h"))
    assert _data_to_send(missing, {"at:/no/data": {}}, ClusterConfig(data=get)) == ([], get)
    assert _data_to_send({"at:/no/data": True}, {"at:/no/data": {}}, ClusterConfig(data=get)) == ([], "")
    assert _data_to_send(missing, {"at:/no/data": {"a": 1}}, ClusterConfig()) == ([], "")
