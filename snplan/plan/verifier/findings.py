"""What the verifier reports, and the list that it collects reports in."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One broken rule: its letter (docs/plan-file.md), where ("action 12", "buffer 3", ...), and what."""

    rule: str
    where: str
    message: str

    def __str__(self) -> str:
        return f"{self.rule} at {self.where}: {self.message}"


@dataclass(slots=True, kw_only=True)
class Findings:
    """Findings in the order in which they are met; those after the first `limit` are only counted.

    One wrong edit of a long plan can break every later action, and nobody reads a million lines.
    """

    limit: int
    kept: list[Finding] = field(default_factory=list)
    count: int = 0

    def add(self, rule: str, where: str, message: str) -> None:
        """Report a broken rule."""
        self.count += 1
        if len(self.kept) < self.limit:
            self.kept.append(Finding(rule=rule, where=where, message=message))

    def at(self, action: int, rule: str, message: str) -> None:
        """Report a rule that an action breaks."""
        self.add(rule, f"action {action}", message)
