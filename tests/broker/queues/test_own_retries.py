"""Retry policies of messages: read for what is leased, kept while it is leased, and no more than that."""

from __future__ import annotations

import numpy as np
import pytest
from tests.helpers.broker_core import batch
from tests.helpers.queue_core import QueueCore, member_of, notebook, settings, take
from tests.helpers.queue_core import settle as settle_some
from tests.helpers.queue_member import QueueMember

from tidelog.broker.delivery.backoff import Backoff, BackoffKind, RetryPolicy
from tidelog.broker.delivery.offset_set import OffsetSet, set_of
from tidelog.broker.queues.leased_batches import LeasedBatch
from tidelog.broker.queues.own_retries import OwnRetries, merge
from tidelog.broker.storage.files import MemoryFiles
from tidelog.protocol.batch import RoutingColumns, encode_batch
from tidelog.protocol.columns import RETRY
from tidelog.protocol.messages import Settling
from tidelog.protocol.retries import NO_JITTER

GROUPS = RetryPolicy(4, Backoff(BackoffKind.CONSTANT, 7, 7))
LIMITS = (2, 3)
MANY = 20_000


class CountingFile:
    """A file of which the bytes that are read are counted."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.read_bytes = 0

    def read_at(self, position: int, length: int) -> bytes:
        found = self._data[position : position + length]
        self.read_bytes += len(found)
        return found


def stored(limits: list[int], *, base: int = 1_000, ids: bool = False) -> tuple[LeasedBatch, CountingFile]:
    """A stored batch whose messages have limits of their own, 0: none."""
    retries = np.zeros(len(limits), RETRY)
    retries["max_attempts"] = limits
    dedup_ids = np.frombuffer(np.arange(2 * len(limits), dtype=np.int64).tobytes(), "V16") if ids else None
    routing = RoutingColumns(retries=retries, dedup_ids=dedup_ids)
    data = bytes(encode_batch([b"v"] * len(limits), timestamp_us=1, routing=routing))
    file = CountingFile(b"before" + data)
    held = LeasedBatch(file, 6, len(data), base, base + len(limits), True, False, True)  # pyright: ignore[reportArgumentType]
    return held, file


def limits_of(own: OwnRetries, offsets: OffsetSet) -> dict[int, list[int]]:
    """The limit of attempts that holds -> for which of some messages."""
    return {policy.max_attempts: [*said] for said, policy in own.parts(offsets, GROUPS)}


@pytest.mark.parametrize("ids", [False, True])
def test_one_message_of_a_large_batch_costs_one_row(ids: bool) -> None:
    """Of the column of 20,000 messages, each with another limit than its neighbours, 16 bytes are read, and one message
    is kept; also behind other columns."""
    held, file = stored([LIMITS[at % 2] for at in range(MANY)], ids=ids)
    own = OwnRetries()
    own.note(held, OffsetSet([7_001]))
    assert file.read_bytes == 112 + 16
    assert limits_of(own, set_of([(1_000, 21_000)]))[3] == [7_001]
    assert len(own) == 1


def test_messages_say_what_their_rows_say() -> None:
    """Over blocks, with gaps, beside messages that say nothing and such that are not leased."""
    held, _ = stored([(0, 2, 3)[at % 3] for at in range(5_000)])
    own = OwnRetries()
    leased = set_of([(1_001, 1_004), (2_047, 2_050), (5_998, 6_100)])
    own.note(held, leased)
    found = limits_of(own, leased | OffsetSet([1_100, 7_000]))
    assert found == {
        4: sorted([at for at in leased if at < 6_000 and (at - 1_000) % 3 == 0] + [*range(6_000, 6_100), 1_100, 7_000]),
        2: [at for at in leased if at < 6_000 and (at - 1_000) % 3 == 1],
        3: [at for at in leased if at < 6_000 and (at - 1_000) % 3 == 2],
    }


def test_each_message_may_say_something_else() -> None:
    """A hundred limits in a hundred messages, each found."""
    held, _ = stored([*range(1, 101)])
    own = OwnRetries()
    own.note(held, set_of([(1_000, 1_100)]))
    found = limits_of(own, set_of([(1_000, 1_100)]))
    assert found == {limit: [999 + limit] for limit in range(1, 101)}


def test_what_is_not_leased_any_more_is_forgotten() -> None:
    """Message by message, in any order; of a range of 2,000 blocks are gone with their last."""
    held, _ = stored([LIMITS[at % 2] for at in range(2_000)])
    own = OwnRetries()
    own.note(held, set_of([(1_000, 3_000)]))
    own.drop(set_of([(1_000, 2_990)]))
    own.drop(OffsetSet([2_995, 17]))
    assert [*own.offsets] == [2_990, 2_991, 2_992, 2_993, 2_994, 2_996, 2_997, 2_998, 2_999]
    own.keep(OffsetSet([2_996, 2_997]))
    assert limits_of(own, set_of([(2_900, 2_999)])) == {
        4: [*range(2_900, 2_996), 2_998],
        2: [2_996],
        3: [2_997],
    }
    own.drop(OffsetSet([2_996, 2_997]))
    assert "0 blocks" in repr(own)


def begin(count: int) -> tuple[QueueCore, QueueMember, QueueMember]:
    """A core with messages in one batch, every second of which may be tried once, and two members of two groups."""
    core = QueueCore(MemoryFiles())
    core.create("orders", 1)
    values = [b"%d" % number for number in range(count)]
    core.produce(
        core.topic("orders").partition(0), batch(*values, max_attempts=[number % 2 for number in range(count)])
    )
    book, _events = notebook(core)
    first = member_of(core, book, 1, given=settings())
    return core, first, member_of(core, book, 2, group="h", given=settings())


def kept(core: QueueCore, group: str = "g") -> int:
    """Of how many messages a group knows what they say."""
    log = core.topic("orders").partition(0).delivery.log
    assert log is not None
    own = log.own_retries.get(core.groups.named(f"default/{group}").id)
    return 0 if own is None else len(own)


def test_what_is_kept_follows_what_is_leased() -> None:
    """Of 2,000 messages with one in flight one is kept, whatever another group has; and what is settled, given back and
    expired is forgotten."""
    core, first, second = begin(2_000)
    take(core, first, 2_000)
    take(core, second, 1_000)
    assert (kept(core), kept(core, "h")) == (1_000, 500)
    settle_some(core, first, Settling.ACCEPT, range(1_901))
    assert (kept(core), kept(core, "h")) == (50, 500)
    settle_some(core, first, Settling.RETURN, range(1_901, 1_951))
    settle_some(core, first, Settling.RELEASE, range(1_951, 1_999))
    assert kept(core) == 1
    core.advance(31_000_000)
    assert (kept(core), kept(core, "h")) == (0, 0)


def test_what_is_kept_survives_a_start_and_ends_with_the_group() -> None:
    """For what is leased then; a reset and a deletion forget it."""
    core, first, _second = begin(100)
    take(core, first, 100)
    settle_some(core, first, Settling.ACCEPT, range(50))
    core = core.next_process(core.files)
    assert kept(core) == 25
    core.wait(core.groups.delete("default/g"))
    log = core.topic("orders").partition(0).delivery.log
    assert log is not None
    assert not any(log.own_retries.values())


@pytest.mark.parametrize(("said", "expected"), [(0, 0.3), (50, 0.5), (NO_JITTER, 0.0)])
def test_a_message_may_say_that_it_has_no_jitter(said: int, expected: float) -> None:
    """Which is not the same as to say nothing of it: then it is the group's."""
    row = np.zeros(1, RETRY)
    row["backoff_kind"], row["jitter_percent"] = 1, said
    group = RetryPolicy(4, Backoff(BackoffKind.CONSTANT, 7, 7, jitter=0.3))
    assert merge(row.tobytes(), group).backoff.jitter == expected
