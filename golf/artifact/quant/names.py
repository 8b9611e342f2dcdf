"""Names of control parameters. They are those of the public scripts, and those that the selected techniques declare."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from golf.registry import technique_types

CONTROL_PATTERNS = ("attn_scale", "mlp_scale", "resid_mix", "q_gain", "skip_weight")


def is_control(name: str, tech: Mapping[str, Any] | None = None) -> bool:
    """Tell whether a parameter is a control parameter: a gain or scale, which may be 2-D like `resid_mix`.

    `tech` are the selected techniques, as in `Config.tech`. None means that they are not known, as for the files of
    public scripts: then the names of every technique count.
    """
    if any(pattern in name for pattern in CONTROL_PATTERNS):
        return True
    selected: Mapping[str, Any] = technique_types() if tech is None else tech
    return any(fnmatchcase(name, pattern) for technique in selected.values() for pattern in technique.control_names)
