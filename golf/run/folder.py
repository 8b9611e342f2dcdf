"""The folder of one run: `multirun/<name>-<variant id>/seed<k>/`, the truth about it for every reader."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

import yaml

from golf.errors import GolfError
from golf.files import disk_error, write_atomic, write_json
from golf.paths import ROOT
from golf.run.environment import environment_record
from golf.run.identity import variant_id
from golf.run.result import FINAL, Result, read_result, to_json
from golf.settings.config import Config, from_dict, to_dict


@dataclass(frozen=True)
class RunFolder:
    path: Path

    @property
    def config(self) -> Path:
        """What the ranks read."""
        return self.path / "config.json"

    @property
    def result(self) -> Path:
        """Written once, when the run has ended; a run without it was killed or is still going."""
        return self.path / "result.json"

    @property
    def train_log(self) -> Path:
        """Log in the public scripts' line formats."""
        return self.path / "train.log"

    @property
    def metrics(self) -> Path:
        """One JSON object a line, for programs."""
        return self.path / "metrics.jsonl"

    @property
    def weights(self) -> Path:
        """Weights before quantization."""
        return self.path / "final_model.safetensors"

    @property
    def artifact(self) -> Path:
        """The file that counts."""
        return self.path / "artifact.golf"

    @property
    def curves(self) -> Path:
        return self.path / "curves.png"

    @property
    def error(self) -> Path:
        """Traceback of a crash."""
        return self.path / "error.txt"

    @property
    def checkpoint(self) -> Path:
        """Of a long run, see golf/training/loop/checkpoint.py."""
        return self.path / "checkpoint"

    @property
    def has_checkpoint(self) -> bool:
        """Whether a run that was stopped can go on here."""
        return (self.checkpoint / "latest.json").exists()

    def write_machine_warnings(self, node: int, sentences: list[str]) -> None:
        """What was found amiss on a machine before its ranks started."""
        if sentences:
            write_json(self.path / f"machine.node{node}.json", sentences)

    def read_machine_warnings(self) -> list[str]:
        """Those of all nodes."""
        return [s for path in sorted(self.path.glob("machine.node*.json")) for s in json.loads(path.read_text())]

    @property
    def track_log(self) -> Path:
        """What a mirror and its client had to say."""
        return self.path / "track.log"

    @property
    def rank_logs(self) -> Path:
        return self.path / "ranks"

    @property
    def output(self) -> Path:
        """What a run of a sweep would have shown on the terminal."""
        return self.path / "output.log"

    def read_config(self) -> Config:
        return from_dict(Config, json.loads(self.config.read_text()))

    def write_result(self, result: Result) -> None:
        write_json(self.result, to_json(result))


def runs_root() -> Path:
    """Where runs go: `GOLF_RUNS` or multirun/ in the repository."""
    return Path(os.environ.get("GOLF_RUNS", ROOT / "multirun")).absolute()


def create_run_folder(cfg: Config, command: list[str]) -> RunFolder:
    """A new folder with the resolved configuration and the environment record in it.

    A run that was made before keeps its folder: the next one of the same variant and seed gets `seed<k>.2`, ….
    """
    variant = runs_root() / f"{cfg.name}-{variant_id(cfg)}"
    path = _new_path(variant, f"seed{cfg.seed}")
    folder = RunFolder(path)
    write_atomic(path / "config.yaml", yaml.safe_dump(to_dict(cfg), sort_keys=False))
    write_json(path / "environment.json", environment_record(command))
    write_json(folder.config, to_dict(cfg))
    return folder


def attempts(variant_id: str, seed: int) -> list[RunFolder]:
    """Folders of every attempt at a run, the oldest first, under whatever name its variant was run."""
    pattern = re.compile(rf"seed{seed}(?:\.\d+)?")
    paths = [path for path in runs_root().glob(f"*-{variant_id}/seed*") if pattern.fullmatch(path.name)]
    return [RunFolder(path) for path in sorted(paths, key=_age)]


def find_run(variant_id: str, seed: int) -> RunFolder | None:
    """The folder that stands for a run: its newest finished attempt, else its newest one, None if there is none."""
    found = attempts(variant_id, seed)
    finished = [folder for folder in found if _state(folder) in FINAL]
    return (finished or found)[-1] if found else None


def finished_run(variant_id: str, seed: int) -> tuple[Result, RunFolder] | None:
    """Result and folder of a run that needs no other attempt. One that this version cannot read does."""
    if (folder := find_run(variant_id, seed)) and _state(folder) in FINAL:
        with contextlib.suppress(GolfError):
            return read_result(folder.result), folder
    return None


def _state(folder: RunFolder) -> str:
    try:
        return json.loads(folder.result.read_text())["state"]
    except (OSError, ValueError, LookupError, TypeError):
        return ""


def _age(path: Path) -> tuple[int, int]:
    """Sorts attempts by their making: the environment record is written once, then the number in the folder's name."""
    number = int(path.name.partition(".")[2] or 1)
    try:
        return (path / "environment.json").stat().st_mtime_ns, number
    except OSError:
        return path.stat().st_mtime_ns, number


def _new_path(variant: Path, name: str) -> Path:
    for attempt in itertools.count(1):
        path = variant / (name if attempt == 1 else f"{name}.{attempt}")
        try:
            path.mkdir(parents=True)
            break
        except FileExistsError:
            continue
        except OSError as error:
            raise disk_error(path, error) from error
    return path
