"""Record batches: one format for wire, disk and memory. This module is the way in; README.md has the byte map.

A batch is encoded by the producer (`encode_batch`), checked once by the broker (`check_from_producer`),
stamped (`stamp_leader`, `stamp_local`) and stored; whoever reads it back verifies (`verify`) and decodes
(`decode_batch`) the same bytes. All functions are pure and work on buffers.
"""

from __future__ import annotations

from collections.abc import Iterator

from .batch_check import RESERVED_HEADER_PREFIX, check_from_producer
from .batch_decode import RecordBatch, check_frame, decode_batch, routing_place
from .batch_encode import DEFAULT_PRIORITY, encode_batch, encode_one
from .batch_header import (
    HEADER_BYTES,
    MAGIC,
    Attributes,
    BatchHeader,
    Buffer,
    Codec,
    stamp_leader,
    stamp_local,
    verify,
    verify_body,
    verify_leader,
    verify_local,
)
from .batch_reencode import cut_out, reencode
from .columns import BinaryColumn, HeaderColumns, RoutingColumns
from .limits import MAX_PRIORITY

__all__ = [
    "DEFAULT_PRIORITY",
    "HEADER_BYTES",
    "MAGIC",
    "MAX_PRIORITY",
    "RESERVED_HEADER_PREFIX",
    "Attributes",
    "BatchHeader",
    "BinaryColumn",
    "Codec",
    "HeaderColumns",
    "RecordBatch",
    "RoutingColumns",
    "check_from_producer",
    "cut_out",
    "decode_batch",
    "encode_batch",
    "encode_one",
    "iterate_headers",
    "reencode",
    "routing_place",
    "stamp_leader",
    "stamp_local",
    "verify",
    "verify_body",
    "verify_leader",
    "verify_local",
]


def iterate_headers(view: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Yield the position and header of each of the batches that fill `view` back to back.

    Raises InvalidBatchError where the next whole batch should begin and does not.
    """
    position = 0
    while position < len(view):
        header = BatchHeader.read(view, position)
        check_frame(header, len(view) - position, position)
        yield position, header
        position += header.batch_length
