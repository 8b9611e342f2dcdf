"""Checkpoints of long runs, from which they resume after their machine was taken away. Short runs start over.

`checkpoint/step<n>/` holds one safetensors file a rank. The first rank's file has the weights, their averages and
Adam's moments, which are the same on every rank. Each file has the momentum of the matrices that its rank owns, and the
rank's random states, and a checksum of all. A checkpoint is valid once `latest.json` names it, after every rank has
written its file. It also names the data, which must not change, and the code: a run that resumes with other code has a
warning.
"""

from __future__ import annotations

import json
import shutil
import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save
from torch import Tensor

from golf.errors import GolfError
from golf.files import sync_folder, write_atomic, write_json
from golf.idea_folders import ideas
from golf.run.code import own_code
from golf.run.core_time import CoreTime
from golf.run.folder import RunFolder
from golf.settings.config import Config
from golf.training.loop.state import TrainState
from golf.words import counted


@dataclass(frozen=True)
class Start:
    """Starting point of the training: step 0, or the state of the last checkpoint."""

    step: int = 0
    train_seconds: float = 0.0
    train_loss: float | None = None  # nats per token, the last one logged
    active: tuple[str, ...] = ()  # late switches that are on
    stage_steps: tuple[int, ...] = ()  # steps of each of schedule.stages so far
    cpu_seconds: float = 0.0  # of all ranks
    waited_seconds: float = 0.0  # of threads that were ready to run and had no core, all ranks


CHECKSUM = "crc32"  # its key in a file's metadata
CHECKPOINT_SECONDS = 600.0  # default interval of a run without a time budget


def checkpoint_seconds(cfg: Config) -> float:
    """Return the seconds of training between checkpoints, 0 for none. By default runs with a time budget have none."""
    if cfg.launch.checkpoint_seconds is not None:
        return cfg.launch.checkpoint_seconds
    return 0.0 if cfg.budget.train_seconds else CHECKPOINT_SECONDS


def code_of(cfg: Config) -> str:
    """Return a digest of the code of golf and of the selected ideas, and how it is compiled: other code, other bits."""
    digests = [ideas()[name].digest() for name in cfg.tech if name in ideas()]
    return " ".join([own_code(), *digests, f"compile={cfg.launch.compile}"])


class Checkpoints:
    """Saved states of a run, one every `checkpoint_seconds` of training; the newest one stays."""

    def __init__(self, cfg: Config, folder: RunFolder, state: TrainState, data_fingerprint: str):
        self.every_seconds = checkpoint_seconds(cfg)
        self.data_fingerprint = data_fingerprint
        self.folder, self.ranks = folder.checkpoint, state.ranks
        self.model, self.optimizer, self.averagers = state.model, state.step.optimizer, state.hooks.averagers
        self._run, self._start_id = folder, folder.start_id()
        self.start = Start()  # where this run's training begins
        self.is_of_other_code = False  # whether other code than this, or another launch.compile, wrote the checkpoint
        self.spent: Callable[[], CoreTime] = CoreTime  # what all ranks have spent of their cores; the run's clock knows
        self._saved_at = 0.0
        # Read now, because the files may be edited while this process runs.
        self.code = code_of(cfg)

    def is_due(self, train_seconds: float) -> bool:
        """Tell whether to save at `train_seconds`, the reading that all ranks agree on, so that they save together."""
        return self.every_seconds > 0 and train_seconds - self._saved_at >= self.every_seconds

    def save(self, start: Start) -> None:
        """Write the state after `start.step` steps. The checkpoint before stays valid until this one is complete.

        Raises `GolfError` if the disk refuses, or if the run was started again meanwhile: this rank has survived its
        launcher.
        """
        self.refuse_late()
        spent = self.spent()
        start = replace(start, cpu_seconds=spent.cpu, waited_seconds=spent.waited)
        # A folder of its own, so that the checkpoint before is untouched while this one is written.
        folder = self.folder / f"step{start.step}"
        # Not safetensors' own writer, whose errors for a full disk are no `OSError`.
        state = flatten(self._state())
        write_atomic(self._rank_file(folder, self.ranks.rank), save(state, {CHECKSUM: _checksum(state)}))
        sync_folder(folder)
        # latest.json may name the folder only after every rank has written its file.
        self.ranks.barrier()
        if self.ranks.is_first:
            origin = {"data": self.data_fingerprint, "code": self.code}
            write_json(self._latest, {**asdict(start), "ranks": self.ranks.world_size, **origin})
            # Its name has to be on disk before the files go that the one before named.
            sync_folder(self.folder)
            # Only older ones go: another rank may be writing the next checkpoint already.
            for other in self.folder.glob("step*"):
                if int(other.name.removeprefix("step")) < start.step:
                    shutil.rmtree(other, ignore_errors=True)
        self._saved_at = start.train_seconds

    def refuse_late(self) -> None:
        """Raise `GolfError` if the run was started again meanwhile: this rank has survived its launcher."""
        if self._run.start_id() != self._start_id:
            raise GolfError("This run was started again by another process: this one ends and leaves its files alone.")

    def load(self) -> Start:
        """Restore model, optimizer, averages and random states if there is a checkpoint; return where training begins.

        Raises `GolfError` if the checkpoint cannot be read, does not fit the model, or is of another number of ranks
        or other data.
        """
        if not self._latest.exists():
            return self.start
        start = self._read_start()
        folder = self.folder / f"step{start.step}"
        flat = self._read(folder, 0)
        own = flat if self.ranks.is_first else self._read(folder, self.ranks.rank)
        try:
            self._restore(unflatten(flat), unflatten(own))
        # Any error: what does not fit shows in a missing name, a shape or a type.
        except Exception as error:
            said = " ".join(str(error).split())
            raise GolfError(
                f"The checkpoint {folder} does not fit this run ({said}), as after a change of the code: "
                f"go back to the code that wrote it, or {self._start_over}."
            ) from error
        self.start, self._saved_at = start, start.train_seconds
        return self.start

    def _read_start(self) -> Start:
        """Return the starting point that latest.json names, and note whether the same code has written it."""
        try:
            values = json.loads(self._latest.read_text(encoding="utf-8"))
            ranks, data, code = int(values.pop("ranks")), values.pop("data", None), values.pop("code", None)
            # Checkpoints of earlier versions have no stages.
            lists = {"active": tuple(values["active"]), "stage_steps": tuple(values.get("stage_steps", ()))}
            start = Start(**{**values, **lists})
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise GolfError(f"{self._latest} cannot be read ({error}): {self._start_over}.") from error
        if ranks != self.ranks.world_size:
            raise GolfError(
                f"The checkpoint in {self.folder} is of {counted(ranks, 'rank')}, and this run has "
                f"{self.ranks.world_size}: go on with as many, or {self._start_over}."
            )
        # Checkpoints of earlier versions name neither data nor code.
        if data not in (None, self.data_fingerprint):
            raise GolfError(
                f"The checkpoint in {self.folder} was trained on data with fingerprint {data}, and the data is "
                f"{self.data_fingerprint} now: put the former data back, or {self._start_over}."
            )
        self.is_of_other_code = code not in (None, self.code)
        return start

    @property
    def _start_over(self) -> str:
        return f"remove {self.folder} or give launch.fresh=true to start over"

    @property
    def _latest(self) -> Path:
        return self.folder / "latest.json"

    def _rank_file(self, folder: Path, rank: int) -> Path:
        return folder / f"rank{rank}.safetensors"

    def _read(self, folder: Path, rank: int) -> dict[str, Tensor]:
        path = self._rank_file(folder, rank)
        try:
            with safe_open(path, "pt") as file:
                said = (file.metadata() or {}).get(CHECKSUM)
            state = load_file(path)
            # Checkpoints of earlier versions have none.
            if said not in (None, _checksum(state)):
                raise ValueError("its bytes have changed since it was written")
            return state
        # Any error, because safetensors has errors of its own.
        except Exception as error:
            raise GolfError(f"The checkpoint {path} cannot be read ({error}): {self._start_over}.") from error

    def _state(self) -> dict[str, Any]:
        optimizer = self.optimizer.state_dict()
        state: dict[str, Any] = {"muon": optimizer["muon"], "random": _random_states(self.ranks.device)}
        # Momentum is sharded, so every rank saves its own; the rest is equal everywhere and is saved once.
        if self.ranks.is_first:
            state["model"] = self.model.state_dict()
            state["adams"] = optimizer["adams"]
            state["averages"] = {name: averager.state_dict() for name, averager in self.averagers.items()}
        return state

    def _restore(self, shared: dict[str, Any], own: dict[str, Any]) -> None:
        self.model.load_state_dict(shared["model"])
        device = self.ranks.device
        # Empty dicts and lists are in no file, so they may be missing here.
        self.optimizer.load_state_dict(_to(device, {"muon": own.get("muon", {}), "adams": shared.get("adams", [])}))
        for name, averager in self.averagers.items():
            averager.load_state_dict(_to(device, shared["averages"][name]))
        torch.set_rng_state(own["random"]["cpu"])
        if device.type != "cpu":
            torch.get_device_module(device).set_rng_state(own["random"][device.type])


def _checksum(state: dict[str, Tensor]) -> str:
    total = 0
    for name in sorted(state):
        total = zlib.crc32(state[name].reshape(-1).view(torch.uint8).numpy().data, zlib.crc32(name.encode(), total))
    return f"{total:08x}"


def _random_states(device: torch.device) -> dict[str, Tensor]:
    states = {"cpu": torch.get_rng_state()}
    if device.type != "cpu":
        states[device.type] = torch.get_device_module(device).get_rng_state()
    return states


def flatten(tree: Any, prefix: str = "") -> dict[str, Tensor]:
    """Return the tensors of nested dicts and lists by names like `adams/0/exp_avg/3`, as copies on the CPU."""
    if isinstance(tree, Tensor):
        # Copies, because safetensors refuses tensors of one memory, as parameters in a bank are.
        return {prefix: tree.detach().contiguous().cpu().clone()}
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    flat: dict[str, Tensor] = {}
    for key, value in items:
        flat |= flatten(value, f"{prefix}/{key}" if prefix else str(key))
    return flat


def unflatten(flat: dict[str, Tensor]) -> dict[str, Any]:
    """Return the nested form of what `flatten` returned. Empty dicts and lists are lost."""
    tree: dict[str, Any] = {}
    for name, tensor in flat.items():
        *path, last = name.split("/")
        node = tree
        for key in path:
            node = node.setdefault(key, {})
        node[last] = tensor
    return _with_lists(tree)


def _with_lists(tree: Any) -> Any:
    if not isinstance(tree, dict):
        return tree
    # Names have no other trace of a list than numbers for keys.
    if tree and all(key.isdigit() for key in tree):
        return [_with_lists(tree[key]) for key in sorted(tree, key=int)]
    return {key: _with_lists(value) for key, value in tree.items()}


def _to(device: torch.device, tree: Any) -> Any:
    if isinstance(tree, Tensor):
        return tree.to(device)
    if isinstance(tree, dict):
        return {key: _to(device, value) for key, value in tree.items()}
    return [_to(device, value) for value in tree]
