"""The next attempt at a run: which folder it writes, under a lock in that folder, and whether it resumes there."""

from __future__ import annotations

import contextlib
import dataclasses

from safetensors import SafetensorError, safe_open

from golf.errors import GolfError
from golf.files import disk_errors, read_json
from golf.run.folder import RunFolder, attempts, create_run_folder, describe, state_of
from golf.run.identity import variant_id
from golf.run.locks import Lock, is_held, lock_file
from golf.run.result import FINAL
from golf.run.trained import read_trained
from golf.settings.config import Config


def next_attempt(cfg: Config, command: list[str]) -> tuple[RunFolder, Lock]:
    """Return the folder of the next attempt at a run, and the lock on it, which the caller holds while ranks write.

    It is the folder of an earlier attempt that was cut short: after its training, which the ranks then pack and score,
    or else after the most steps with a sound checkpoint, from which they resume. Without one, or under `launch.fresh`,
    it is a new one. Attempts before one that finished, or that was to start over, are not resumed. Trained weights that
    are damaged are put aside with a warning. Raises `GolfError` if an attempt is at work, or if the disk refuses.
    """
    damaged: list[str] = []
    if not cfg.launch.fresh:
        if living := at_work(variant_id(cfg), cfg.seed):
            raise is_at_work(living)
        if (folder := _to_resume(cfg, damaged)) and (lock := lock_file(folder.lock)):
            # What the earlier start left would be taken for the outcome of this one.
            for path in (folder.result, folder.error, folder.start, folder.stop):
                with disk_errors(path):
                    path.unlink(missing_ok=True)
            # Settings outside the identity may have changed: ranks, device, rules. That it started over stays known.
            fresh = folder.read_config().launch.fresh
            describe(folder, dataclasses.replace(cfg, launch=dataclasses.replace(cfg.launch, fresh=fresh)), command)
            folder.write_machine_warnings("attempt", damaged)
            return folder, lock
    folder = create_run_folder(cfg, command)
    folder.write_machine_warnings("attempt", damaged)
    lock = lock_file(folder.lock)
    assert lock, "nobody else knows a folder that was just made"
    return folder, lock


def at_work(variant: str, seed: int) -> RunFolder | None:
    """Return the folder of an attempt at the run that a process is writing now; None if there is none."""
    return next((folder for folder in attempts(variant, seed) if is_held(folder.lock)), None)


def is_at_work(folder: RunFolder | None) -> GolfError:
    """Return the error about a run that another process works on, in `folder` if that is known."""
    step = max((event.get("step", 0) for event in folder.events()), default=0) if folder else 0
    where = f" in {folder.path}, at step {step}" if folder else ""
    return GolfError(
        f"Another process is at work on this run{where}: wait for it, take another seed, or give launch.fresh=true to "
        "train it once more in a folder of its own."
    )


def _to_resume(cfg: Config, damaged: list[str]) -> RunFolder | None:
    """Return the attempt that is trained, else that whose sound checkpoint has the most steps, else the last with one.

    `damaged` gets a sentence for each attempt whose trained weights cannot be used.
    """
    open_ones: list[RunFolder] = []
    for folder in attempts(variant_id(cfg), cfg.seed):
        with contextlib.suppress(GolfError):
            if state_of(folder) in FINAL:
                open_ones = []
            elif folder.read_config().launch.fresh:
                open_ones = [folder]
            else:
                open_ones.append(folder)
    for folder in reversed(open_ones):
        try:
            if read_trained(folder):
                return folder
        except GolfError as error:
            damaged.append(str(error))
            folder.trained.rename(folder.trained.with_suffix(".damaged.json"))
    # A damaged checkpoint is resumed in the end, so that its error says what to do.
    candidates = [folder for folder in open_ones if folder.has_checkpoint]
    return max(candidates, key=lambda f: (sound_steps(f), candidates.index(f)), default=None)


def sound_steps(folder: RunFolder) -> int:
    """Return the steps of the folder's checkpoint, -1 if a file of it is missing or damaged."""
    try:
        latest = read_json(folder.checkpoint / "latest.json")
        for rank in range(int(latest["ranks"])):
            # The header has the lengths of all tensors, which are compared with the file's.
            with safe_open(folder.checkpoint / f"step{latest['step']}" / f"rank{rank}.safetensors", "np"):
                pass
        return int(latest["step"])
    except (OSError, ValueError, TypeError, LookupError, SafetensorError):
        return -1
