"""What all control structs share, and the one that carries an error."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ..dedup_id import DEDUP_ID_BYTES
from ..errors import Detail, TidelogError, error_from_wire
from ..limits import MAX_NAME_BYTES

Offset = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
PartitionIndex = Annotated[int, msgspec.Meta(ge=0, lt=1 << 30)]
TopicId = Annotated[int, msgspec.Meta(ge=1, lt=1 << 31)]
ByteCount = Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]
DurationUs = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
TimeUs = Annotated[int, msgspec.Meta(ge=-(1 << 62), lt=1 << 62)]
DedupIdBytes = Annotated[bytes, msgspec.Meta(min_length=DEDUP_ID_BYTES, max_length=DEDUP_ID_BYTES)]
Name = Annotated[str, msgspec.Meta(max_length=MAX_NAME_BYTES)]


class Message(msgspec.Struct, array_like=True, gc=False):
    """A control struct: an array on the wire; nobody changes one after making it."""


class ErrorInfo(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """An error on the wire: number (see the error table), message, details."""

    number: int
    message: str
    details: dict[str, Detail] = {}

    @classmethod
    def of(cls, error: TidelogError) -> ErrorInfo:
        """Return the wire form of an error."""
        return cls(error.number, error.message, error.details)

    def error(self) -> TidelogError:
        """Return the typed error."""
        return error_from_wire(self.number, self.message, self.details)
