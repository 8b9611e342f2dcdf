"""Code that ran: a digest of the files that can change a result, and the files in which two digests differ."""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from golf.files import DAMAGED, read_json, write_json
from golf.paths import ROOT
from golf.words import listed

# A rank executes the core, proofs can make its run void, and the bytes of its script count. An edit of anything else,
# such as a table or a page, leaves results as they are.
FOLDERS_IN_RUNS = ("settings", "run", "artifact", "training", "launch", "lab/proofs", "submission/script")
IN_RUNS = ("*", "submission/code_bytes.py", *(f"{folder}/**/*" for folder in FOLDERS_IN_RUNS))
SUFFIXES = (".py", ".yaml", ".csv")
EARLIER = "an earlier version"  # code of a run whose record has no digest
THEN = ", then "  # between the digests of a run that was resumed by other code
MOST_FILES = 4  # that a sentence names
T = TypeVar("T")


def golf_files() -> dict[str, str]:
    """Return a hash of each file of golf that a run executes, by its path in the repository."""
    paths = (path for pattern in IN_RUNS for path in (ROOT / "golf").glob(pattern))
    return _hashes(path for path in paths if path.suffix in SUFFIXES)


def conf_files() -> dict[str, str]:
    """Return a hash of each file of conf/, by its path in the repository."""
    return _hashes((ROOT / "conf").rglob("*.yaml"))


def _hashes(paths: Iterable[Path]) -> dict[str, str]:
    hashes: dict[str, str] = {}
    for path in sorted(paths):
        # An editor may take a file away meanwhile.
        with contextlib.suppress(OSError):
            hashes[str(path.relative_to(ROOT))] = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    return hashes


def digest_of(files: Mapping[str, str]) -> str:
    """Return one hash for all of `files`, twelve hex digits."""
    return hashlib.sha256(json.dumps(sorted(files.items())).encode()).hexdigest()[:12]


def own_code() -> str:
    """Return the digest of golf's code as it is on disk now, which a long process may have edited behind it."""
    return digest_of(golf_files())


def code_record(runs: Path, before: str = "") -> dict[str, str]:
    """Return the digests of code and conf for an environment record, and note the files of this code under `runs`.

    `before` is the code of an earlier start of the same run, which this one resumes.
    """
    files = golf_files()
    digest = digest_of(files)
    if not (place := _place(runs, digest)).exists():
        write_json(place, files)
    is_other = before and before.split(THEN)[-1] != digest
    return {"golf": f"{before}{THEN}{digest}" if is_other else before or digest, "conf": digest_of(conf_files())}


def code_of(environment: Mapping[str, Any]) -> str:
    """Return the digest of the code that an environment record names, `EARLIER` if it names none."""
    return str((environment.get("code") or {}).get("golf") or EARLIER)


def code_of_run(folder: Path) -> str:
    """Return the digest of the code that ran in a run folder; empty if its record cannot be read."""
    try:
        return code_of(read_json(folder / "environment.json"))
    except DAMAGED:
        return ""


def note_edits(folder: Path, before: Collection[str]) -> None:
    """Mark the run of `folder` as one of two codes if a module that was loaded after `before` has been edited since.

    `before` has the names of the modules that were there while the code was still that of the environment record.
    """
    environment = read_json(folder / "environment.json")
    code = code_of(environment)
    files = read_json(_place(folder.parents[1], code.split(THEN)[-1]))
    now = golf_files()
    late = (getattr(module, "__file__", None) for name, module in list(sys.modules.items()) if name not in before)
    names = [str(Path(file).relative_to(ROOT)) for file in late if file and Path(file).is_relative_to(ROOT)]
    if any(files.get(name) != now.get(name) for name in names):
        write_json(folder / "environment.json", {**environment, "code": code_record(folder.parents[1], code)})


def about_change(code: str, runs: Path) -> str:
    """Return which files of `code` differ from those on disk now, for a sentence about a run; empty if none does."""
    now = golf_files()
    if code in ("", digest_of(now)):
        return ""
    if code == EARLIER:
        return "an earlier version of golf, which noted no code"
    for digest in code.split(THEN):
        with contextlib.suppress(*DAMAGED):
            before = dict(read_json(_place(runs, digest)))
            if changed := sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name)):
                return f"other code: {listed(changed, MOST_FILES)}"
    return f"other code: {code}"


def standing(finished: Sequence[T], code: Callable[[T], str | None]) -> T:
    """Return the one of a run's finished attempts, the oldest first, that counts: the first of the code at hand.

    Without one it is the first of the code that ran last. A later attempt with the same code is a second draw, and
    whoever repeats only what was bad would choose by luck.
    """
    codes = [code(attempt) for attempt in finished]
    if len(set(codes)) == 1:
        return finished[0]
    at_hand = own_code()
    return finished[codes.index(at_hand if at_hand in codes else codes[-1])]


def _place(runs: Path, digest: str) -> Path:
    return runs / "code" / f"{digest}.json"
