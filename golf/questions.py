"""Questions to which an exported script has another answer than the framework, and so no code for what they guard.

The framework always gets the answers below. `golf.artifact.script` knows those of a script.
"""

from __future__ import annotations

from typing import TypeGuard, TypeVar

Listener = TypeVar("Listener")


def has_techniques() -> bool:
    """Tell whether techniques may act: not in a script of a run that selects none."""
    return True


def has_routes() -> bool:
    """Tell whether a technique may visit the blocks in an order of its own."""
    return True


def is_used(slot: str) -> bool:
    """Tell whether techniques may use the attribute `slot` of a model: not in a script that names it nowhere else."""
    return bool(slot)


def listens(listener: Listener | None) -> TypeGuard[Listener]:
    """Tell whether there is a listener: checkpoints, recompilations and proofs are the framework's alone."""
    return listener is not None


def proves() -> bool:
    """Tell whether settings, techniques and own code are checked: those of a script were before its export."""
    return True
