"""Variables of the public scripts of 28 April to 3 May 2026 that stand for settings together.

Sources: PRs #1908 (AWQ_LITE), #1953 (TTT_MASK), #2014 (TTT_SHORT, TRAIN_SEQ_SCHEDULE), #2020 (WD_SCHED), #2135 (TOKEN).
"""

from __future__ import annotations

from golf.foreign.env_techniques import is_off

DEFAULTS_TEXT = (
    "TTT_SHORT_SCORE_FIRST_ENABLED=0 TTT_SHORT_SCORE_FIRST_STEPS= TTT_LOCAL_LR_MULT=1 TRAIN_SEQ_SCHEDULE= "
    "TRAIN_SEQ_SCHEDULE_MODE=wallclock AWQ_LITE_ENABLED=0 AWQ_LITE_BITS=8 AWQ_LITE_GROUP_TOP_K=1 "
    "AWQ_LITE_GROUP_SIZE=64 NGRAM_TILT_ENABLED=0 TOKEN_ORDER=16 TOKEN_THRESHOLD=0.8 TOKEN_BOOST=2.625 "
    "WD_SCHEDULE_ENABLED=0 WD_SCHED_HOLD_FRAC=0.4 WD_SCHED_RAMP_FRAC=0.85 WD_SCHED_LOW_FACTOR=0.5 "
    "WD_SCHED_HIGH_FACTOR=1.75"
)
DEFAULTS: dict[str, str] = dict(pair.split("=") for pair in DEFAULTS_TEXT.split())  # those of the scripts
# Switch → the beginning of its variables' names, and the overrides.
FAMILIES = {
    "TTT_SHORT_SCORE_FIRST_ENABLED": ("TTT_SHORT_", "eval.ttt.lora_chunks=[{chunks}]"),
    "TRAIN_SEQ_SCHEDULE": ("TRAIN_SEQ_SCHEDULE", "schedule.stages=[{stages}]"),
    # Half the step of int7, and one group, which has always been one of the embedding.
    "AWQ_LITE_ENABLED": ("AWQ_LITE_", "quant.embed.finer_columns={AWQ_LITE_GROUP_SIZE}"),
    "NGRAM_TILT_ENABLED": (
        "TOKEN_",
        "eval.tilt.method=ngram eval.tilt.strength=constant eval.tilt.order=stream eval.tilt.beta={TOKEN_BOOST} "
        "eval.tilt.contexts=[{context}] eval.tilt.least_shares=[{TOKEN_THRESHOLD}] eval.tilt.least_counts=[1]",
    ),
    "WD_SCHEDULE_ENABLED": (
        "WD_SCHED",
        "schedule.weight_decay_shares=[{WD_SCHED_HOLD_FRAC},{WD_SCHED_RAMP_FRAC},1.0] "
        "schedule.weight_decay_factors=[1.0,{WD_SCHED_LOW_FACTOR},{WD_SCHED_HIGH_FACTOR}]",
    ),
}


def frontier_overrides(given: dict[str, str], lr: float = 1e-4) -> tuple[list[str], list[str]]:
    """Return the overrides for `given`, and as `NAME=value` those without a counterpart; off switches hide theirs.

    `lr` is the rate of test-time training that TTT_LOCAL_LR_MULT multiplies. Raises `ValueError` for other texts.
    """
    values, overrides, unknown = DEFAULTS | given, list[str](), list[str]()
    values["chunks"] = ",".join(f"[{int(m)},{int(n)}]" for m, n in _pairs(values["TTT_SHORT_SCORE_FIRST_STEPS"], ":"))
    stages = sorted((float(share), int(length)) for length, share in _pairs(values["TRAIN_SEQ_SCHEDULE"], "@"))
    cut = [f"{{until:{share},seq_len:{length}}}" for share, length in stages[:-1]]
    values["stages"] = ",".join([*cut, *(f"{{seq_len:{length}}}" for _, length in stages[-1:])])
    # The last of the tokens of an order is the hint.
    values["context"] = str(int(values["TOKEN_ORDER"]) - 1)
    for switch, (prefix, template) in FAMILIES.items():
        own = [f"{name}={value}" for name, value in given.items() if name == switch or name.startswith(prefix)]
        # The switch of the tilt had another meaning on 9 April, in a script without these names.
        known = any(name.startswith(prefix) for name in given) and "=[]" not in template.format(**values)
        known &= prefix != "AWQ_LITE_" or (values["AWQ_LITE_BITS"], values["AWQ_LITE_GROUP_TOP_K"]) == ("8", "1")
        known &= prefix != "TRAIN_SEQ_SCHEDULE" or values["TRAIN_SEQ_SCHEDULE_MODE"] == "wallclock"
        if not is_off(values[switch]):
            overrides += template.format(**values).split() if known else []
            unknown += [] if known else own
    if (factor := float(values["TTT_LOCAL_LR_MULT"])) != 1:
        overrides.append(f"eval.ttt.lr={lr * factor:.10g}")
    return overrides, unknown


def _pairs(text: str, mark: str) -> list[tuple[str, ...]]:
    return [tuple(part.split(mark)) for part in text.split(",") if part.strip()]
