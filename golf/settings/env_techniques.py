"""The public scripts' environment variables that select techniques, as `tech=[…]` and its settings."""

from __future__ import annotations

from collections.abc import Mapping

SELECTS = {  # any value but one that is_off selects the technique; with a field, the value is also its setting
    "XSA_LAST_N": ("xsa", "last_n"),
    "XSA_LAYERS": ("xsa", "last_n"),
    "BIGRAM_VOCAB_SIZE": ("bigram", "buckets"),
    "BIGRAM_HASH_BUCKETS": ("bigram", "buckets"),
    "BIGRAM_BUCKETS": ("bigram", "buckets"),
    "ROPE_DIMS": ("partial_rope", "dims"),
    "PARTIAL_ROPE_DIMS": ("partial_rope", "dims"),
    "LN_SCALE": ("ln_scale", ""),
    "VE_ENABLED": ("value_embed", ""),
    "GATED_ATTENTION": ("gated_attention", ""),
    "VALUE_RESIDUAL": ("value_residual", ""),
    "EMA_ENABLED": ("ema", ""),
    "SWA_ENABLED": ("swa", ""),
    "LAWA_ENABLED": ("lawa", ""),
    "QAT_ENABLED": ("fake_quant", ""),
    "QAT_LAST_FRAC": ("fake_quant", "start_fraction"),
    "SOFT_ROUND_QAT": ("soft_round", ""),
    "USE_SMEARGATE": ("smear", ""),
    "SKIP_GATES_ENABLED": ("skip_gates", ""),
    "NEGATIVE_SLOPE": ("leaky_relu", "slope"),
    "ENABLE_LOOPING_AT": ("recurrence", "enable_at"),
}
DETAILS = {  # settings of techniques that another variable selects
    "BIGRAM_DIM": ("bigram", "dim"),
    "BIGRAM_HASH_DIM": ("bigram", "dim"),
    "TRIGRAM": ("bigram", "order"),
    "ROPE_TRAIN_SEQ_LEN": ("partial_rope", "reference_len"),
    "VE_DIM": ("value_embed", "dim"),
    "VE_LAYERS": ("value_embed", "layers"),
    "EMA_DECAY": ("ema", "decay"),
    "SWA_EVERY": ("swa", "every"),
    "SWA_START_FRAC": ("swa", "start"),
    "LAWA_K": ("lawa", "count"),
    "LAWA_FREQ": ("lawa", "every"),
    "NUM_LOOPS": ("recurrence", "passes"),
    "LOOP_START": ("recurrence", "first"),
    "LOOP_END": ("recurrence", "last"),
}
LATE_QAT = {  # settings of soft rounding where SOFT_ROUND_QAT selects it, and without effect elsewhere
    "LATE_QAT_THRESHOLD": ("soft_round", "lr_threshold"),
    "QAT_THRESHOLD": ("soft_round", "lr_threshold"),
}
VALUES = {  # conversions where a script's value differs from the setting's
    "TRIGRAM": lambda value: "2" if is_zero(value) else "3",
    "QAT_LAST_FRAC": lambda value: f"{1 - float(value):g}",
    "VE_LAYERS": lambda value: f"[{value}]",
    "NUM_LOOPS": lambda value: str(int(value) + 1),  # the scripts count additional passes, the setting counts all
}
FIXED = {"USE_SMEARGATE": "tech.smear.form=keep"}  # the one of two public conventions that goes with this variable


def is_zero(value: str) -> bool:
    """Tell whether a variable's text means zero or "not given"."""
    return value in ("", "0", "0.0")


def is_off(value: str) -> bool:
    """Tell whether the text of a switch means "off"; switches that name a layer or a fraction are off at -1."""
    return is_zero(value) or value in ("-1", "-1.0")


def technique_overrides(assignments: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Return the overrides for those of `assignments` that belong to techniques, and the unused ones as `NAME=value`.

    A variable is unused if it sets a detail of a technique that none of the others selects. Those of late QAT belong in
    `assignments` only if `selects_soft_round`.
    """
    selecting = {name: value for name, value in assignments.items() if name in SELECTS and not is_off(value)}
    chosen = {SELECTS[name][0] for name in selecting}
    settings, idle = [FIXED[name] for name in selecting if name in FIXED], []
    for name, value in assignments.items():
        technique, field = SELECTS.get(name) or DETAILS.get(name) or LATE_QAT[name]
        if technique not in chosen:
            if not is_off(value):
                idle.append(f"{name}={value}")
        elif field and not (name in SELECTS and is_off(value)):
            settings.append(f"tech.{technique}.{field}={_converted(name, value)}")
    return ([f"tech=[{','.join(sorted(chosen))}]", *settings] if chosen else []), idle


def selects_soft_round(assignments: Mapping[str, str]) -> bool:
    """Tell whether `assignments` select soft rounding, whose threshold has the name of late QAT's."""
    return not is_off(assignments.get("SOFT_ROUND_QAT", "0"))


def _converted(name: str, value: str) -> str:
    try:
        return VALUES[name](value) if name in VALUES else value
    except ValueError:
        return value  # the error comes from composing the overrides, which names the setting
