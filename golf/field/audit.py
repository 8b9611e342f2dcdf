"""The result of an audit of a submission, by weight."""

from __future__ import annotations

from dataclasses import dataclass, field


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
