"""The token of a leased message: what another process needs to settle it.

    u8 version | u32 group id | u32 generation | u32 topic id | u32 partition | u64 lease | u64 offset | u32 crc32

as base64 for URLs, without padding: 50 characters that a shell takes as they are. The checksum is against slips of
the hand; a lease that ended is refused by the broker.
"""

from __future__ import annotations

import binascii
import struct
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import NamedTuple

_LAYOUT = struct.Struct("<BIIIIQQ")
_CHECK = struct.Struct("<I")
_VERSION = 1


class LeaseToken(NamedTuple):
    """Which message of which lease."""

    group_id: int
    generation: int
    topic_id: int
    partition: int
    lease: int
    offset: int

    def text(self) -> str:
        """Return it as users see it."""
        data = _LAYOUT.pack(_VERSION, *self)
        return urlsafe_b64encode(data + _CHECK.pack(binascii.crc32(data))).rstrip(b"=").decode()

    @classmethod
    def parse(cls, text: str) -> LeaseToken:
        """Read one. Raises TypeError or ValueError."""
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"token: expected a message's lease_token, found {text!r}")
        try:
            data = urlsafe_b64decode(text + "=" * (-len(text) % 4))
        except (ValueError, binascii.Error):
            data = b""
        body, check = data[: _LAYOUT.size], data[_LAYOUT.size :]
        is_whole = len(body) == _LAYOUT.size and check == _CHECK.pack(binascii.crc32(body)) and body[0] == _VERSION
        if is_whole:
            token = cls(*_LAYOUT.unpack(body)[1:])
            if token.text() == text:  # base64 says the last bits in several ways, and passes over what is not its own
                return token
        raise ValueError(f"token: expected a message's lease_token, found {text[:80]!r}")
