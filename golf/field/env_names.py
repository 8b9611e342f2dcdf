"""The public scripts' environment variables by name, out of env_names.yaml, which says what each table holds."""

from __future__ import annotations

import re
from typing import Any

from golf.tables import any_of, table_of

_TABLE = table_of(__file__)
KEYS: dict[str, str] = _TABLE["settings"]
SWITCHES: dict[str, str] = _TABLE["switches"]
LORA_TARGETS: dict[str, str] = _TABLE["lora_targets"]
MASKS = {mask: set(targets) for mask, targets in _TABLE["masks"].items()}
CODECS: dict[str, tuple[str, int]] = _TABLE["codecs"]
LORA_ONLY, APRIL_LORA, QUANT = set(_TABLE["lora_only"]), set(_TABLE["april_lora"]), set(_TABLE["quant"])
SAME_HERE, OFF_AT_ZERO = set(_TABLE["same_here"]), set(_TABLE["off_at_zero"])
NEVER_READ, LATE_QAT, NOT_THE_MODEL = _TABLE["never_read"], _TABLE["late_qat"], _TABLE["not_the_model"]
NOT_SETTINGS, MACHINE = any_of(_TABLE["not_settings"]), any_of(_TABLE["machine"])
APRIL_DEFAULTS: dict[str, str] = _TABLE["april_defaults"]
FAMILIES: dict[str, dict[str, Any]] = _TABLE["frontier"]
FRONTIER = {"TTT_LOCAL_LR_MULT": "1"} | {key: value for f in FAMILIES.values() for key, value in f["defaults"].items()}
HESSIAN_CLIP = "HESSIAN_CLIP_LAMBDA"  # in scripts with GPTQ and clips in deviations (record 04-06)
FP16_GATES = "quant.by_name={*attn_gate.weight:fp16}"
GATES = "GATED_ATTN_QUANT_GATE"  # stores the gates as int8 by each row's maximum
# Variables that the translation knows by their names.
OTHERS = {"TTT_ENABLED", "TTT_WARM_START_A", "TTT_MASK", "EMBED_BITS", "COMPRESSOR", GATES}
OTHERS |= {*LORA_TARGETS, *QUANT, *FRONTIER}
NEUTRAL = {"ASYM_LOGIT_RESCALE": "its two caps start at the one cap, and nothing trains them"}
ABSENT_AT_ZERO = {"MLP_HIDDEN"}  # variables whose 0 means "not given" in the scripts
# Names of switches: what stands for … is the beginning of the names of what they switch.
SWITCH = re.compile(r"(?:USE|ENABLE)_(\w+)|(\w+?)(?:_HASH)?_(?:ENABLED|ON)|(\w+)_HASH")


def switched_by(name: str) -> str:
    """Return the beginning of the names of the variables that the switch `name` governs; empty for no switch."""
    match = SWITCH.fullmatch(name)
    return next(filter(None, match.groups()), "") if match else ""
