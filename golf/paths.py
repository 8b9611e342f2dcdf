"""Where things lie: the repository root and how relative paths of the configuration are meant."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def resolve(path: str) -> Path:
    """An absolute path as it is; a relative one from the current folder if it exists there, else from the root."""
    given = Path(path).expanduser()
    if given.is_absolute() or given.exists():
        return given.absolute()
    return ROOT / given


def user_cache() -> Path:
    """Where things are remembered that can be made again, XDG_CACHE_HOME/golf or ~/.cache/golf."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "golf"
