"""Send runs to a rented machine: code, data and what the runs have so far go there, and they start without us."""

from __future__ import annotations

import dataclasses
import io
import itertools
import json
import os
import shlex
import subprocess
import sys
import tarfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, BinaryIO

from golf.errors import GolfError
from golf.files import append_lines, write_json
from golf.lab.cluster.batch import Batch, about_follower, bring_lock
from golf.lab.cluster.line import ANSWER, GONE, Line
from golf.lab.cluster.parcel import pack
from golf.lab.cluster.pod import files_of, open_checkpoint
from golf.lab.cluster.snapshot import take_snapshot
from golf.lab.sweep.jobs import Job, Key
from golf.paths import import_variables, resolve
from golf.run.environment import package_versions
from golf.run.folder import attempts, runs_root, state_of
from golf.run.result import FINAL
from golf.run.sweeps import sweep_folder
from golf.settings.config import to_dict
from golf.settings.hardware import Hardware, node_with
from golf.settings.jobs_config import ClusterConfig
from golf.words import counted

GPUS = "nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null || true"
OF_HERE = ("cluster=", "cluster.")  # overrides that no run has to know: addresses and keys among them


def machine_of(host: str, ssh: str) -> Hardware:
    """Return the GPUs of a machine, for which `auto` settings are chosen. Raises `GolfError` if it does not answer."""
    names = Line(host, ssh).ask(f"""printf '\\n{ANSWER}"'; {{ {GPUS}; }} | tr '\\n' ';'; echo '"'""").split(";")[:-1]
    return node_with(len(names), names[0] if names else "")


def send_runs(jobs: Sequence[Job], name: str) -> list[str]:
    """Send `jobs` to the machine of their cluster, start them there, and return their ids.

    What is missing or differs there is said before the start. Raises `GolfError` if the machine refuses anything; what
    was sent stays there, and nothing is sent twice.
    """
    cluster = jobs[0].cfg.cluster
    line, snapshot = Line(cluster.host, cluster.ssh), take_snapshot(sweep_folder(name) / "snapshots")
    folder = _make_folder(line, cluster.folder, snapshot)
    prepared = _script(folder, snapshot.name, cluster.python, cluster.setup)
    places = _places(jobs)
    there = line.ask(f"{prepared} check", request({"places": list(places)}))
    # The lines of setup may take a while, and a follower asks every few seconds.
    script = _script(folder, snapshot.name, shlex.quote(there["executable"]), [])
    for package, version in package_versions().items():
        if there["packages"].get(package) != version:
            found = there["packages"].get(package) or "missing"
            print(f"note: {package} is {found} on {cluster.host} and {version or 'missing'} here")
    files, command = _data_to_send(places, there["files"], cluster)
    if files:
        print(f"sending {counted(len(files), 'file')} of data, {sum(p.stat().st_size for _, p in files) / 1e6:,.1f} MB")
        line.ask(f"{script} receive", request({}, files))
    keys = [job.key for job in jobs]
    batch = Batch(
        *(uuid.uuid4().hex[:8], name, time.time(), cluster.host, cluster.ssh, snapshot.name, script, keys),
        *(cluster.done, cluster.lost_minutes),
    )
    # From here on the runs belong to this machine. If their start fails, it says itself that they never started. A
    # follower that asked before that would take them for ended.
    with bring_lock(name):
        _start(batch, jobs, command, prepared)
    return batch.jobs()


def _start(batch: Batch, jobs: Sequence[Job], command: str, prepared: str) -> None:
    """Write a batch down, send what its runs have so far, and start it after the lines of setup in `prepared`."""
    name, script = batch.sweep, batch.script
    batch.write()
    told = zip(batch.keys, batch.jobs(), strict=True)
    append_lines(
        sweep_folder(name) / "submitted.jsonl", [{"variant_id": v, "seed": s, "job": id} for (v, s), id in told]
    )
    asked = sweep_folder(name) / "ssh" / f"{batch.id}.jobs.json"
    content = {"sweep": name, "data": command, "jobs": [_told(job) for job in jobs]}
    write_json(asked, content)
    sent = itertools.chain(_so_far(batch.keys), [(asked, asked)])
    # One after the other: hundreds of checkpoints are more files than a process may have open.
    parcel = ((f"runs:{path.relative_to(runs_root())}", file) for path, file in sent)
    batch.line.ask(f"{script} receive", request({}, parcel))
    batch.line.ask(f"{prepared} start", request({"sweep": name, "batch": batch.id}))


def start_follower(name: str) -> None:
    """Start the process that brings a sweep's results home, if there are any and none lives. It outlives this one."""
    if not about_follower(name):
        return
    command = [sys.executable, "-m", "golf", "follow", name]
    environment = {**os.environ, **import_variables(take_snapshot(sweep_folder(name) / "snapshots"))}
    environment["GOLF_RUNS"] = str(runs_root())
    with (sweep_folder(name) / "follow.log").open("ab") as log:
        subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )


def _make_folder(line: Line, wanted: str, snapshot: Path) -> str:
    """Make golf's folder on the machine, put the snapshot of the code there, and return the folder's absolute path."""
    code = f"code/{snapshot.name}"
    made = f"mkdir -p {shlex.quote(wanted)} && cd {shlex.quote(wanted)} && mkdir -p code data runs"
    has = f'[ -d {code} ] && has=true || has=false; printf \'\\n{ANSWER}["%s", %s]\\n\' "$PWD" $has'
    folder, has_code = line.ask(f"{made} && {{ {has}; }}")
    if not has_code:
        # The compressed stream has a checksum at its end, so half a snapshot is never taken for a whole one.
        new = f'new=code/.{snapshot.name}.$$; mkdir $new && tar -xzf - -C $new && ln -s "$PWD/data" $new/data'
        moved = f"mv $new {code} && printf '\\n{ANSWER}true\\n' || {{ rm -rf $new; exit 1; }}"
        line.ask(f"cd {shlex.quote(folder)} && {{ {new} && {moved}; }}", _packed(snapshot))
    return str(folder)


def _packed(snapshot: Path) -> Callable[[IO[bytes]], object]:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as tar:
        for path in sorted(snapshot.iterdir()):
            # The machine has its own data.
            if path.name != "data":
                tar.add(path, path.name)
    return lambda out: out.write(content.getvalue())


def _script(folder: str, code: str, python: str, setup: Sequence[str]) -> str:
    """Return shell lines that lead into the code on the machine and call what golf does there; an action follows."""
    root = f"{folder}/code/{code}"
    variables = {"GOLF_RUNS": f"{folder}/runs", "PYTHONPATH": root, "PYTHONSAFEPATH": "1"}
    # On the volume, so that a recipe is compiled once, and not again after the machine was stopped.
    variables["TORCHINDUCTOR_CACHE_DIR"] = f"{folder}/compiled"
    exports = [f"export {key}={shlex.quote(value)}" for key, value in variables.items()]
    # They may print, and must not eat what is sent.
    lines = ["{", *setup, "} </dev/null >&2 || exit 1"] if setup else []
    return "\n".join(
        [f"cd {shlex.quote(root)} || exit {GONE}", *exports, *lines, f"exec {python} -m golf.lab.cluster.pod"]
    )


def request(values: dict[str, Any], files: Iterable[tuple[str, Path | BinaryIO]] = ()) -> Callable[[IO[bytes]], object]:
    """Return what writes a request, the first line of what golf on the machine reads, and a parcel if it has files."""

    def feed(out: IO[bytes]) -> None:
        out.write(f"{json.dumps(values)}\n".encode())
        if files:
            pack(out, files)

    return feed


def _told(job: Job) -> dict[str, Any]:
    """Return a job for the machine: without the address, keys and commands of its cluster."""
    plain = dataclasses.replace(job.cfg, cluster=ClusterConfig(name=job.cfg.cluster.name))
    return {"overrides": [o for o in job.overrides if not o.startswith(OF_HERE)], "config": to_dict(plain)}


def _places(jobs: Sequence[Job]) -> dict[str, bool]:
    """Return the files and folders that the runs read, by their names on the machine, and whether it can build them."""
    configs = [job.cfg for job in jobs]
    data = {path: bool(c.data.built_from) for c in configs for path in (c.data.path, c.data.tokenizer_path)}
    return {
        f"at:{path}": built for path, built in [*data.items(), *((c.model.init_from, False) for c in configs)] if path
    }


def _data_to_send(
    places: dict[str, bool], there: dict[str, dict[str, int]], cluster: ClusterConfig
) -> tuple[list[tuple[str, Path]], str]:
    """Return the files that go to the machine, by their names there, or else the command that gets them.

    Raises `GolfError` if there is no way to get them there.
    """
    files: list[tuple[str, Path]] = []
    where = f"give the command that gets them to {cluster.host}, such as cluster.data='golf data get --variant sp1024'"
    needs_command = False
    for name, is_built in places.items():
        given = name.partition(":")[2]
        own = {str(path.relative_to(resolve(given))): path for path in files_of(resolve(given))}
        missing = {file: path for file, path in own.items() if there[name].get(file) != path.stat().st_size}
        files += [(name if file == "." else f"{name}/{file}", path.resolve()) for file, path in missing.items()]
        needs_command |= not own and not is_built
        if not own and not is_built and not there[name] and not cluster.data:
            raise GolfError(f"{given} is neither here nor there: {where}.")
    megabytes = sum(path.stat().st_size for _, path in files) / 1e6
    if megabytes > cluster.data_mb and not cluster.data:
        raise GolfError(f"{megabytes:,.2f} MB of data are more than cluster.data_mb={cluster.data_mb}: {where}.")
    if megabytes > cluster.data_mb or (needs_command and cluster.data):
        return [], cluster.data
    return files, ""


def _so_far(keys: Sequence[Key]) -> Iterator[tuple[Path, Path | BinaryIO]]:
    """Yield the files of earlier attempts: what the next one resumes from, of finished ones what tells them.

    Those of a checkpoint are open: another sweep with the same run may bring home a newer one meanwhile.
    """
    for folder in (folder for key in keys for folder in attempts(*key)):
        is_final = state_of(folder) in FINAL
        yield from {} if is_final else reversed(open_checkpoint(folder).items())
        for path in files_of(folder.path):
            if path.name == "lock" or path.name.startswith(".") or folder.checkpoint in path.parents:
                continue
            if (not is_final and path != folder.result) or (is_final and path.suffix == ".json"):
                yield path, path
