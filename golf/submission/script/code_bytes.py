"""Bytes of code that are counted with the model: those of the script that would be submitted, wrapped."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import lzma
import re
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from golf.errors import GolfError
from golf.files import write_atomic
from golf.idea_folders import idea_of
from golf.paths import user_cache
from golf.run.environment import source_digest
from golf.settings.config import Config, from_dict, to_dict
from golf.submission.script.bundle import KERNELS, Bundle, entries
from golf.submission.script.modules import PACKAGE, read_modules, source_of
from golf.submission.script.settings import submitted

COMMENT_LINE = re.compile(rb"^ *#.*\n", re.MULTILINE)
WRAPPED_SHARE = 0.165  # script bytes per byte of the compressed sources; 0.10 to 0.29 over the presets


def code_bytes(cfg: Config) -> int:
    """Return the size in bytes of the wrapped script of `cfg`, or `estimated_code_bytes` if the rules ask for that.

    Making the script takes seconds; its size is remembered in the user's cache. A technique that is registered from
    outside the package and is no idea cannot be exported, and is not counted.
    """
    if cfg.rules.code_bytes == "estimate":
        return estimated_code_bytes(cfg)
    # As text the configuration can be a key of the two caches.
    return _code_bytes(json.dumps(to_dict(submitted(_exportable(cfg)))), cfg.rules.script_packing, _entries(cfg))


class Entries(NamedTuple):
    """What a script is cut from."""

    modules: tuple[str, ...]
    ideas: tuple[str, ...]  # hashes of the code of ideas


def _entries(cfg: Config) -> Entries:
    found = (idea_of(type(technique)) for technique in cfg.tech.values())
    return Entries(tuple(entries(_exportable(cfg))), tuple(idea.digest() for idea in found if idea))


@functools.cache
def _code_bytes(config: str, packing: str, entries: Entries) -> int:
    cfg = from_dict(Config, json.loads(config))
    cfg.rules.script_packing = packing
    return _remembered(_key(f"{packing} {config}", entries), lambda: len(Bundle(cfg).wrapped))


def _remembered(name: str, make: Callable[[], int]) -> int:
    """Return the number in file `name` of the user's cache, made and written there if it is missing or damaged."""
    known = user_cache() / "code_bytes" / name
    with contextlib.suppress(OSError, ValueError):
        return int(known.read_text(encoding="utf-8"))
    size = make()
    # Where nothing can be written the number is made again the next time.
    with contextlib.suppress(GolfError):
        write_atomic(known, str(size))
    return size


def _key(config: str, entries: Entries) -> str:
    """Return a digest of all that decides on the script: settings, sources, and the code and packages that cut them."""
    # An edit elsewhere in the package, in a report or the sweep, leaves every remembered size valid.
    bundler = b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))
    kernels = b"".join(path.read_bytes() for path in sorted(source_of(f"{KERNELS}.choice").parent.glob("*.py")))
    tools = f"{version('python-minifier')} {sys.version}".encode()
    return hashlib.sha256(b"\0".join([config.encode(), _sources(entries), bundler, kernels, tools])).hexdigest()[:24]


def estimated_code_bytes(cfg: Config) -> int:
    """Return `code_bytes` at once, within a factor of 1.8 over the presets: a share of the compressed modules."""
    return _estimate(_entries(cfg))


@functools.cache
def _estimate(entries: Entries) -> int:
    # A script has no comments, so a sentence more in the package must not change the estimate.
    code = COMMENT_LINE.sub(b"", _sources(entries))
    digest = hashlib.sha256(code).hexdigest()[:24]
    return _remembered(f"estimate-{WRAPPED_SHARE}-{digest}", lambda: round(WRAPPED_SHARE * len(lzma.compress(code))))


@functools.cache
def _sources(entries: Entries) -> bytes:
    """Return the text of every module that a script of `entries` is cut from."""
    digest = hashlib.sha256(repr((entries, source_digest())).encode()).hexdigest()[:24]
    known = user_cache() / "code_bytes" / f"modules-{digest}"
    # Finding the modules takes half a second, so their names are remembered until a file of the package changes.
    with contextlib.suppress(OSError, GolfError):
        return _texts(known.read_text(encoding="utf-8").split("\n"))
    names = [module.name for module in read_modules(entries.modules)]
    with contextlib.suppress(GolfError):
        write_atomic(known, "\n".join(names))
    return _texts(names)


def _texts(modules: list[str]) -> bytes:
    return b"".join(source_of(name).read_bytes() for name in modules)


def _exportable(cfg: Config) -> Config:
    """Return `cfg` without what keeps it from being a submission but hardly changes its code."""
    ours = {k: t for k, t in cfg.tech.items() if type(t).__module__.startswith(f"{PACKAGE}.") or idea_of(type(t))}
    return dataclasses.replace(cfg, model=dataclasses.replace(cfg.model, init_from=None), tech=ours)
