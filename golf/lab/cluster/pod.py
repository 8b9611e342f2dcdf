"""Answer requests on a rented machine: `python -m golf.lab.cluster.pod ACTION`; the first input line is a request.

`check` says what is here, `receive` takes files, `start` begins a batch in a process that outlives the line, `send`
gives what the other end lacks, `cancel` stops a batch, `stop` single runs, and `let_go_on` takes that back. Every
action may be repeated. `run` is that process.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, BinaryIO

from golf.files import open_plain, read_json, read_object, write_json
from golf.lab.cluster.batch import ENDED
from golf.lab.cluster.ending import FAILED, last_line
from golf.lab.cluster.line import ANSWER
from golf.lab.cluster.parcel import pack, stamp, stamps, unpack
from golf.lab.cluster.state import PENDING, RUNNING
from golf.launch.process import Interrupted
from golf.launch.stop import let_go_on, stop_here
from golf.paths import ROOT
from golf.run.attempts import at_work
from golf.run.environment import package_versions
from golf.run.folder import RunFolder, attempts, find_run, finished_run, runs_root, state_of
from golf.run.locks import is_held, lock_file
from golf.run.result import FINAL
from golf.run.sweeps import sweep_folder

STOP_SECONDS, POLL_SECONDS = 90.0, 0.2  # time that a batch gets to stop
STAYS = re.compile(r"\..*|lock")  # temporary files and locks
# Files that make a state of a run come after all that the state promises.
LATE = ("config.json", "trained.json", "final_model.safetensors", "result.json")


def main() -> int:
    """Do what the command line and the request say, and print the answer."""
    action = sys.argv[1]
    if action == "run":
        return run(Path(sys.argv[2]))
    request = json.loads(sys.stdin.buffer.readline())
    if action == "send":
        # All checkpoints are open while they are sent, two files for a run of one rank. Many shells admit 1,024.
        resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
        send(request)
    else:
        actions: dict[str, Callable[[Any], Any]] = {
            "check": check,
            "receive": lambda _: unpack(sys.stdin.buffer, place),
            "start": start,
            "cancel": cancel,
            "stop": stop,
            "let_go_on": lambda request: sum(let_go_on(attempts(*key)) for key in request["keys"]),
        }
        print(f"\n{ANSWER}{json.dumps(actions[action](request))}", flush=True)
    return 0


def check(request: dict[str, Any]) -> dict[str, Any]:
    """Return Python, versions, and bytes of the files below each of `request["places"]`, by their names there."""
    places = {name: place(name) for name in request["places"]}
    files = {n: {str(f.relative_to(p)): f.stat().st_size for f in files_of(p)} for n, p in places.items()}
    return {"executable": sys.executable, "packages": package_versions(), "files": files}


def place(name: str) -> Path:
    """Return where a file goes here: what belongs to a run to the runs, any other where a run looks for it."""
    kind, _, rest = name.partition(":")
    return runs_root() / rest if kind == "runs" else ROOT / Path(rest).expanduser()


def files_of(place: Path) -> list[Path]:
    """Return the plain files at or below a path. A folder that vanishes meanwhile, as old checkpoints do, has none."""
    inside = (Path(folder) / name for folder, _, names in os.walk(place) for name in names)
    return [path for path in ([place] if place.is_file() else sorted(inside)) if path.is_file()]


def start(request: dict[str, Any]) -> str:
    """Start the process of a batch unless it lives or has ended."""
    batch = _batch_path(request)
    if not is_held(_lock(batch)) and not _log(batch).exists():
        with _log(batch).open("ab") as log:
            command = [sys.executable, "-m", "golf.lab.cluster.pod", "run", str(batch)]
            # In a session of its own, so that the end of the line does not reach it.
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        while process.poll() is None and not is_held(_lock(batch)):
            time.sleep(POLL_SECONDS)
    return "started"


def run(batch: Path) -> int:
    """Get the data if there is a command for it, and run the batch. Return 0 if every run has a result."""
    if (lock := lock_file(_lock(batch))) is None:
        return 0
    with lock:
        from golf.lab.sweep.batch import run_batch
        from golf.lab.sweep.jobs import Job
        from golf.run.sweeps import Row
        from golf.settings.config import Config, from_dict

        asked = read_json(batch)
        if asked["data"]:
            print(f"+ {asked['data']}", flush=True)
            script = f'golf() {{ "{sys.executable}" -m golf "$@"; }}; {asked["data"]}'
            if status := subprocess.run(["sh", "-c", script], cwd=ROOT, stdin=subprocess.DEVNULL).returncode:
                why = f"cluster.data failed with status {status}, see {_log(batch).name}: mend it and submit again"
                write_json(_errors(batch), {str(index): why for index in range(len(asked["jobs"]))})
                return 1
        jobs = [Job.of(job["overrides"], from_dict(Config, job["config"])) for job in asked["jobs"]]
        for job in jobs:
            # Whoever sent it here has asked for it.
            let_go_on(attempts(*job.key))
        rows: list[Row] = []
        try:
            run_batch(jobs, name=asked["sweep"], rows=rows, first_batch=False)
        except Interrupted as error:
            print(error, flush=True)
            return 1
        # In the order of the jobs, for those that could not be started.
        said = {tuple(row.overrides): row.error for row in rows if row.error}
        write_json(_errors(batch), {str(i): said[job.overrides] for i, job in enumerate(jobs) if job.overrides in said})
    return int(bool(said))


def send(request: dict[str, Any]) -> None:
    """Write a line with the batch's states, the files and a parcel of those that differ from `request["known"]`."""
    batch, root, keys = _batch_path(request), runs_root(), request["keys"]
    # First of all: what is said to have ended has all its files, which are listed afterwards.
    is_alive = is_held(_lock(batch))
    states = _states(batch, request["all_keys"], is_alive)
    folders = [folder for key in keys for folder in attempts(*key)]
    # Before the logs are read, so that no log is older than the checkpoint beside it.
    held = {str(path.relative_to(root)): file for folder in folders for path, file in open_checkpoint(folder).items()}
    files = stamps([p for f in folders for p in _of_run(f)] + [*root.glob("code/*.json"), _log(batch)], root)
    files |= {name: stamp(os.fstat(file.fileno())) for name, file in held.items()}
    new = sorted((name for name in files if files[name] != request["known"].get(name)), key=_turn)
    out = sys.stdout.buffer
    out.write(f"\n{ANSWER}{json.dumps({'jobs': states, 'is_alive': is_alive, 'files': files})}\n".encode())
    pack(out, ((name, held.get(name, root / name)) for name in new))
    out.flush()


def cancel(request: dict[str, Any]) -> bool:
    """Stop the process of a batch, which lets its runs write what they have. Return whether there was one."""
    lock = _lock(_batch_path(request))
    if not is_held(lock):
        return False
    os.killpg(int(read_object(lock)["process"]), signal.SIGTERM)
    until = time.monotonic() + STOP_SECONDS
    while is_held(lock) and time.monotonic() < until:
        time.sleep(POLL_SECONDS)
    return True


def stop(request: dict[str, Any]) -> list[str]:
    """Stop single runs, and return the state of each; a run without a folder has none."""
    folders = [at_work(*key) or find_run(*key) for key in request["keys"]]
    return [stop_here(folder) if folder else "" for folder in folders]


def _states(batch: Path, keys: Iterable[tuple[str, int]], is_alive: bool) -> dict[str, list[str]]:
    """Return state and reason of each run of a batch that has no final result, by its index."""
    errors = read_object(_errors(batch))
    states: dict[str, list[str]] = {}
    for index, (variant, seed) in enumerate(keys):
        if finished_run(variant, seed):
            continue
        if is_alive and at_work(variant, seed):
            states[str(index)] = [RUNNING, ""]
        elif is_alive and not _has_failed(batch, find_run(variant, seed)):
            states[str(index)] = [PENDING, "for its turn"]
        elif said := errors.get(str(index)):
            states[str(index)] = [FAILED, said]
        else:
            why = last_line(_log(batch)) if _log(batch).exists() else "it was never started"
            states[str(index)] = [ENDED, why]
    return states


def _has_failed(batch: Path, folder: RunFolder | None) -> bool:
    """Tell whether the batch has made a result that asks for another attempt."""
    if folder is None or not (state := state_of(folder)) or state in FINAL:
        return False
    # The lock is as old as the batch's process by the clock of this machine; the batch has the time of another.
    with contextlib.suppress(FileNotFoundError):
        return folder.result.stat().st_mtime >= _lock(batch).stat().st_mtime
    return False


def _of_run(folder: RunFolder) -> list[Path]:
    """Return the files of a run beside its checkpoint."""
    inside = [path for path in files_of(folder.path) if not STAYS.fullmatch(path.name)]
    return [path for path in inside if folder.checkpoint not in path.parents]


def open_checkpoint(folder: RunFolder) -> dict[Path, BinaryIO]:
    """Open the files of the valid checkpoint of a run, by their paths; none of a run that is trained.

    The run goes on and replaces its checkpoint while files are sent. What is open stays, and is one state.
    """
    latest = folder.checkpoint / "latest.json"
    while not folder.is_trained and (step := read_object(latest).get("step")) is not None:
        files: dict[Path, BinaryIO] = {}
        with contextlib.suppress(FileNotFoundError):
            for path in (latest, *files_of(folder.checkpoint / f"step{step}")):
                files[path] = open_plain(path)
            # The files of a step go only after latest.json names another.
            if read_object(latest).get("step") == step:
                return files
        for file in files.values():
            file.close()
    return {}


def _turn(name: str) -> tuple[bool, bool, int, str]:
    """Return a key that sorts files: checkpoints after all others, and what makes a state after what it promises."""
    last = name.rpartition("/")[2]
    return "/checkpoint/" in name, last == "latest.json", LATE.index(last) + 1 if last in LATE else 0, name


def _batch_path(request: dict[str, Any]) -> Path:
    return sweep_folder(request["sweep"]) / "ssh" / f"{request['batch']}.jobs.json"


def _lock(batch: Path) -> Path:
    return batch.with_suffix(".lock")


def _log(batch: Path) -> Path:
    return batch.with_suffix(".log")


def _errors(batch: Path) -> Path:
    return batch.with_suffix(".errors")


if __name__ == "__main__":
    sys.exit(main())
