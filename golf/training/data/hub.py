"""Download of the published, tokenized FineWeb from the Hugging Face hub, through its own client.

The data set repository holds `datasets/manifest.json`, which says how many shards a variant has and which tokenizer
made them. Files land where the public scripts look for them: `data/datasets/…` and `data/tokenizers/…`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from golf.errors import GolfError
from golf.training.data.shards import open_shard

REPO_ID = "willdepueoai/parameter-golf"
REMOTE_FOLDER = "datasets"
STAGING = ".hub"  # the client keeps unfinished downloads here and resumes them


def fetch_variant(variant: str, train_shards: int, root: Path, report: Callable[[str], None]) -> Path:
    """Fetch all validation shards, the first `train_shards` training shards and the tokenizer of e.g. `sp1024`.

    Complete files are kept. Returns the folder of the shards. Raises `GolfError` if a file cannot be had.
    """
    manifest = json.loads(_download("manifest.json", root).read_text())
    dataset = _entry(manifest, "datasets", f"fineweb10B_{variant}")
    tokenizer = _entry(manifest, "tokenizers", dataset.get("tokenizer_name"))
    stats = dataset.get("stats") or {}
    available = int(stats.get("files_train", 0))
    if train_shards > available:
        raise GolfError(f"{variant} has {available} training shards: ask for at most as many with --train-shards.")
    folder = f"datasets/fineweb10B_{variant}"
    files = [f"{folder}/fineweb_val_{i:06d}.bin" for i in range(int(stats.get("files_val", 0)))]
    files += [f"{folder}/fineweb_train_{i:06d}.bin" for i in range(train_shards)]
    files += [str(tokenizer[key]) for key in ("model_path", "vocab_path") if tokenizer.get(key)]
    for number, name in enumerate(files, start=1):
        report(f"[{number}/{len(files)}] {name}")
        _fetch(name, root)
    _check_total(root / folder, "val", stats.get("tokens_val"))
    if train_shards == available:
        _check_total(root / folder, "train", stats.get("tokens_train"))
    return root / folder


def _entry(manifest: dict[str, Any], kind: str, name: str | None) -> dict[str, Any]:
    entries = {entry.get("name"): entry for entry in manifest.get(kind, [])}
    if name not in entries:
        known = ", ".join(str(n).removeprefix("fineweb10B_") for n in entries)
        raise GolfError(f"The published data has no {name}: --variant can be {known}.")
    return entries[name]


def _fetch(name: str, root: Path) -> None:
    """Fetch `root/name` unless it is there and complete."""
    target = root / name
    if target.is_file() and _is_whole(target):
        return
    fetched = _download(name, root)
    if not _is_whole(fetched):
        open_shard(fetched)  # raises with what is wrong
    target.parent.mkdir(parents=True, exist_ok=True)
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
    total = sum(open_shard(path).size for path in folder.glob(f"fineweb_{split}_*.bin"))
    if total != int(expected):
        raise GolfError(
            f"The {split} shards in {folder} hold {total} tokens, but the manifest says {expected}: "
            "remove the folder and fetch it again."
        )


def _download(name: str, root: Path) -> Path:
    """Download or resume the hub's file in the staging folder. Returns its path."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        path = hf_hub_download(REPO_ID, f"{REMOTE_FOLDER}/{name}", repo_type="dataset", local_dir=root / STAGING)
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        first_line = str(error).strip().partition("\n")[0]
        raise GolfError(
            f"{name} cannot be fetched ({first_line}): check the network, or HF_ENDPOINT for a mirror; "
            "what is complete is kept, so the same command goes on from here."
        ) from error
    return Path(path)
