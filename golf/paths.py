"""The repository root, the meaning of relative paths in the configuration, and the user's cache folder."""

import os
from pathlib import Path

# An exported script may stand in the root of a disk, which has no second parent.
ROOT = Path(__file__).resolve().parent.parent


def resolve(path: str) -> Path:
    """Return an absolute path. A relative one starts at the current folder if it exists there, else at the root."""
    given = Path(path).expanduser()
    return given.absolute() if given.is_absolute() or given.exists() else ROOT / given


def user_cache() -> Path:
    """Return the folder for files that can be recomputed: XDG_CACHE_HOME/golf or ~/.cache/golf."""
    # By the XDG specification an empty variable counts as unset, hence `or` instead of a default.
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "golf"


def import_variables(root: Path = ROOT) -> dict[str, str]:
    """Return environment variables with which a new Python imports golf from `root`, whatever the current directory."""
    path = os.pathsep.join(filter(None, (str(root), os.environ.get("PYTHONPATH"))))
    # `python -m` looks into the current directory first, which may be another checkout with a golf of its own.
    return {"PYTHONPATH": path, "PYTHONSAFEPATH": "1"}
