"""How the core says something to the operator."""

from __future__ import annotations

from typing import Protocol


class Report(Protocol):
    """Tells the operator of something that no answer tells anybody: a line in the broker's log."""

    def __call__(self, event: str, **fields: str | int) -> None:
        """Report one event."""
        ...


def ignore_reports(event: str, **fields: str | int) -> None:
    """Be a `Report` that nobody reads."""
