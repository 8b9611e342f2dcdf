"""Record of a run whose training has ended, `trained.json`: the same command packs and scores it and trains nothing.

The record is written before the weights that it names. So a run is trained from the moment when its weights have their
name, and the record of a run that was killed before that moment names weights that are not there.
"""

from __future__ import annotations

import dataclasses
import json
import zlib
from dataclasses import dataclass, field
from typing import Any

from golf.errors import GolfError
from golf.files import DAMAGED, read_json, write_json
from golf.run.folder import RunFolder, is_of_folder
from golf.run.result import Result, result_of, to_json


@dataclass
class Trained:
    """All that packing and scoring need from the training, but for the weights."""

    result: Result  # with the outcome of the training, and that of packing if there is an artifact
    failures: list[str]  # what makes the run void: proofs that failed, and what never acted
    ranks: int
    code: str  # digest of the code that trained
    weights: str  # checksum of final_model.safetensors
    artifact: str = ""  # checksum of artifact.golf; empty before it was packed
    stage_steps: list[int] = field(default_factory=list)  # steps of each of schedule.stages


def checksum(content: bytes) -> str:
    """Return length and CRC-32 of a file's content."""
    return f"{len(content)}-{zlib.crc32(content):08x}"


def write_trained(folder: RunFolder, trained: Trained) -> None:
    """Write the record of `folder`. Raises `GolfError` if the disk refuses."""
    values = {**vars(trained), "result": to_json(trained.result)}
    write_json(folder.trained, {"trained": values, "checksum": _checksum_of(values)})


def read_trained(folder: RunFolder) -> Trained | None:
    """Return the record of `folder`; None if its training has not ended.

    Raises `GolfError` if the record or the weights are damaged, or of another run.
    """
    if not folder.is_trained:
        return None
    try:
        content = read_json(folder.trained)
        values = content["trained"]
        if content["checksum"] != _checksum_of(values):
            raise ValueError(f"the bytes of {folder.trained.name} have changed")
        if not is_of_folder(values["result"], folder.path):
            raise ValueError(f"{folder.trained.name} is of another run")
        if checksum(folder.weights.read_bytes()) != values["weights"]:
            raise ValueError(f"{folder.weights.name} is not the file that the training wrote")
        # A record of a later version may have fields that this one does not know.
        known = {f.name: values[f.name] for f in dataclasses.fields(Trained)}
        return Trained(**{**known, "result": result_of(values["result"])})
    except DAMAGED as error:
        raise GolfError(
            f"The trained weights in {folder.path} cannot be used ({error}), so they are trained again."
        ) from error


def _checksum_of(values: Any) -> str:
    return checksum(json.dumps(values, sort_keys=True).encode())
