"""What an inspection found."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class Severity(Enum):
    """How bad a finding is."""

    DAMAGE = "damage"
    """Something that was stored cannot be read as it was stored."""
    NOTE = "note"
    """Nothing is lost: caches that are made again, a write that was cut off before it was acknowledged, strays."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found at one path; `start`..`end` are the offsets concerned, `end` exclusive, where it has some."""

    severity: Severity
    path: str
    text: str
    start: int | None = None
    end: int | None = None


@dataclass(slots=True)
class Findings:
    """All of them, and how much was read."""

    found: list[Finding] = field(default_factory=list[Finding])
    logs: int = 0
    segments: int = 0
    batches: int = 0
    records: int = 0
    bytes: int = 0

    @property
    def damages(self) -> list[Finding]:
        """Those that mean that something is lost."""
        return [finding for finding in self.found if finding.severity is Severity.DAMAGE]

    def damage(self, path: str, text: str, start: int | None = None, end: int | None = None) -> None:
        """Note a loss."""
        self.found.append(Finding(Severity.DAMAGE, path, text, start, end))

    def note(self, path: str, text: str) -> None:
        """Note something harmless."""
        self.found.append(Finding(Severity.NOTE, path, text))
