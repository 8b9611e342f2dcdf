"""Sweeps on rented machines: all runs come home once, with the bits of runs here, whatever breaks on the way."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from golf.lab.cluster.follow import states
from golf.lab.corpora.own_text import OwnDataset
from golf.run.environment import package_version
from golf.run.locks import is_held
from golf.run.result import OK, Result, read_result
from tests.lab.cluster.pods import Pod, free_port
from tests.launch.test_processes import processes_of
from tests.support import ROOT, Done, golf_command, metrics, tiny_overrides

pytestmark = pytest.mark.slow
WAIT_SECONDS = 900
LONG = ["schedule.iterations=400", "launch.train_log_every=1", "launch.checkpoint_seconds=0.2"]


def rented(pod: Pod, tiny: OwnDataset, *overrides: str) -> list[str]:
    """Return the command that submits to a machine; the one overrides after the other win."""
    machine = [f"cluster.host={pod.host}", f"cluster.ssh='{pod.ssh}'", f"cluster.python={sys.executable}"]
    return [sys.executable, "-m", "golf", "submit", "cluster=ssh", *machine, *tiny_overrides(tiny), *overrides]


def submit(pod: Pod, tiny: OwnDataset, *overrides: str) -> Done:
    done = subprocess.run(rented(pod, tiny, *overrides), capture_output=True, text=True, timeout=900, cwd=ROOT)
    return Done(done.returncode, done.stdout, done.stderr)


def wait_for(what: str, condition: Callable[[], object], runs: Path) -> None:
    until = time.monotonic() + WAIT_SECONDS
    while not condition():
        logs = "\n".join(path.read_text() for path in runs.glob("sweeps/*/follow.log"))
        assert time.monotonic() < until, f"no {what} within {WAIT_SECONDS} s: {logs}"
        time.sleep(0.3)


def sweep(runs: Path) -> str:
    (path,) = runs.glob("sweeps/*/sweep.json")
    return path.parent.name


def follower(runs: Path) -> int | None:
    """Return the process that brings runs home, None if there is none."""
    for path in runs.glob("locks/follower-*"):
        with contextlib.suppress(OSError, ValueError, LookupError):
            if is_held(path):
                return int(json.loads(path.read_text())["process"])
    return None


def wait_until_home(runs: Path) -> None:
    wait_for("end of the follower", lambda: follower(runs) is None, runs)


def results(runs: Path) -> dict[tuple[str, int], Result]:
    return {(r.variant_id, r.seed): r for r in map(read_result, runs.glob("*/seed*/result.json"))}


def table(runs: Path) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "250")
        return golf_command("status", sweep(runs)).stdout


def assert_bits_of_runs_here(runs: Path, tiny: OwnDataset, tmp_path: Path, *overrides: str) -> None:
    """Run the same here and compare weights, artifacts and scores of all runs."""
    here = tmp_path / "here"
    command = [sys.executable, "golf/train.py", "-m", *tiny_overrides(tiny), *overrides]
    environment = {**os.environ, "GOLF_RUNS": str(here)}
    subprocess.run(command, env=environment, cwd=ROOT, check=True, capture_output=True, timeout=900)
    expected, found = results(here), results(runs)
    assert found.keys() == expected.keys()
    for key, result in found.items():
        scores = [r.final_score.val_loss if r.final_score else None for r in (result, expected[key])]
        assert scores[0] == scores[1] and result.state == OK
    folders = {
        (p.parent.parent.name, p.parent.name.partition(".")[0]): p.parent for p in runs.glob("*/seed*/result.json")
    }
    assert len(folders) == len(found), "a run was counted twice"
    for name, folder in folders.items():
        for file in ("final_model.safetensors", "artifact.golf"):
            assert (folder / file).read_bytes() == (here / name[0] / name[1] / file).read_bytes(), file


def assert_all_is_here(runs: Path, pod: Pod) -> None:
    """Compare every file of the runs with the machine's."""
    for path in pod.runs.glob("*/seed*/*"):
        if path.is_file() and path.name != "lock":
            assert (runs / path.relative_to(pod.runs)).read_bytes() == path.read_bytes(), path


def nothing_half_written(runs: Path) -> bool:
    return not list(runs.rglob("*/seed*/.*"))


def test_a_sweep_comes_home_with_the_bits_of_runs_here(
    pods: list[Pod], tiny: OwnDataset, runs: Path, tmp_path: Path
) -> None:
    stopped = tmp_path / "stopped"
    done = submit(pods[0], tiny, "seed=1,2", f"cluster.done='echo $GOLF_HOST >> {stopped}'")
    assert done.returncode == 0, done.stderr
    assert (
        "2 to submit" in done.stdout and "sending 3 files of data" in done.stdout and "submitted 2 jobs" in done.stdout
    )
    wait_until_home(runs)
    assert {r.host for r in results(runs).values()} == {"pod-a"}, "verdicts tell machines by their names"
    assert "2 ok" in table(runs) and golf_command("report", sweep(runs)).returncode == 0
    assert stopped.read_text() == f"{pods[0].host}\n"
    assert_bits_of_runs_here(runs, tiny, tmp_path, "seed=1,2")
    assert {"curves.png", "train.log", "output.log", "environment.json"} <= {p.name for p in runs.glob("*/seed1/*")}
    said = [path.read_text() for path in (*runs.glob("*/seed1/*.json"), *pods[0].runs.rglob("*.json"))]
    assert not any("127.0.0.1" in text for text in said), "an address of a machine is no part of a run"

    again = submit(pods[1], tiny, "seed=1,2")
    assert "0 to submit, 2 finished" in again.stdout and follower(runs) is None
    assert golf_command("follow", sweep(runs)).returncode == 0 and stopped.read_text().count("\n") == 1


def test_a_run_goes_on_elsewhere_when_its_machine_vanishes(
    pods: list[Pod], tiny: OwnDataset, runs: Path, tmp_path: Path
) -> None:
    first, second = pods
    assert submit(first, tiny, "seed=1,2", "cluster.lost_minutes=0", *LONG).returncode == 0
    wait_for("checkpoint", lambda: len(list(runs.glob("*/seed*/checkpoint/latest.json"))) == 2, runs)
    assert nothing_half_written(runs)
    # Both at work: another machine takes only what is missing.
    assert "1 to submit, 2 running or queued" in submit(second, tiny, "seed=1,2,3", *LONG, "--dry-run").stdout
    first.down()
    wait_until_home(runs)
    assert "2 lost" in table(runs) and "does not answer" in table(runs)
    assert {run["state"] for run in states(sweep(runs))["runs"]} == {"lost"}, "as the board has them"
    done = submit(second, tiny, "seed=1,2", "cluster.lost_minutes=0", *LONG)
    assert "2 to submit" in done.stdout, done.stderr
    # It comes back and finds its runs elsewhere.
    first.up()
    wait_until_home(runs)
    assert {r.host for r in results(runs).values()} == {"pod-b"}
    resumed = [metrics(folder, "resumed")[0]["step"] for folder in runs.glob("*/seed*")]
    assert len(resumed) == 2 and min(resumed) > 0
    assert_bits_of_runs_here(runs, tiny, tmp_path, "seed=1,2", *LONG)


def python_of(pod: Pod, hours: int, torch: str) -> str:
    """Return the setting under which the Python of a machine has a clock that is off, and names another torch."""
    place = pod.folder / "python"
    (place / f"torch-{torch}.dist-info").mkdir(parents=True)
    (place / f"torch-{torch}.dist-info/METADATA").write_text(f"Name: torch\nVersion: {torch}\n")
    clock = f"import time\nkernel = time.time\ntime.time = lambda: kernel() + 3600 * {hours}\n"
    (place / "sitecustomize.py").write_text(clock)
    return f"cluster.setup=['export PYTHONPATH={place}:$PYTHONPATH']"


def test_machines_with_slow_lines_other_clocks_homes_and_versions(
    pods: list[Pod], tiny: OwnDataset, runs: Path, tmp_path: Path
) -> None:
    """Each machine is in a network of its own, whose line takes a megabit a second."""
    hours = (-72, 5)
    for number, pod in enumerate(pods):
        pod.down()
        pod.address, pod.rate = f"10.77.{number}.2", "1mbit"
        pod.up()
    (first, second), setups = pods, [python_of(pod, h, "2.11.0") for pod, h in zip(pods, hours, strict=True)]
    try:
        begun = time.monotonic()
        done = submit(first, tiny, "seed=1,2", "cluster.lost_minutes=0", setups[0], *LONG)
        print(f"sent in {time.monotonic() - begun:.0f} s")
        assert f"note: torch is 2.11.0 on {first.host} and {package_version('torch')} here" in done.stdout, done.stderr
        wait_for("checkpoint", lambda: len(list(runs.glob("*/seed*/checkpoint/latest.json"))) == 2, runs)
        assert nothing_half_written(runs)
        starts = [json.loads(p.read_text())["started_at"] for p in runs.glob("*/seed*/environment.json")]
        assert all(start < time.time() - 71 * 3600 for start in starts)
        first.down()
        wait_until_home(runs)
        assert "2 lost" in table(runs)
        done = submit(second, tiny, "seed=1,2", "cluster.lost_minutes=0", setups[1], *LONG)
        assert "2 to submit" in done.stdout and "torch is 2.11.0" in done.stdout, done.stderr
        wait_until_home(runs)
        assert "2 ok" in table(runs) and {r.host for r in results(runs).values()} == {"pod-b"}
        assert all(metrics(folder, "resumed")[0]["step"] > 0 for folder in runs.glob("*/seed*"))
        assert_bits_of_runs_here(runs, tiny, tmp_path, "seed=1,2", *LONG)
    finally:
        for pod in pods:
            subprocess.run(["ip", "netns", "del", pod.name], check=True)


def test_a_sweep_is_cancelled_and_goes_on_where_it_was(pods: list[Pod], tiny: OwnDataset, runs: Path) -> None:
    assert submit(pods[0], tiny, "seed=1,2,3", *LONG).returncode == 0
    wait_for("checkpoint", lambda: list(runs.glob("*/seed*/checkpoint/latest.json")), runs)
    assert "3 running or queued" in submit(pods[0], tiny, "seed=1,2,3", *LONG).stdout
    done = golf_command("cancel", sweep(runs))
    assert "cancelled: 3 of 3 jobs" in done.stdout, done.stderr
    wait_until_home(runs)
    assert "2 interrupted, 1 lost" in table(runs)
    assert "3 to submit" in submit(pods[0], tiny, "seed=1,2,3", *LONG).stdout
    wait_until_home(runs)
    assert "3 ok" in table(runs)
    assert all(metrics(next(runs.glob(f"*/seed{seed}")), "resumed") for seed in (1, 2))


def test_rounds_are_decided_here(pods: list[Pod], tiny: OwnDataset, runs: Path) -> None:
    settings = ["optim.matrix_lr=0.02,0.0", "sweep.until=decided", "sweep.max_seeds=3", "seed=1"]
    done = submit(pods[0], tiny, *settings)
    assert done.returncode == 0 and "the follower on this machine decides" in done.stdout, done.stderr
    wait_until_home(runs)
    log = next(runs.glob("sweeps/*/follow.log")).read_text()
    assert "; the sweep has ended" in log, log
    assert len(list(runs.glob("sweeps/*/ssh/*.batch.json"))) == len(list(runs.glob("*/seed*"))) / 2 > 1
    assert "round" in table(runs)
    assert "0 to submit" in submit(pods[0], tiny, *settings).stdout or follower(runs) is None


def test_what_keeps_golf_from_a_machine_is_a_sentence(pods: list[Pod], tiny: OwnDataset, runs: Path) -> None:
    pod = pods[0]

    def refused(*overrides: str) -> str:
        done = submit(pod, tiny, *overrides)
        assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
        assert not list(runs.glob("sweeps/*/sweep.json"))
        return done.stderr

    assert "golf asks for no password" in refused(f"cluster.ssh='{pod.ssh.replace('/key', '/no_key')}'")
    assert "cluster.host=USER@ADDRESS:PORT" in refused("cluster.host=''")
    nobody = refused(f"cluster.host=root@127.0.0.1:{free_port()}")
    assert "does not answer" in nobody and "Connection refused" in nobody
    assert "no_python: not found" in refused("cluster.python=no_python")
    assert "0.02 MB of data are more than cluster.data_mb=0" in refused("cluster.data_mb=0")
    assert "is neither here nor there" in refused("data=fineweb_sp1024", "data.path=data/none", "data.vocab_size=1024")
    assert "mine: not found" in refused("cluster.setup=['mine']")
    pod.down()
    (pod.folder / "host_key").unlink()
    (pod.folder / "host_key.pub").unlink()
    pod.up()
    said = refused()
    assert "another host key" in said
    forget = shlex.split(said.partition("address, ")[2].partition(" forgets")[0])
    subprocess.run([*forget, "-f", str(pod.folder.parent / "known_hosts")], check=True, capture_output=True)
    assert submit(pod, tiny, "seed=1").returncode == 0


def test_a_run_that_cannot_start_there_says_why(pods: list[Pod], tiny: OwnDataset, runs: Path) -> None:
    data = ["cluster.data_mb=0", "cluster.data='echo no room on this volume; exit 3'"]
    assert submit(pods[0], tiny, *data).returncode == 0
    wait_until_home(runs)
    assert "1 failed" in table(runs) and "cluster.data failed with status 3" in table(runs)
    assert "no room on this volume" in next(runs.glob("sweeps/*/ssh/*.log")).read_text()
    shutil.rmtree(runs / "sweeps")
    # No data of that fingerprint are anywhere, which only a machine with the data finds.
    assert "1 to submit" in submit(pods[0], tiny, "data.fingerprint=0123456789abcdef").stdout
    wait_until_home(runs)
    assert "1 failed" in table(runs) and "0123456789abcdef" in table(runs)


def test_the_second_run_of_a_recipe_does_not_compile(pods: list[Pod], tiny: OwnDataset, runs: Path) -> None:
    """Kernels of Inductor stand beside code and runs, where they outlive a stop of the machine and the code."""
    made: list[set[Path]] = []
    for seed in (1, 2):
        done = submit(pods[0], tiny, "launch.compile=blocks", "schedule.warmup_steps=1", f"seed={seed}")
        assert done.returncode == 0, done.stderr
        wait_for("result", lambda: len(results(runs)) > len(made), runs)
        made.append({*(pods[0].home / "golf" / "compiled").rglob("*.so")})
        pods[0].down()
        pods[0].up()
        shutil.rmtree(pods[0].home / "golf" / "code")
    seconds = [r.warmup_seconds for _, r in sorted(results(runs).items(), key=lambda found: found[0][1])]
    print(f"{len(made[0])} kernels, {seconds} s of warm-up")
    assert made[0] and made[1] == made[0]


def test_a_full_disk_here_is_said_and_waits_for_room(pods: list[Pod], tiny: OwnDataset, runs: Path) -> None:
    done = submit(pods[0], tiny, "seed=1", *LONG)
    assert done.returncode == 0, done.stderr
    wait_for("folder", lambda: list(runs.glob("*/seed1/config.json")), runs)
    small = next(runs.glob("*/seed1")).parent
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "none", str(small)], check=True)
    try:
        log = next(runs.glob("sweeps/*/follow.log"))
        wait_for("sentence", lambda: "No space left to write" in log.read_text(), runs)
        assert nothing_half_written(runs) and not list(runs.glob("*/seed*/result.json"))
        subprocess.run(["mount", "-o", "remount,size=50m", str(small)], check=True)
        wait_until_home(runs)
        assert len(results(runs)) == 1
        assert_all_is_here(runs, pods[0])
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


def test_every_run_counts_once_however_often_lines_drop_and_processes_die(
    pods: list[Pod], tiny: OwnDataset, runs: Path, tmp_path: Path
) -> None:
    """Lines end in the middle of a file; launcher, follower and the machine's process are killed at random moments."""
    generator = random.Random(int(os.environ.get("GOLF_TEST_SEED", "1")))
    pod, settings = pods[0], ["seed=1,2,3", *LONG]
    proxy, limit = tmp_path / "proxy.py", tmp_path / "limit"
    proxy.write_text(PROXY)
    through = f"cluster.ssh='{pod.ssh} -o ProxyCommand=\"{sys.executable} {proxy} {pod.port} {limit}\"'"
    cut = dropped = stopped = 0
    for turn in range(8):
        limit.write_text(str(generator.choice([0, int(10 ** generator.uniform(4.3, 6.3))])))
        command = subprocess.Popen(
            rented(pod, tiny, *settings, through),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            text=True,
        )
        try:
            dropped += "does not answer" in command.communicate(timeout=generator.uniform(3, 40))[1]
        except subprocess.TimeoutExpired:
            cut += 1
        command.kill()
        command.wait()
        time.sleep(generator.uniform(0, 8))
        if (process := follower(runs)) and generator.random() < 0.7:
            os.kill(process, signal.SIGKILL)
            wait_until_home(runs)
            stopped += 1
            scored = [path.parent for path in runs.glob("*/seed*/result.json") if read_result(path).state == OK]
            assert all((folder / "final_model.safetensors").exists() for folder in scored), "a result came too early"
        if turn % 3 == 2:
            for process in processes_of(pod.runs):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
    limit.write_text("0")
    for _ in range(5):
        done = submit(pod, tiny, *settings, through)
        assert done.returncode == 0, done.stderr
        wait_until_home(runs)
        if "3 ok" in table(runs):
            break
    assert "3 ok" in table(runs)
    print(f"{cut} launchers killed, {dropped} lines dropped in them, {stopped} followers killed")
    assert_bits_of_runs_here(runs, tiny, tmp_path, *settings)


def test_one_run_is_stopped_on_its_machine(pods: list[Pod], tiny: OwnDataset, runs: Path) -> None:
    assert submit(pods[0], tiny, "seed=1,2,3", *LONG).returncode == 0
    wait_for("checkpoint", lambda: list(runs.glob("*/seed1/checkpoint/latest.json")), runs)
    folder = next(runs.glob("*/seed1"))
    done = golf_command("stop", str(folder))
    assert done.returncode == 0 and f"{folder}: stopped" in done.stdout, done.stderr
    # The batch goes on there, so the state is taken back there, too.
    assert golf_command("stop", "--undo", str(folder)).returncode == 0
    assert golf_command("follow", sweep(runs)).returncode == 2, "the follower is at work"
    assert golf_command("stop", str(folder)).returncode == 0
    wait_until_home(runs)
    assert "2 ok, 1 stopped" in table(runs) and "by golf stop" in table(runs)
    shown = submit(pods[1], tiny, "seed=1,2,3", *LONG)
    assert "0 to submit, 3 finished" in shown.stdout and f"golf stop --undo {folder} lets them" in shown.stdout
    assert golf_command("stop", "--undo", str(folder)).returncode == 0
    # Where it was stopped, its files still say so.
    assert "1 to submit" in submit(pods[0], tiny, "seed=1,2,3", *LONG).stdout
    wait_until_home(runs)
    assert "3 ok" in table(runs) and metrics(folder, "resumed")[0]["step"] > 0


def test_two_followers_do_not_disturb_each_other(pods: list[Pod], tiny: OwnDataset, runs: Path) -> None:
    assert submit(pods[0], tiny, "seed=1,2", *LONG).returncode == 0
    done = golf_command("follow", sweep(runs))
    assert done.returncode == 2 and "Another follower brings" in done.stderr
    # Rounds of other processes, as each submit has one, beside those of the follower.
    code = f"from golf.lab.cluster.bring import bring\nfor _ in range(9): bring({sweep(runs)!r})"
    others = [subprocess.Popen([sys.executable, "-c", code], cwd=ROOT) for _ in range(2)]
    assert [other.wait(WAIT_SECONDS) for other in others] == [0, 0]
    wait_until_home(runs)
    assert len(results(runs)) == 2
    assert_all_is_here(runs, pods[0])


# A line that ends after so many bytes as the file of its last argument says, 0 for never.
PROXY = """
import os, select, socket, sys
port, lines = int(sys.argv[1]), sys.argv[2]
left = int(open(lines).read()) or 1 << 60
line = socket.create_connection(("127.0.0.1", port))
while left > 0:
    ready, _, _ = select.select([0, line], [], [])
    for end in ready:
        data = os.read(0, 65536) if end == 0 else line.recv(65536)
        if not data:
            sys.exit()
        left -= len(data)
        line.sendall(data) if end == 0 else os.write(1, data)
"""
