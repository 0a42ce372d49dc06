"""Who is at the other end, before it has greeted: a broker that is cut short, or something else altogether."""

from __future__ import annotations

from ...protocol.api import Api
from ...protocol.errors import CannotConnectError, NotATidelogBrokerError, TidelogError
from ...protocol.frames import Flags

_LENGTH_BYTES = 4
_REPLY = (Api.HELLO.to_bytes(2, "little") + b"\x01", (Flags.REPLY, Flags.REPLY | Flags.ERROR))


def cut_short(address: str, head: bytes, how: str) -> TidelogError:
    """Return the error for a peer that said only `head` before its silence or its close (`how`)."""
    if not head:
        return cannot_reach(address, how)
    if _may_be_reply(head):
        return cannot_reach(address, f"{how} in the middle of its greeting")
    return NotATidelogBrokerError(f"not a tidelog broker at {address} (got {_printable(head)})")


def cannot_reach(address: str, reason: str) -> CannotConnectError:
    """Return the error for an address where no broker answers."""
    return CannotConnectError(f"cannot reach {address} ({reason}). Is it running? tidelog serve", address=address)


def _may_be_reply(head: bytes) -> bool:
    """Whether this can be how the answer to a Hello begins."""
    start, flags = _REPLY
    said = head[_LENGTH_BYTES:]
    if len(head) < _LENGTH_BYTES:
        return not head.isascii() or not head.decode().isprintable()
    return start.startswith(said[:3]) if len(said) < 4 else said[:3] == start and said[3] in flags


def _printable(data: bytes) -> str:
    line = data.split(b"\n")[0].split(b"\r")[0]
    return line.decode() if line.isascii() and line.decode().isprintable() else repr(data)
