"""The result of an audit of a submission, by weight, and lists in its sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

LONGEST_LIST = 4  # items that a sentence names


@dataclass
class Audit:
    """Sentences about a submission. The first three lists are faults."""

    against_rules: list[str] = field(default_factory=list)  # over a budget, or scored on another text
    unusable: list[str] = field(default_factory=list)  # missing or unreadable files
    untrue: list[str] = field(default_factory=list)  # claims that the logs, the script or one another contradict
    look_at: list[str] = field(default_factory=list)  # oddities that only a person can judge
    in_order: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)  # parts that no check covers
    scored: tuple[int, float] | None = None  # tokens that the logs scored, and the bytes that loss and bpb imply

    @property
    def faults(self) -> list[str]:
        """All faults, the gravest first."""
        return [*self.against_rules, *self.unusable, *self.untrue]


def shown(items: Sequence[object]) -> str:
    """Return the first items and the number of the others, such as `a, b, c, d and 2 more`."""
    listed = ", ".join(str(item) for item in items[:LONGEST_LIST])
    return listed + (f" and {len(items) - LONGEST_LIST} more" if len(items) > LONGEST_LIST else "")


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, such as `1 log` or `3 logs`."""
    return f"{number} {noun}" + ("" if number == 1 else "s")
