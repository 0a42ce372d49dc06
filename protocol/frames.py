"""One frame, as bytes.

    off size field
      0   4  length          of all that follows this field
      4   2  api             protocol.api.Api
      6   1  version         of the control struct; 1 now
      7   1  flags           bit 0: a reply; bit 1: the control is an ErrorInfo (replies only); others must be 0
      8   4  correlation_id  chosen by the asker, echoed in the reply
     12   4  control_length
     16      control: MessagePack of one array-like struct, then bulk: record batches, back to back, to the frame's end

Little endian. Pure functions; `connection` keeps the buffers.
"""

from __future__ import annotations

import struct
from enum import IntFlag

import msgspec

from .errors import FrameTooLargeError, ProtocolError
from .limits import MAX_CONTROL_BYTES

LENGTH_BYTES = 4
HEADER_BYTES = 16
VERSION = 1
MAX_CORRELATION_ID = 0xFFFF_FFFF

_HEADER = struct.Struct("<IHBBII")
_LENGTH = struct.Struct("<I")


class Flags(IntFlag):
    """Bits of the flags byte."""

    NONE = 0
    REPLY = 1
    ERROR = 2


# Plain numbers for what is asked of every frame: a bit test with an IntFlag takes about 1 us.
_REPLY = int(Flags.REPLY)
_ERROR = int(Flags.ERROR)
_UNKNOWN = ~(_REPLY | _ERROR)


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One received frame. `control` and `bulk` are views into the receive buffer: valid until it is advanced."""

    api: int
    version: int
    flags: int
    correlation_id: int
    control: memoryview
    bulk: memoryview

    @property
    def is_reply(self) -> bool:
        """Whether this answers a request."""
        return self.flags & _REPLY != 0

    @property
    def is_error(self) -> bool:
        """Whether the control is an `ErrorInfo`."""
        return self.flags & _ERROR != 0


def encode_head(api: int, flags: int, correlation_id: int, control: bytes, bulk_bytes: int) -> bytes:
    """Return a frame up to its bulk: header and control. `bulk_bytes` of batches follow as the caller sends them."""
    length = HEADER_BYTES - LENGTH_BYTES + len(control) + bulk_bytes
    return _HEADER.pack(length, api, VERSION, flags, correlation_id, len(control)) + control


def frame_bytes(buffer: memoryview, max_frame_bytes: int) -> int | None:
    """Return the whole frame's size once its length field is there, else None.

    Raises FrameTooLargeError or ProtocolError for a length that no frame of this connection can have.
    """
    if len(buffer) < LENGTH_BYTES:
        return None
    (length,) = _LENGTH.unpack_from(buffer)
    if length + LENGTH_BYTES > max_frame_bytes:
        raise FrameTooLargeError(
            f"expected a frame of at most {max_frame_bytes} bytes, found one that announces {length + LENGTH_BYTES}"
            f" (first bytes {bytes(buffer[:16])!r})",
            limit=max_frame_bytes,
            found=length + LENGTH_BYTES,
        )
    if length < HEADER_BYTES - LENGTH_BYTES:
        raise ProtocolError(f"expected a frame of at least {HEADER_BYTES} bytes, found {length + LENGTH_BYTES}")
    return length + LENGTH_BYTES


def decode_frame(buffer: memoryview) -> Frame:
    """Read one whole frame (`buffer` is exactly that frame). Raises ProtocolError."""
    _, api, version, flags, correlation_id, control_length = _HEADER.unpack_from(buffer)
    room = len(buffer) - HEADER_BYTES
    if control_length > min(room, MAX_CONTROL_BYTES):
        raise ProtocolError(
            f"expected a control of at most {min(room, MAX_CONTROL_BYTES)} bytes, found {control_length}"
        )
    if flags & _UNKNOWN:
        raise ProtocolError(f"expected flags 0..3, found {flags}")
    if api == 0:
        raise ProtocolError("expected an api number, found 0")
    body = HEADER_BYTES + control_length
    return Frame(api, version, flags, correlation_id, buffer[HEADER_BYTES:body], buffer[body:])
