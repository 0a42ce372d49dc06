"""The root of all errors; `errors` has the tree."""

from __future__ import annotations

from typing import ClassVar

Detail = str | int | float | bool | None
"""What may stand in `TidelogError.details`: plain data that MessagePack carries unchanged."""


class TidelogError(Exception):
    """Base of every error that tidelog raises on purpose."""

    code: ClassVar[str] = "TIDELOG_ERROR"
    number: ClassVar[int] = 0
    retriable: ClassVar[bool] = False

    def __init__(self, message: str, **details: Detail) -> None:
        super().__init__(message)
        self.message = message
        self.details: dict[str, Detail] = details

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.message, self.details)


def _rebuild(kind: type[TidelogError], message: str, details: dict[str, Detail]) -> TidelogError:
    """Make an unpickled error: keyword details do not survive `Exception.__reduce__` by themselves."""
    return kind(message, **details)
