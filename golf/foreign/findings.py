"""What an audit of a submission has found, by weight."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Audit:
    """Sentences. The first three kinds are faults; `unchecked` says what nobody looked at."""

    against_rules: list[str] = field(default_factory=list)  # over a budget, or scored on another text
    unusable: list[str] = field(default_factory=list)  # missing or unreadable
    untrue: list[str] = field(default_factory=list)  # claims that the logs, the script or one another contradict
    look_at: list[str] = field(default_factory=list)  # may well be right: only a person can tell
    in_order: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    scored: tuple[int, float] | None = None  # tokens of the text that the logs scored, and the bytes that follow

    @property
    def faults(self) -> list[str]:
        """The gravest first."""
        return [*self.against_rules, *self.unusable, *self.untrue]
