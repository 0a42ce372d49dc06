"""A broker's core in which groups give up on messages, and what is in their dead-letter topics then.

giving = GivingUp(core, "orders")
giving.reject("default/g", [0, 1], error=BOOM)        # leased, then rejected; answered when that is durable
core.settle()                                         # sync rounds: intents, copies, what is done
giving.letters("orders.dlq")                          # -> [Copy(origin=(log, 0), headers=[...], ...), ...]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tests.helpers.broker_core import SECOND, Core
from tidelog.broker.deferred import Deferred, Reply, resolved
from tidelog.broker.delivery.offset_set import OffsetSet, packed_of
from tidelog.broker.groups import Group
from tidelog.broker.partition import Partition
from tidelog.broker.queues.group_partition import GroupPartition
from tidelog.protocol.batch import Codec, decode_batch
from tidelog.protocol.messages import (
    Acquire,
    AcquireReply,
    GroupSettings,
    GroupStart,
    Settle,
    SettleError,
    SettleItem,
    SettleReply,
    Settling,
)
from tidelog.protocol.messages.groups import BackoffInfo
from tidelog.protocol.offset_ranges import iter_ranges

BOOM = SettleError("ValueError", "boom", "at line 3")
MINUTE = 60 * SECOND


@dataclass(frozen=True)
class Copy:
    """One record of a dead-letter topic."""

    offset: int
    origin: tuple[int, int]
    value: bytes | None
    key: bytes | None
    headers: list[tuple[str, bytes | None]]
    priority: int
    timestamp_us: int
    codec: Codec
    producer_id: int

    @property
    def own(self) -> list[tuple[str, bytes | None]]:
        """The headers that the broker did not write."""
        return [pair for pair in self.headers if not pair[0].startswith("tidelog.")]

    def said(self, name: str) -> str:
        """Return the text of a header that the broker wrote once; empty where it did not."""
        found = [value or b"" for header, value in self.headers if header == f"tidelog.{name}"]
        assert len(found) <= 1, f"{name} stands {len(found)} times in a copy"
        return found[0].decode() if found else ""


def letter_settings(*, max_attempts: int = 4, dead_letter: bool | None = None, topic: str | None = None):
    """Return settings of a group without chance in them."""
    backoff = BackoffInfo("constant", SECOND, SECOND, jitter_percent=0)
    return GroupSettings(30 * SECOND, max_attempts, backoff, None, dead_letter, topic)


class GivingUp:
    """Groups that read one topic of a core."""

    def __init__(self, core: Core, topic: str = "orders") -> None:
        self.core = core
        self.topic = topic
        self.held: dict[int, tuple[int, int]] = {}
        """What was taken last."""
        self._number = 0

    def group(self, name: str = "g", given: GroupSettings | None = None) -> Group:
        """Return a group that reads the topic from its first message on."""
        known = self.core.groups.find(f"default/{name}")
        if known is not None and given is None:
            return known
        topic_id = self.core.topic(self.topic).id
        start = GroupStart("earliest")
        joined = self.core.groups.join(f"default/{name}", [topic_id], start=start, settings=given)
        return self.core.wait(joined).group

    def part(self, name: str = "g", partition: int = 0) -> GroupPartition:
        """Return a group in a partition."""
        return self.core.queues.part(self.group(name), self.core.topic(self.topic).id, partition)

    def take(self, name: str = "g", count: int = 100_000, *, member: int = 1) -> dict[int, tuple[int, int]]:
        """Lease what there is; offset -> (partition, lease)."""
        group, topic_id = self.group(name), self.core.topic(self.topic).id
        request = Acquire(group.id, group.generation, member, [topic_id], count, counts=True)
        reply = answered(self.core, self.core.queues.acquire(request))
        assert isinstance(reply, AcquireReply)
        found: dict[int, tuple[int, int]] = {}
        for grant in reply.grants:
            for start, end in iter_ranges(grant.ranges):
                found.update(dict.fromkeys(range(start, end), (grant.partition, grant.lease)))
        self.held = found
        return found

    def items(
        self, held: dict[int, tuple[int, int]], what: Settling, offsets: Sequence[int], error: SettleError | None = None
    ) -> list[SettleItem]:
        """Return one item for each lease."""
        topic_id = self.core.topic(self.topic).id
        by_lease: dict[tuple[int, int], list[int]] = {}
        for offset in sorted(offsets):
            by_lease.setdefault(held[offset], []).append(offset)
        return [
            SettleItem(topic_id, *lease, what, packed_of(OffsetSet(some)), delay_us=0, error=error)
            for lease, some in by_lease.items()
        ]

    def ask(self, name: str, items: Sequence[SettleItem], *, member: int = 1) -> Deferred[Reply]:
        """Settle; the answer may be pending."""
        self._number += 1
        group = self.group(name)
        found = self.core.queues.settle(Settle(group.id, group.generation, member, self._number, [*items]))
        return found if isinstance(found, Deferred) else resolved(found)

    def reject(self, name: str, offsets: Sequence[int], error: SettleError | None = BOOM) -> None:
        """Lease all that is available, reject some of it and give the rest back; until that is answered."""
        held = self.take(name)
        items = self.items(held, Settling.REJECT, offsets, error)
        items += self.items(held, Settling.RETURN, sorted(held.keys() - {*offsets}))
        reply = answered(self.core, self.ask(name, items))
        assert isinstance(reply, SettleReply)
        assert not any(reply.results), reply.results

    def reject_held(self, name: str, held: dict[int, tuple[int, int]]) -> None:
        """Reject all that was taken; until that is answered."""
        reply = answered(self.core, self.ask(name, self.items(held, Settling.REJECT, sorted(held), BOOM)))
        assert isinstance(reply, SettleReply)
        assert not any(reply.results), reply.results

    # -- what came of it -------------------------------------------------------------------------------------------

    def letters(self, topic: str | None = None, partition: int = 0) -> list[Copy]:
        """Return what is in a dead-letter topic; nothing where there is no such topic."""
        name = topic or f"{self.topic}.dlq"
        found = self.core.topics.find(f"default/{name}")
        return [] if found is None else copies(self.core, found.partition(partition))

    def origins(self, topic: str | None = None) -> list[int]:
        """Return the offsets of the messages whose copies are in a dead-letter topic, sorted; one twice stands twice."""
        return sorted(copy.origin[1] for copy in self.letters(topic))

    def counted(self, name: str = "g") -> Counter[str]:
        """Return what was counted of a group's dead letters, by short names."""
        gauges = self.core.gauges()
        names = ("dead_lettered_messages", "dropped_messages", "dead_letters_lost")
        return Counter({one: gauges[f'tidelog_queue_{one}_total{{group="{name}"}}'] for one in names})


def copies(core: Core, partition: Partition) -> list[Copy]:
    """Return every visible record of a partition."""
    found: list[Copy] = []
    for data in core.read_batches(partition):
        batch = decode_batch(data)
        logs, offsets = batch.routing.origin_logs, batch.routing.origin_offsets
        for row, offset in enumerate(batch.offsets.tolist()):
            found.append(
                Copy(
                    offset,
                    (0, 0) if logs is None or offsets is None else (int(logs[row]), int(offsets[row])),
                    batch.values[row],
                    None if batch.keys is None else batch.keys[row],
                    [] if batch.headers is None else batch.headers[row],
                    batch.header.priority,
                    int(batch.timestamps_us[row]),
                    Codec(batch.header.codec),
                    batch.header.producer_id,
                )
            )
    return found


def answered(core: Core, found: Reply | Deferred[Reply]) -> object:
    """Return the message of an answer, after the syncs that it waits for."""
    return (core.wait(found) if isinstance(found, Deferred) else found).message
