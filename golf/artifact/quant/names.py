"""Names of control parameters. They are those of the public scripts."""

from golf.registry import technique_types

CONTROL_PATTERNS = ("attn_scale", "mlp_scale", "resid_mix", "q_gain", "skip_weight")


def is_control(name: str) -> bool:
    """Tell whether a parameter is a control parameter: a gain or scale, which may be 2-D like `resid_mix`."""
    of_techniques = (pattern for kind in technique_types().values() for pattern in kind.control_names)  # type: ignore[attr-defined]
    return any(pattern in name for pattern in (*CONTROL_PATTERNS, *of_techniques))
