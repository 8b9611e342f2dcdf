"""The bytes of code that are counted with the model: those of the script that would be submitted, wrapped.

The rules count one script. `bundle` makes it out of what the configuration needs, minified and compressed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import lzma
import os
import sys
from importlib.metadata import version

from golf.artifact.script.bundle import PROGRAM, Bundle
from golf.artifact.script.modules import PACKAGE, read_modules, source_of
from golf.artifact.script.settings import submitted
from golf.paths import ROOT, user_cache
from golf.settings.config import Config, from_dict, to_dict

WRAPPED_SHARE = 0.28  # of the compressed sources that are reachable; 0.19 to 0.27 over the presets


def code_bytes(cfg: Config) -> int:
    """Size in bytes of the wrapped script of `cfg`; takes seconds once, then it is remembered in the user's cache.

    A technique that is registered from outside the package cannot be exported, and is not counted. Under
    `rules.code_bytes=estimate` it is `estimated_code_bytes`.
    """
    if cfg.rules.code_bytes == "estimate":
        return estimated_code_bytes(cfg)
    return _code_bytes(json.dumps(to_dict(submitted(_exportable(cfg))), sort_keys=True))


@functools.cache
def _code_bytes(config: str) -> int:
    known = user_cache() / "code_bytes" / hashlib.sha256(f"{_tools()} {config}".encode()).hexdigest()[:24]
    with contextlib.suppress(OSError, ValueError):
        return int(known.read_text())
    size = len(Bundle(from_dict(Config, json.loads(config))).wrapped.encode())
    with contextlib.suppress(OSError):  # where nothing can be written it is made again
        known.parent.mkdir(parents=True, exist_ok=True)
        unfinished = known.with_suffix(f".{os.getpid()}")
        unfinished.write_text(str(size))
        unfinished.replace(known)
    return size


@functools.cache
def _tools() -> str:
    """What decides on the script besides the configuration: the package's sources and who minifies them."""
    sources = hashlib.sha256()
    for path in sorted((ROOT / PACKAGE).rglob("*.py")):
        sources.update(path.read_bytes())
    return f"{sources.hexdigest()} {version('python-minifier')} {sys.version}"


def estimated_code_bytes(cfg: Config) -> int:
    """About `code_bytes`, at once: from the size of the modules that a script of `cfg` would be made of."""
    techniques = dict.fromkeys(type(technique).__module__ for technique in _exportable(cfg).tech.values())
    return _estimate(tuple(techniques))


@functools.cache
def _estimate(techniques: tuple[str, ...]) -> int:
    modules = read_modules([*techniques, PROGRAM])
    source = b"".join(source_of(module.name).read_bytes() for module in modules)
    return round(WRAPPED_SHARE * len(lzma.compress(source)))


def _exportable(cfg: Config) -> Config:
    ours = {k: t for k, t in cfg.tech.items() if type(t).__module__.startswith(f"{PACKAGE}.")}
    model = dataclasses.replace(cfg.model, init_from=None)
    return dataclasses.replace(cfg, model=model, tech=ours)
