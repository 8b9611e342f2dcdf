"""Which variant a configuration is: a hash over everything that can change the result.

Left out are the seed (it makes a variant a run), the `launch` group (processes, device, logging), notes, and every
`name`, which is only a label. Values are typed by the schema, so `1`, `1.0` and `2e-2`, `.02` give one id.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from golf.config import Config, to_dict

NOT_IDENTITY_GROUPS = ("launch",)
NOT_IDENTITY_FIELDS = ("seed", "name", "note", "tag")


def identity(cfg: Config) -> dict[str, Any]:
    """Flat `group.key: value` of what makes the variant, sorted by key."""
    flat: dict[str, Any] = {}
    for key, value in to_dict(cfg).items():
        if key in NOT_IDENTITY_GROUPS or key in NOT_IDENTITY_FIELDS:
            continue
        for inner, setting in value.items():
            if inner not in NOT_IDENTITY_FIELDS:
                flat[f"{key}.{inner}"] = setting
    return dict(sorted(flat.items()))


def variant_id(cfg: Config) -> str:
    """Eight hex digits, the same for every run of a variant."""
    canonical = json.dumps(identity(cfg), separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:8]
