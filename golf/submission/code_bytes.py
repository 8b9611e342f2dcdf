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

from golf.errors import GolfError
from golf.files import write_atomic
from golf.idea_folders import idea_of
from golf.paths import user_cache
from golf.run.code import own_code
from golf.settings.config import Config, from_dict, to_dict
from golf.submission.script.bundle import Bundle, entries
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
    # As text the configuration can be a key of the cache.
    config = json.dumps(to_dict(submitted(_exportable(cfg))))
    return _remembered(_wrapped_size, config, cfg.rules.script_packing, *_ideas(cfg))


def estimated_code_bytes(cfg: Config) -> int:
    """Return `code_bytes` at once, within a factor of 1.8 over the presets: a share of the compressed modules."""
    return _remembered(_share_of_sources, " ".join(entries(_exportable(cfg))), *_ideas(cfg))


@functools.cache
def _remembered(count: Callable[..., int], *decisive: str) -> int:
    """Return `count(*decisive)` from the user's cache, made and written there if it is missing or damaged."""
    tools = own_code(), version("python-minifier"), sys.version
    name = hashlib.sha256("\0".join([count.__name__, *decisive, *tools]).encode()).hexdigest()[:24]
    known = user_cache() / "code_bytes" / name
    with contextlib.suppress(OSError, ValueError):
        return int(known.read_text(encoding="utf-8"))
    size = count(*decisive)
    # Where nothing can be written the number is made again the next time.
    with contextlib.suppress(GolfError):
        write_atomic(known, str(size))
    return size


def _wrapped_size(config: str, packing: str, *ideas: str) -> int:
    cfg = from_dict(Config, json.loads(config))
    cfg.rules.script_packing = packing
    return len(Bundle(cfg).wrapped)


def _share_of_sources(modules: str, *ideas: str) -> int:
    sources = b"".join(source_of(module.name).read_bytes() for module in read_modules(modules.split(" ")))
    # A script has no comments, so a sentence more in the package must not change the estimate.
    return round(WRAPPED_SHARE * len(lzma.compress(COMMENT_LINE.sub(b"", sources))))


def _ideas(cfg: Config) -> list[str]:
    """Return the hashes of the code of the ideas in `cfg`."""
    return [idea.digest() for technique in cfg.tech.values() if (idea := idea_of(type(technique)))]


def _exportable(cfg: Config) -> Config:
    """Return `cfg` without what keeps it from being a submission but hardly changes its code."""
    ours = {k: t for k, t in cfg.tech.items() if type(t).__module__.startswith(f"{PACKAGE}.") or idea_of(type(t))}
    return dataclasses.replace(cfg, model=dataclasses.replace(cfg.model, init_from=None), tech=ours)
