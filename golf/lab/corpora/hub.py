"""Download of the published, tokenized FineWeb from the Hugging Face hub, through its own client.

A data set repository holds `datasets/manifest.json`, which says how many shards a variant has and which tokenizer
made them. Files land where the public scripts look for them: `data/datasets/…` and `data/tokenizers/…`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import sentencepiece

from golf.challenge import DATA_REPOSITORY
from golf.errors import GolfError
from golf.files import DISK_REFUSES, write_atomic
from golf.training.data.caseops import operator_ids
from golf.training.data.shards import find_shards, open_shard

STAGING = ".hub"  # the client keeps unfinished downloads here
ORIGIN = "origin.txt"  # file in a data set's folder that names the repository of its shards
COUNTS = ("files_train", "files_val", "tokens_train", "tokens_val")  # numbers that a manifest may give


@dataclass(frozen=True)
class Repository:
    """A data set repository of the hub and the folder in it that holds `manifest.json`."""

    repo: str = DATA_REPOSITORY
    folder: str = "datasets"

    def __str__(self) -> str:
        return f"{self.repo}/{self.folder}"

    def download(self, name: str, root: Path) -> Path:
        """Download `name` of the folder into a staging folder of its own. Returns its path."""
        # Imported here, because only a download needs the client.
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import HFValidationError

        staging = root / STAGING / self.repo.replace("/", "--")
        try:
            remote = str(PurePosixPath(self.folder, name))
            path = hf_hub_download(self.repo, remote, repo_type="dataset", local_dir=staging)
        except HFValidationError as error:
            raise GolfError(f"{self.repo} is no repository of the hub: write --repo owner/name.") from error
        # The client lets errors of its HTTP library through, and which library that is depends on its version.
        except Exception as error:
            if getattr(error, "errno", None) in DISK_REFUSES:
                raise
            first_line = str(error).strip().partition("\n")[0]
            raise GolfError(
                f"{name} cannot be fetched from {self} ({first_line}): check the network, --repo and --prefix, or "
                "HF_ENDPOINT for a mirror; what is complete is kept, so the same command goes on from here."
            ) from error
        return Path(path)


def fetch_variant(
    variant: str, train_shards: int, root: Path, report: Callable[[str], None], source: Repository
) -> Path:
    """Fetch all validation shards, the first `train_shards` training shards and the tokenizer of e.g. `sp1024`.

    Data with CaseOps operators gets its byte sidecars, too. Complete files are kept. Returns the folder of the shards.
    Raises `GolfError` if a file cannot be had.
    """
    manifest = _read_manifest(source.download("manifest.json", root), source)
    dataset = _entry(manifest, "datasets", f"fineweb10B_{variant}")
    tokenizer = _entry(manifest, "tokenizers", dataset.get("tokenizer_name"))
    stats = dataset.get("stats") or {}
    available = stats.get("files_train")
    if available is not None and train_shards > int(available):
        raise GolfError(f"{variant} has {available} training shards: ask for at most as many with --train-shards.")
    folder = f"datasets/fineweb10B_{variant}"
    # Before the first download, which would mix shards of two repositories.
    _check_origin(root / folder, source)
    models = [str(tokenizer[key]) for key in ("model_path", "vocab_path") if tokenizer.get(key)]
    for name in models:
        _fetch(name, root, source)
    # Text as bytes has no model.
    kinds = ["val", "val_bytes"] if models and _has_operators(root / models[0]) else ["val"]
    files = [f"{folder}/fineweb_{kind}_{i:06d}.bin" for kind in kinds for i in range(int(stats.get("files_val", 1)))]
    files += [f"{folder}/fineweb_train_{i:06d}.bin" for i in range(train_shards)]
    for number, name in enumerate(files, start=1):
        report(f"[{number}/{len(files)}] {name}")
        _fetch(name, root, source)
    _check_total(root / folder, "val", stats.get("tokens_val"))
    # The manifest has totals of whole splits only.
    if train_shards == available:
        _check_total(root / folder, "train", stats.get("tokens_train"))
    return root / folder


def _read_manifest(path: Path, source: Repository) -> dict[str, Any]:
    try:
        manifest = dict(json.loads(path.read_text(encoding="utf-8")))
        stats = [entry.get("stats") or {} for kind in ("datasets", "tokenizers") for entry in manifest.get(kind, [])]
        # A count that is no number is found before anything is fetched.
        _ = [int(found[name]) for found in stats for name in COUNTS if found.get(name) is not None]
        return manifest
    except (ValueError, TypeError, AttributeError) as error:
        raise GolfError(f"manifest.json of {source} is not a list of data sets: choose another --repo.") from error


def _check_origin(folder: Path, source: Repository) -> None:
    """Note in `folder` where its shards come from. Raises `GolfError` if shards of another repository are there."""
    note = folder / ORIGIN
    # Folders from before there was a choice have no note, and their shards are the first repository's.
    known = note.read_text(encoding="utf-8").strip() if note.is_file() else str(Repository())
    if folder.is_dir() and known != str(source):
        raise GolfError(
            f"{folder} holds shards of {known}, which may be cut otherwise than those of {source}: remove the folder "
            "or choose another --root."
        )
    write_atomic(note, f"{source}\n")


def _has_operators(model: Path) -> bool:
    try:
        return bool(operator_ids(sentencepiece.SentencePieceProcessor(model_proto=model.read_bytes())))
    except RuntimeError:
        return False  # `load_tokenizer` refuses what is no model, where it is used


def _entry(manifest: dict[str, Any], kind: str, name: str | None) -> dict[str, Any]:
    entries = {entry.get("name"): entry for entry in manifest.get(kind, [])}
    if name not in entries:
        known = ", ".join(str(n).removeprefix("fineweb10B_") for n in entries)
        raise GolfError(f"The published data has no {name}: --variant can be {known}.")
    return entries[name]


def _fetch(name: str, root: Path, source: Repository) -> None:
    """Fetch `root/name` unless it is there and complete. Raises `GolfError` for a name that leads out of `root`."""
    # The manifest gives the names, and its author could name any file of this machine.
    place = PurePosixPath(name)
    if not place.name or place.is_absolute() or {"..", STAGING} & {*place.parts} or "\0" in name:
        raise GolfError(f"{source} names {name!r}, which is no file of a data set: choose another --repo.")
    target = root / name
    if target.is_file() and _is_whole(target):
        return
    if not _is_whole(fetched := source.download(name, root)):
        open_shard(fetched)  # raises with what is wrong
    target.parent.mkdir(parents=True, exist_ok=True)
    # Moved only now, so that a file in its final place is whole.
    fetched.replace(target)


def _is_whole(path: Path) -> bool:
    if path.suffix != ".bin":
        return path.stat().st_size > 0
    try:
        open_shard(path)
    except GolfError:
        return False
    return True


def _check_total(folder: Path, split: str, expected: int | None) -> None:
    if expected is None:
        return
    total = sum(open_shard(path).size for path in find_shards(folder, f"fineweb_{split}_*.bin", split))
    if total != int(expected):
        raise GolfError(
            f"The {split} shards in {folder} hold {total} tokens, but the manifest says {expected}: "
            "remove the folder and fetch it again."
        )
