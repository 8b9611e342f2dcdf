"""Identity of a variant: a hash over every setting that can change the result.

The hash leaves out the seed (it makes a variant a run), the groups `launch` (processes, device, logging), `cluster`,
`rules`, `track` and `sweep`, notes, and every `name`, which is only a label. A dropped technique counts as never
selected. Values are typed by the schema, so `1` and `1.0`, or `2e-2` and `.02`, give one id.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any

from golf.settings.config import Config, to_dict

NOT_IDENTITY_GROUPS = ("cluster", "launch", "rules", "track", "sweep", "drop")
# Of these, small_tensor only sets quant.small_numel.
NOT_IDENTITY_FIELDS = ("seed", "name", "note", "expect", "tag", "tags", "small_tensor")
ADDED_LATER = (".scale_floor",)  # null means the behaviour before the setting existed, so ids stay the same


def identity(cfg: Config) -> dict[str, Any]:
    """Return the settings that make the variant as flat `group.key: value`, sorted by key."""
    return identity_of(to_dict(cfg))


def identity_of(values: dict[str, Any]) -> dict[str, Any]:
    """Return the identity from a configuration's plain dict, such as a config.json that an older version wrote."""
    groups = {k: v for k, v in values.items() if k not in (*NOT_IDENTITY_GROUPS, *NOT_IDENTITY_FIELDS)}
    fields = flat(groups, left_out=NOT_IDENTITY_FIELDS)
    return dict(sorted((key, value) for key, value in fields if value is not None or not key.endswith(ADDED_LATER)))


def flat(
    values: dict[str, Any], prefix: str = "", *, left_out: Sequence[str] = (), joint: str = "."
) -> Iterator[tuple[str, Any]]:
    """Yield (`group.key`, value) of every field in a nested dict, without fields of a name in `left_out`."""
    for key, value in values.items():
        if key in left_out:
            continue
        if isinstance(value, dict) and value:
            yield from flat(value, f"{prefix}{key}{joint}", left_out=left_out, joint=joint)
        else:
            yield f"{prefix}{key}", value


def variant_id(cfg: Config) -> str:
    """Return eight hex digits, the same for every run of a variant."""
    # Sorted and without spaces, so that equal settings always give the same text.
    return hashlib.sha256(json.dumps(identity(cfg), separators=(",", ":")).encode()).hexdigest()[:8]
