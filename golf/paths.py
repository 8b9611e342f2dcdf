"""Where things lie: the repository root and how relative paths of the configuration are meant."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def resolve(path: str) -> Path:
    """An absolute path as it is; a relative one from the current folder if it exists there, else from the root."""
    given = Path(path).expanduser()
    if given.is_absolute() or given.exists():
        return given.absolute()
    return ROOT / given
