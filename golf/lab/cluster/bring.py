"""Bring results, logs, weights and checkpoints home from rented machines, while their runs go on.

A follower asks every few seconds for what it lacks. It keeps no list: the files that are here say what is known, by
their bytes and times. So it may be killed at any moment and started again anywhere where the runs are.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import IO, Any

from golf.errors import GolfError
from golf.files import write_json
from golf.lab.cluster.batch import (
    Batch,
    Heard,
    bring_lock,
    done_lock,
    follower_lock,
    owners,
    read_batches,
    read_heard,
    waves_file,
    write_heard,
)
from golf.lab.cluster.line import LineError, read_answer
from golf.lab.cluster.parcel import stamps, unpack
from golf.lab.cluster.pod import files_of
from golf.lab.cluster.rented import request
from golf.lab.cluster.state import OPEN
from golf.lab.sweep.jobs import Job, Key, Refused
from golf.run.folder import RunFolder, attempts, finished_run, runs_root, state_of
from golf.run.locks import is_locked, try_lock
from golf.run.result import FINAL
from golf.run.sweeps import sweep_folder

SECONDS_BETWEEN = 10.0


def follow(name: str) -> int:
    """Bring the results of sweep `name` home until all are here, then run what was asked for. Return 0 if all is home.

    Raises `GolfError` if another follower is at work, or if a round of a sweep in rounds is not complete.
    """
    if (lock := try_lock(follower_lock(name))) is None:
        raise GolfError(f"Another follower brings the runs of {name} home: golf status {name} shows them.")
    with lock:
        if lost := _all_home(name):
            print(
                f"{lost} does not answer, so its runs are lost, with what came home: the same golf submit command "
                f"with another cluster.host goes on from there; golf follow {name} asks once more"
            )
            return 1
    # Without its lock: of two sweeps in rounds that end at once, each would leave the command to the other's follower.
    failed = _run_done(name)
    print(failed[0] if failed else f"all runs of {name} that ended are home: golf report {name}", flush=True)
    return int(bool(failed))


def _all_home(name: str) -> str:
    """Bring everything home, round after round, and return nothing; or the machines that are lost, if none is left."""
    before: list[str] = []
    while True:
        if (said := bring(name)) and said != before:
            print("\n".join(said), flush=True)
        before = said
        left = [(batch, heard) for batch in read_batches(name) if not (heard := read_heard(batch)).is_home]
        if not left and not _sends_a_round(name):
            return ""
        if left and not waves_file(name).exists():
            _run_done(name)
        if left and all(heard.is_lost for _, heard in left):
            return ", ".join(dict.fromkeys(batch.host for batch, _ in left))
        time.sleep(SECONDS_BETWEEN)


def bring(name: str, lost_minutes: float | None = None) -> list[str]:
    """Bring home what is new of the batches of sweep `name`. Return a sentence for each of them that failed.

    `lost_minutes` replaces what the batches were sent with.
    """
    said = []
    with bring_lock(name):
        for batch in read_batches(name):
            if (heard := read_heard(batch)).is_home:
                continue
            heard.lost_minutes = batch.lost_minutes if lost_minutes is None else lost_minutes
            heard.tried_at = time.time()
            try:
                _bring(batch, heard)
            except GolfError as error:
                said.append(str(error))
                if isinstance(error, LineError):
                    heard.failing_since, heard.said = heard.failing_since or heard.tried_at, str(error)
                # All its runs have ended or belong to other machines.
                heard.is_home = heard.is_lost and not _expected(batch)
            write_heard(batch, heard)
    return said


def bring_before(jobs: Sequence[Job | Refused]) -> None:
    """Bring home what rented machines have of the variants of `jobs`, so that none is sent that is at work there."""
    wanted = [job for job in jobs if isinstance(job, Job)]
    variants = {job.key[0] for job in wanted}
    limits = [job.cfg.cluster.lost_minutes for job in wanted if job.cfg.cluster.executor == "ssh"]
    open_batches = [batch for batch in read_batches() if not read_heard(batch).is_home]
    for name in sorted({b.sweep for b in open_batches if variants & {variant for variant, _ in b.keys}}):
        for sentence in bring(name, limits[0] if limits else None):
            print(f"note: {sentence}")
        for batch in read_batches(name):
            if (heard := read_heard(batch)).failing_since and not heard.is_lost:
                print(
                    f"note: its runs are lost after {heard.lost_minutes:g} min; cluster.lost_minutes=0 sends them now"
                )


def cancel_batches(name: str) -> int:
    """Stop the batches of sweep `name` that are at work, bring home what they have, and return how many there were."""
    left = [batch for batch in read_batches(name) if not read_heard(batch).is_home]
    stopped, failed = 0, []
    # A machine that does not answer keeps no other at work.
    for batch in left:
        try:
            stopped += _cancel(batch)
        except GolfError as error:
            failed.append(error)
    bring(name)
    if failed:
        raise failed[0]
    return stopped


def _bring(batch: Batch, heard: Heard) -> None:
    """Bring home what is new of one batch, and note in `heard` how its runs stand. Raises `GolfError` if it cannot."""
    belongs, root = owners(), runs_root()
    keys = [key for key in batch.keys if belongs[key] == batch]
    folders = [folder for key in keys for folder in attempts(*key)]
    log = f"sweeps/{batch.sweep}/ssh/{batch.id}.jobs.log"
    files = [*(path for folder in folders for path in files_of(folder.path)), *root.glob("code/*.json"), root / log]
    asked = {"sweep": batch.sweep, "batch": batch.id, "keys": keys, "all_keys": batch.keys}
    of_runs = [rf"[^/]+-{variant}/seed{seed}(\.\d+)?/.+" for variant, seed in keys]
    # A machine writes what it was asked for and nothing else.
    wanted = re.compile("|".join([*of_runs, r"code/[0-9a-f]+\.json", re.escape(log)]))

    def read(output: IO[bytes]) -> dict[str, Any]:
        answer = read_answer(iter(output.readline, b""))
        unpack(output, lambda name: root / name if wanted.fullmatch(name) and "/../" not in name else None)
        return dict(answer)

    answer = batch.line.talk(f"{batch.script} send", request({**asked, "known": stamps(files, root)}), read)
    for folder in folders:
        _drop_what_was_replaced(folder, answer["files"])
    heard.heard_at, heard.failing_since, heard.said, heard.jobs = heard.tried_at, 0.0, "", answer["jobs"]
    heard.is_home = not answer["is_alive"]
    at_work = {batch.keys[int(index)] for index, (name, _) in heard.jobs.items() if name in OPEN}
    if at_work and not at_work & set(keys):
        # It came back after its runs were sent elsewhere.
        _cancel(batch)


def _expected(batch: Batch) -> list[Key]:
    """Return the runs that this machine has to finish: those that belong to it and have no result here."""
    belongs = owners()
    return [key for key in batch.keys if belongs[key] == batch and not finished_run(*key)]


def _drop_what_was_replaced(folder: RunFolder, there: Mapping[str, Any]) -> None:
    """Take away results and checkpoints of a run that goes on in its folder on the machine and has none there."""
    name = str(folder.path.relative_to(runs_root()))
    if f"{name}/{folder.config.name}" not in there or state_of(folder) in FINAL:
        return
    for path in (folder.result, folder.error):
        if f"{name}/{path.name}" not in there:
            path.unlink(missing_ok=True)
    kept = {file.rpartition("/")[0] for file in there}
    for step in folder.checkpoint.glob("step*"):
        if f"{name}/checkpoint" in kept and f"{name}/checkpoint/{step.name}" not in kept:
            shutil.rmtree(step, ignore_errors=True)


def _cancel(batch: Batch) -> bool:
    return bool(batch.line.ask(f"{batch.script} cancel", request({"sweep": batch.sweep, "batch": batch.id})))


def _sends_a_round(name: str) -> bool:
    """Send the next round of a sweep in rounds, whose last one is home. Return False if there is none."""
    if not waves_file(name).exists():
        return False
    # It imports torch, which few sweeps need here.
    from golf.lab.cluster.waves import run_controller, waves_sent

    before = len(read_batches(name))
    run_controller(name, waves_sent(name)[-1].look)
    return len(read_batches(name)) > before


def _run_done(name: str) -> list[str]:
    """Run the command of each machine that no sweep needs any more, once. Return a sentence for each that failed.

    A sweep that ends while another works on the same machine leaves the command to the other's follower.
    """
    with done_lock():
        return _run_what_is_done(name)


def _run_what_is_done(name: str) -> list[str]:
    sent = [(batch, read_heard(batch)) for batch in read_batches()]
    needed = {batch.host for batch, heard in sent if not (heard.is_home or heard.is_lost)}
    rounds = {b.sweep for b, _ in sent if b.sweep != name and waves_file(b.sweep).exists()}
    between = {sweep for sweep in rounds if is_locked(follower_lock(sweep))}
    idle = [b for b, _ in sent if b.done and b.host not in needed | {b.host for b, _ in sent if b.sweep in between}]
    left = [batch for batch in idle if not (sweep_folder(batch.sweep) / "ssh" / f"{batch.id}.done.json").exists()]
    said = []
    for host, done in dict.fromkeys((batch.host, batch.done) for batch in left):
        print(f"+ {done}", flush=True)
        variables = {**os.environ, "GOLF_HOST": host, "GOLF_SWEEP": name}
        if status := subprocess.run(done, shell=True, env=variables, stdin=subprocess.DEVNULL).returncode:
            said.append(f"cluster.done failed with status {status}, and golf follow {name} tries again: {done}")
            continue
        for batch in left:
            if (batch.host, batch.done) == (host, done):
                write_json(sweep_folder(batch.sweep) / "ssh" / f"{batch.id}.done.json", {"at": time.time()})
    return said
