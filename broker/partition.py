"""One partition: the only owner of its log of messages.

SKELETON: the signatures are settled, the bodies follow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from ..protocol.durability import Durability
from ..protocol.messages import BatchResult, FetchPosition, FetchResult, OffsetAnswer, OffsetQuery, PartitionInfo
from .deferred import Deferred
from .storage.log import FileSlice


class Wake(Enum):
    """Why a watcher is called."""

    VISIBLE = "visible"
    """There may be more to read."""
    CHANGED = "changed"
    """The topic's settings or partitions changed."""
    GONE = "gone"
    """The topic was deleted; the watch is over."""


@dataclass(frozen=True, slots=True)
class Produced:
    """What became of one request's batches, one result each, and what is promised for those stored."""

    durability: Durability
    results: list[BatchResult]


@dataclass(frozen=True, slots=True)
class Fetched:
    """One position's answer and the stored bytes that belong to it (`result.bulk_bytes` in all)."""

    result: FetchResult
    bulk: Sequence[FileSlice] = ()

    @property
    def is_answer(self) -> bool:
        """Whether the reader must hear of it now: batches, an error, or batches passed over."""
        raise NotImplementedError


class Watch:
    """A long poll's registration at one partition."""


class Partition:
    """Appends, reads, waits and lookups of one partition. No method blocks or raises for a peer's fault unless said."""

    topic_id: int
    index: int

    @property
    def start_offset(self) -> int:
        """The first offset retained."""
        raise NotImplementedError

    @property
    def visible_offset(self) -> int:
        """One past the last record that consumers may see: as durable as the topic asks for."""
        raise NotImplementedError

    def produce(self, bulk: memoryview, *, durability: int = 0, max_wait_us: int = 0) -> Produced | Deferred[Produced]:
        """Check and append the batches in `bulk` (writable: it is stamped in place), in order.

        `bulk` is kept until the answer is there. A refused batch and those after it have an error in their result.
        A deferred fails with OverloadedError, UnknownTopicIdError or LogFencedError when nothing was stored.
        """
        raise NotImplementedError

    def fetch(
        self, position: FetchPosition, *, max_bytes: int, timestamps: tuple[int, int] | None = None
    ) -> Fetched | Deferred[Fetched]:
        """Read whole stored batches from a position, at least one if there is any; errors are in the result.

        Deferred only with `timestamps`, when headers must be read from the disk.
        """
        raise NotImplementedError

    def verify(self, position: FetchPosition, *, max_bytes: int) -> Deferred[Fetched]:
        """As `fetch`, after every checksum of what would be sent was checked in a worker; damage is quarantined."""
        raise NotImplementedError

    def watch(self, woken: Callable[[Wake], None]) -> Watch:
        """Call `woken` whenever there may be more to read or the topic changes, until `unwatch`."""
        raise NotImplementedError

    def unwatch(self, watch: Watch) -> None:
        """End a watch; nothing happens when it has ended."""
        raise NotImplementedError

    def offsets(self, query: OffsetQuery) -> OffsetAnswer | Deferred[OffsetAnswer]:
        """Answer one lookup; errors are in the answer."""
        raise NotImplementedError

    def get(self, offset: int) -> Sequence[FileSlice]:
        """Return the one stored batch that holds a visible record. Raises NotFoundError, CorruptError."""
        raise NotImplementedError

    def info(self, leader: str, *, details: bool = False) -> PartitionInfo:
        """Describe the partition."""
        raise NotImplementedError
