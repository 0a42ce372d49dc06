"""Limits that both sides of a connection know, each with its default and its reason.

The broker's own values come from its configuration and are told in the Hello reply; a client uses what it is told.
Zero means zero, never "unlimited".
"""

from __future__ import annotations

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * KIB

MAX_FRAME_BYTES = 64 * MIB
"""A frame above this is refused on its first four bytes, before anything is allocated for it."""

FRAME_MARGIN_BYTES = 64 * KIB
"""What a frame needs besides its batch: `max_batch_bytes` stays this far below `max_frame_bytes`."""

MAX_MESSAGE_BYTES = 16 * MIB
"""Key, value and headers of one message together."""

MAX_BATCH_BYTES = 32 * MIB
"""A whole stored batch, header included."""

MAX_BATCH_PAYLOAD_BYTES = 48 * MIB
"""The payload columns of one batch after decompression; what a consumer must be able to hold."""

MAX_PRIORITY = 9
"""Of a message: 0 is served last, 9 first."""

MAX_DECOMPRESSION_RATIO = 10_000
"""A block that would grow by more than this is refused as a decompression bomb."""

MAX_RECORDS_PER_BATCH = 1_000_000

MAX_DEDUP_IDS_PER_REQUEST = 65_536
"""Records of batches with dedup ids in one produce request: a broker looks them up on its loop, at some 0.5 us each."""

MAX_HEADERS_PER_MESSAGE = 10_000
MAX_HEADER_NAME_BYTES = 64 * KIB - 1

MAX_UNAUTHENTICATED_BYTES = 8 * KIB
"""What a connection may send before its Hello succeeds."""

HELLO_TIMEOUT_US = 10_000_000
"""How long a connection may take to say Hello."""

MAX_CONTROL_BYTES = 4 * MIB
"""Control structs are small; a metadata reply for thousands of partitions is the largest."""

PAGE_BYTES = MIB
"""When a reply that can be gone on with is full: what is added last may go beyond it, and encoding it all takes a
broker's loop a few milliseconds."""

MAX_REQUESTS_IN_FLIGHT = 256
"""Unanswered requests of one connection; then the broker stops reading from it."""

MAX_PRODUCES_IN_FLIGHT = 32
"""Unanswered produce batches of one client and partition; below what the broker remembers, so a repeat is known."""

REMEMBERED_BATCHES = 64
"""Batches per producer and partition whose receipts the broker keeps for repeats."""

MAX_WAIT_US = 60_000_000
"""The longest one Fetch may wait in the broker; a client that waits longer asks again."""

MAX_DELAY_US = 365 * 86_400 * 1_000_000
"""The longest a message may be kept waiting: nobody means more."""

MIN_VISIBILITY_TIMEOUT_US = 1_000_000
"""Clients renew every third of it: below a second a busy machine loses leases that it holds."""

MAX_LEASE_US = 12 * 3600 * 1_000_000
"""The longest visibility timeout, and as long as a lease may be extended at once: who holds a message for longer has it
hidden from everybody. The limit of SQS too."""

MAX_NAME_BYTES = 256
"""Client, producer and topic names on the wire."""

MAX_ATTEMPTS = (1 << 16) - 1
"""How often a message may be tried at most: what a record has room for."""

MAX_BACKOFF_MS = (1 << 32) - 1
"""The longest wait of a backoff, 49.7 days: what a record has room for."""

MAX_BACKOFF_MULTIPLIER = 1_000
"""More is no growth but a jump to the longest wait: a slip."""

MAX_JITTER_PERCENT = 100
"""A wait cannot be shortened by more than itself."""


NO_LIMIT = -1
"""As `max_in_flight` of a group: none, also where the broker's default is one."""


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """What one record batch may be; `max_message_bytes` is per record, the others per batch."""

    max_message_bytes: int = MAX_MESSAGE_BYTES
    max_batch_bytes: int = MAX_BATCH_BYTES
    max_payload_bytes: int = MAX_BATCH_PAYLOAD_BYTES
