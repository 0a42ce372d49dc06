"""The bytes of values, keys and headers, from what callers give."""

from __future__ import annotations

from typing import cast

from .arguments import encoded

Data = bytes | bytearray | memoryview | str | None
"""What a value or a key may be: bytes-like, text (sent as UTF-8), or None (null, which is not the same as empty)."""

_BYTES = frozenset("Bbc")
"""Formats of a buffer whose items are bytes. Of anything else, such as numpy's numbers, the bytes are how this machine
happens to hold it in memory, which no reader can know; whoever means them writes `memoryview(array)`."""


def to_bytes(data: Data, name: str) -> bytes | None:
    """Return a value or key as it is sent. Raises TypeError that says what to do with other types."""
    if data is None or type(data) is bytes:
        return data
    if isinstance(data, str):
        return encoded(data, name)
    if isinstance(data, bytes | bytearray | memoryview):  # pyright: ignore[reportUnnecessaryIsInstance]
        return bytes(data)
    view = byte_view(cast("object", data))
    if view is None:
        raise TypeError(
            f"{name}: expected bytes, str or None, found {_kind(data)}; "
            "encode it first, or give a codec=, such as tidelog.codecs.Json()"
        )
    return bytes(view)


def byte_view(data: object) -> memoryview | None:
    """Return a buffer of bytes in one row; None for what is none."""
    try:
        view = memoryview(cast("bytes", data))
    except (TypeError, ValueError, BufferError):  # no buffer; released, or of a type that no buffer has
        return None
    is_row = view.ndim == 1 and getattr(data, "ndim", 1) == 1  # a datetime64 shows itself as a row of 8 bytes
    return view if is_row and view.format.lstrip("@=<>!") in _BYTES else None


def _kind(data: object) -> str:
    kind = type(data)
    return kind.__name__ if kind.__module__ != "numpy" else f"numpy.{kind.__name__}"
