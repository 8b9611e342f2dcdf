"""Folder of one run, `multirun/<name>-<variant id>/seed<k>/`: every reader takes what it knows of the run from here."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from golf.errors import GolfError
from golf.files import DAMAGED, disk_errors, read_json, read_lines, read_plain, write_atomic, write_json, write_new
from golf.idea_folders import outside_folders
from golf.paths import ROOT
from golf.run.code import code_of_run, code_record, standing
from golf.run.core_time import starved
from golf.run.environment import environment_record, host_name
from golf.run.identity import variant_id
from golf.run.result import ENDED, FINAL, Result, read_result, to_json
from golf.settings.config import Config, from_dict, to_dict

NOT_SCORED = "trained, not scored"  # a run whose training has ended, in reports


class _Place:
    """The path of a file or folder in a run folder."""

    def __init__(self, name: str):
        self.name = name

    def __get__(self, folder: RunFolder, _: type | None = None) -> Path:
        return folder.path / self.name


@dataclass(frozen=True)
class RunFolder:
    """Files of one run by their purpose."""

    path: Path

    config = _Place("config.json")  # resolved configuration, which the ranks read
    # Written once when the run has ended. A run without it was killed or is still going.
    result = _Place("result.json")
    train_log = _Place("train.log")  # log in the public scripts' line formats
    metrics = _Place("metrics.jsonl")  # one JSON object a line, for programs
    weights = _Place("final_model.safetensors")  # weights before quantization
    trained = _Place("trained.json")  # outcome of a training whose run has not ended, see golf/run/trained.py
    artifact = _Place("artifact.golf")  # its bytes and score count
    curves = _Place("curves.png")
    error = _Place("error.txt")  # traceback of a crash
    checkpoint = _Place("checkpoint")  # checkpoints of a long run, see golf/training/loop/checkpoint.py
    track_log = _Place("track.log")  # messages of the W&B mirror and its client
    rank_logs = _Place("ranks")
    output = _Place("output.log")  # terminal output of a run in a sweep
    note = _Place("note.txt")  # note that was written on the board; before that, the setting `note` is the run's
    lock = _Place("lock")  # lock of the process that writes this folder
    start = _Place("start")  # id of the newest start of the ranks, with host and process of their launcher
    stop = _Place("stop")  # is there once `golf stop` has asked the run to end

    @property
    def has_checkpoint(self) -> bool:
        """Tell whether a run that was stopped can resume from this folder."""
        return (self.checkpoint / "latest.json").exists()

    @property
    def is_trained(self) -> bool:
        """Tell whether the training has ended, so that the run has only to be packed and scored."""
        # The record comes first, and then the weights.
        return self.trained.exists() and self.weights.exists()

    def write_machine_warnings(self, source: str, sentences: list[str]) -> None:
        """Write the warnings of `source`, such as node0, from before its ranks started; none if there are none."""
        if sentences:
            write_json(self.path / f"machine.{source}.json", sentences)

    def read_machine_warnings(self) -> list[str]:
        """Return the warnings from before the ranks of all nodes started."""
        return [s for path in sorted(self.path.glob("machine.*.json")) for s in read_json(path)]

    def read_config(self) -> Config:
        """Return the resolved configuration. Raises `GolfError` for a file that is damaged or of another version."""
        try:
            return from_dict(Config, read_json(self.config))
        except DAMAGED as error:
            raise GolfError(f"{self.config} cannot be read ({error}): copy it again, or repeat the run.") from error

    def events(self) -> Iterator[dict[str, Any]]:
        """Return the complete lines of metrics.jsonl; the last one may have been cut off."""
        return (event for event in read_lines(self.metrics) if "event" in event)

    def begin(self) -> None:
        """Note a new start of the ranks of this folder: those of an earlier start may write nothing any more."""
        write_json(self.start, {"id": uuid.uuid4().hex, "host": host_name(), "process": os.getpid()})

    def start_id(self) -> str:
        """Return the id of the newest start; empty before the first."""
        with contextlib.suppress(OSError):
            return self.start.read_text(encoding="utf-8")
        return ""

    def write_result(self, result: Result, start_id: str = "") -> bool:
        """Write the result of rank 0 unless it comes too late. Return False if it does.

        A rank that has survived torchrun is too late: its launcher has written a result already, by
        `write_failure`, or a job that resumes in this folder has removed that result and begun another start.
        """
        if start_id != self.start_id():
            return False
        return write_new(self.result, json.dumps(to_json(result), indent=2) + "\n")

    def write_failure(self, result: Result) -> None:
        """Write the launcher's `crashed` or `interrupted` result in place of any that a rank has written.

        The launcher has the last word, because it knows how all ranks ended.
        """
        write_json(self.result, to_json(result))


def runs_root() -> Path:
    """Return the folder of all runs: `GOLF_RUNS` or multirun/ in the repository."""
    # An empty variable is one that somebody's shell did not set.
    return Path(os.environ.get("GOLF_RUNS") or ROOT / "multirun").absolute()


def create_run_folder(cfg: Config, command: list[str]) -> RunFolder:
    """Make a new folder and write the resolved configuration and the environment record into it.

    Earlier attempts keep their folders: the next one of the same variant and seed gets `seed<k>.2`, ….
    """
    folder = RunFolder(_new_path(runs_root() / f"{cfg.name}-{variant_id(cfg)}", f"seed{cfg.seed}"))
    describe(folder, cfg, command)
    return folder


def describe(folder: RunFolder, cfg: Config, command: list[str]) -> None:
    """Write the resolved configuration and the environment record into `folder`."""
    # YAML for people. config.json, which ranks and reports read, comes last: with it the folder counts as a run.
    write_atomic(folder.path / "config.yaml", yaml.safe_dump(to_dict(cfg), sort_keys=False))
    # The command of a job of a sweep names no folders of ideas, without which it means nothing elsewhere.
    named = [f"ideas={place}" for place in outside_folders(cfg.tech) if not any("ideas=" in part for part in command)]
    # A run that is resumed by other code is of both.
    code = code_record(folder.path.parents[1], code_of_run(folder.path))
    write_json(folder.path / "environment.json", environment_record([*command, *named]) | {"code": code})
    write_json(folder.config, to_dict(cfg))


def why_open(folder: RunFolder) -> str:
    """Return what is known of a run without a result, for reports."""
    if folder.is_trained:
        return f"{NOT_SCORED}: it is packing and scoring, or was killed, and then the same command goes on"
    return "no result.json: it is running or was killed"


def attempts(variant_id: str, seed: int) -> list[RunFolder]:
    """Return the folders of all attempts at a run, the oldest first, under any name of its variant."""
    pattern = re.compile(rf"seed{seed}(?:\.\d+)?")
    paths = [path for path in runs_root().glob(f"*-{variant_id}/seed*") if pattern.fullmatch(path.name)]
    return [RunFolder(path) for path in by_age(paths)]


def find_run(variant_id: str, seed: int) -> RunFolder | None:
    """Return the finished attempt that stands for a run, else the newest attempt; None without any."""
    tries = attempts(variant_id, seed)
    # A later attempt that was cut short takes nothing back from a finished one.
    if finished := [folder for folder in tries if state_of(folder) in FINAL]:
        # A result that this version cannot read, or of a busy machine, gives way to that of another attempt.
        readable = [folder for folder in finished if len(finished) == 1 or _counts(folder)]
        return standing(readable or finished, lambda folder: code_of_run(folder.path))
    return tries[-1] if tries else None


def _counts(folder: RunFolder) -> bool:
    with contextlib.suppress(GolfError):
        result = read_result(folder.result)
        return not starved(result.core_share, result.train_seconds, result.budget_train_seconds)
    return False


def finished_run(variant_id: str, seed: int) -> tuple[Result, RunFolder] | None:
    """Return result and folder of a run that has finished or was stopped, None if it needs another attempt.

    A result that this version cannot read needs one.
    """
    if (folder := find_run(variant_id, seed)) and state_of(folder) in ENDED:
        with contextlib.suppress(GolfError):
            return read_result(folder.result), folder
    return None


def state_of(folder: RunFolder) -> str:
    """Return the state of the run's result; empty without one."""
    try:
        # Not by `read_result`: a result of another version has a state, too.
        values = read_json(folder.result)
        return values["state"] if is_of_folder(values, folder.path) else ""
    except DAMAGED:
        return ""


def is_of_folder(result: Mapping[str, Any], path: Path) -> bool:
    """Tell whether a result is of the run that its folder is called after, `<name>-<variant id>/seed<k>[.n]`."""
    named = re.fullmatch(r".*-([0-9a-f]{8})/seed(\d+)(\.\d+)?", f"{path.parent.name}/{path.name}")
    return named is None or (result["variant_id"], str(result["seed"])) == named.groups()[:2]


def by_age(paths: Iterable[Path]) -> list[Path]:
    """Return the folders of attempts at a run, the oldest first, by the starts that their environment records name.

    Times of files do not count, because a copy of the runs has others. Records of version 0.2.0 name no start: where
    one is among them, the folders' numbers say the order, and for equal numbers what the results hold, as a folder
    may be renamed.
    """
    starts = {path: _started_at(path) for path in paths}
    all_known = None not in starts.values()

    def age(path: Path) -> tuple[float, int, str]:
        suffix = path.name.partition(".")[2]
        return (starts[path] or 0.0) if all_known else 0.0, int(suffix) if suffix.isdigit() else 1, _content(path)

    return sorted(starts, key=age)


def _started_at(path: Path) -> float | None:
    """Return the start of an attempt in seconds since 1970, None if its environment record names none."""
    try:
        started_at = read_json(path / "environment.json").get("started_at")
        return None if started_at is None else float(started_at)
    except DAMAGED:
        # A folder without the record was cut short while it was made, so it is the newest.
        return float("inf")


def _content(path: Path) -> str:
    with contextlib.suppress(*DAMAGED):
        return hashlib.sha256(read_plain(path / "result.json")).hexdigest()
    return ""


def _new_path(variant: Path, name: str) -> Path:
    for attempt in itertools.count(1):
        path = variant / (name if attempt == 1 else f"{name}.{attempt}")
        # mkdir is atomic: of two processes that start at once, each gets a folder of its own.
        with disk_errors(path), contextlib.suppress(FileExistsError):
            path.mkdir(parents=True)
            break
    return path
