"""Variables of the public scripts of 28 April to 3 May 2026 that stand for settings together."""

from __future__ import annotations

from golf.field.env_names import FAMILIES, FRONTIER
from golf.field.env_techniques import is_off


def frontier_overrides(given: dict[str, str], lr: float = 1e-4) -> tuple[list[str], list[str]]:
    """Return the overrides for `given`, and as `NAME=value` those without a counterpart; off switches hide theirs.

    `lr` is the rate of test-time training that TTT_LOCAL_LR_MULT multiplies. Raises `ValueError` for other texts.
    """
    values, overrides, unknown = FRONTIER | given, list[str](), list[str]()
    values["chunks"] = ",".join(f"[{int(m)},{int(n)}]" for m, n in _pairs(values["TTT_SHORT_SCORE_FIRST_STEPS"], ":"))
    stages = sorted((float(share), int(length)) for length, share in _pairs(values["TRAIN_SEQ_SCHEDULE"], "@"))
    cut = [f"{{until:{share},seq_len:{length}}}" for share, length in stages[:-1]]
    values["stages"] = ",".join([*cut, *(f"{{seq_len:{length}}}" for _, length in stages[-1:])])
    # The last of the tokens of an order is the hint.
    values["context"] = str(int(values["TOKEN_ORDER"]) - 1)
    for switch, family in FAMILIES.items():
        prefix, filled = family["prefix"], [override.format(**values) for override in family["overrides"]]
        own = [f"{name}={value}" for name, value in given.items() if name == switch or name.startswith(prefix)]
        # The switch of the tilt had another meaning on 9 April, in a script without these names.
        known = any(name.startswith(prefix) for name in given) and not any("=[]" in override for override in filled)
        known &= prefix != "AWQ_LITE_" or (values["AWQ_LITE_BITS"], values["AWQ_LITE_GROUP_TOP_K"]) == ("8", "1")
        known &= prefix != "TRAIN_SEQ_SCHEDULE" or values["TRAIN_SEQ_SCHEDULE_MODE"] == "wallclock"
        if not is_off(values[switch]):
            overrides += filled if known else []
            unknown += [] if known else own
    if (factor := float(values["TTT_LOCAL_LR_MULT"])) != 1:
        overrides.append(f"eval.ttt.lr={lr * factor:.10g}")
    return overrides, unknown


def _pairs(text: str, mark: str) -> list[tuple[str, ...]]:
    return [tuple(part.split(mark)) for part in text.split(",") if part.strip()]
