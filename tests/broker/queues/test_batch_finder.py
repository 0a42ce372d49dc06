"""Where the batches of a lease lie: looked up once where one is taken message by message."""

from __future__ import annotations

import gc
import weakref

import pytest
from tests.helpers.broker_core import batch
from tests.helpers.queue_core import QueueCore, member_of, notebook, settings, take
from tests.helpers.queue_core import settle as settle_some
from tests.helpers.queue_member import QueueMember

from tidelog.broker.delivery.acquiring import Choice
from tidelog.broker.delivery.offset_set import OffsetSet
from tidelog.broker.queues import batch_finder
from tidelog.broker.queues.leased_batches import LeasedBatches, find_batches
from tidelog.broker.storage.files import MemoryFiles
from tidelog.broker.storage.log import Log
from tidelog.broker.storage.reader import BatchList
from tidelog.protocol.messages import Settling

SIZE = 40
"""Messages of a batch."""


@pytest.fixture
def lookups(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Of each lookup in the log of messages the first offset that was asked for."""
    found: list[int] = []

    def noted(log: Log, choice: Choice, *, max_bytes: int, upto: int, may_wait: bool, must: bool) -> LeasedBatches:
        found.append(choice.offsets.min())
        return find_batches(log, choice, max_bytes=max_bytes, upto=upto, may_wait=may_wait, must=must)

    monkeypatch.setattr(batch_finder, "find_batches", noted)
    return found


def begin(batches: int) -> tuple[QueueCore, QueueMember]:
    """A core with batches of 40 messages, and a member of a group that reads them."""
    core = QueueCore(MemoryFiles())
    core.create("orders", 1)
    for number in range(batches):
        values = [b"%d" % (number * SIZE + at) for at in range(SIZE)]
        core.produce(core.topic("orders").partition(0), batch(*values))
    book, _events = notebook(core)
    return core, member_of(core, book, 1, given=settings())


def values(member: QueueMember) -> dict[int, str]:
    """What a member holds: offset -> message."""
    return {offset: value for held in member.held.values() for offset, value in held.left.items()}


def test_a_batch_that_is_taken_message_by_message_is_looked_up_once(lookups: list[int]) -> None:
    """Each message comes at its offset, and the next batch is looked up when it is its turn."""
    core, member = begin(3)
    for _ in range(2 * SIZE + 1):
        take(core, member, 1)
    assert values(member) == {at: f"b'{at}'" for at in range(2 * SIZE + 1)}
    assert lookups == [0, SIZE, 2 * SIZE]


def test_more_than_a_part_of_a_batch_is_looked_up(lookups: list[int]) -> None:
    """An eighth of it goes with the whole batch, and what is in another batch too is found there."""
    core, member = begin(2)
    take(core, member, 1)
    take(core, member, SIZE // 8)
    take(core, member, SIZE)
    assert sorted(values(member)) == [*range(SIZE)]
    assert lookups == [0, 1, 6]


def test_a_redelivered_message_is_found_where_it_lies(lookups: list[int]) -> None:
    """What was given back in the batch that is known is found there, in another it is looked up."""
    core, member = begin(2)
    for _ in range(SIZE + 1):
        take(core, member, 1)
    lookups.clear()
    settle_some(core, member, Settling.RETURN, [SIZE])
    take(core, member, 1)
    assert lookups == []
    settle_some(core, member, Settling.RETURN, [3])
    take(core, member, 1)
    assert lookups == [3]
    assert values(member) == {at: f"b'{at}'" for at in range(SIZE + 1)}


def test_what_is_damaged_since_is_not_taken_from_the_batch_that_is_known(lookups: list[int]) -> None:
    """It is looked up, and passed over."""
    core, member = begin(1)
    for _ in range(5):
        take(core, member, 1)
    lookups.clear()
    core.topic("orders").partition(0).log.quarantine(5, SIZE)
    take(core, member, 1)
    assert sorted(values(member)) == [0, 1, 2, 3, 4]
    assert lookups


def test_one_lane_of_ten_is_listed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every tenth of a hundred batches is found by one list, though what fits is a tenth of it; what lies further apart
    is listed place by place."""
    core, _member = begin(100)
    log, upto = core.topic("orders").partition(0).log, 100 * SIZE
    listed: list[int] = []
    batches = Log.batches

    def noted(log: Log, offset: int, end: int, *, max_bytes: int, upto: int, limit: int, may_wait: bool) -> BatchList:
        listed.append(offset)
        return batches(log, offset, end, max_bytes=max_bytes, upto=upto, limit=limit, may_wait=may_wait)

    monkeypatch.setattr(Log, "batches", noted)
    size = find_batches(log, chosen([0]), max_bytes=1 << 20, upto=upto, may_wait=True).bytes
    listed.clear()
    tenths = [*range(0, 100, 10)]
    found = find_batches(log, chosen(tenths), max_bytes=20 * size, upto=upto, may_wait=True)
    assert [one.base_offset // SIZE for one in found.batches] == tenths
    assert listed == [0]
    listed.clear()
    found = find_batches(log, chosen([0, 40, 99]), max_bytes=8 * size, upto=upto, may_wait=True)
    assert [one.base_offset // SIZE for one in found.batches] == [0, 40, 99]
    assert listed == [0, 40 * SIZE, 99 * SIZE]


def chosen(batches: list[int]) -> Choice:
    """All messages of these batches."""
    return Choice(OffsetSet(at * SIZE + each for at in batches for each in range(SIZE)))


def test_the_batch_that_is_known_keeps_no_file_open() -> None:
    """Once its segment lets go of it, it is gone."""
    core, member = begin(1)
    take(core, member, 1)
    (part,) = core.queues._at_work[core.groups.named("default/g").id].parts.values()  # pyright: ignore[reportPrivateUsage]
    known = part._finder._last  # pyright: ignore[reportPrivateUsage]
    assert known is not None
    file = known._file()  # pyright: ignore[reportPrivateUsage]
    assert file is not None
    watched = weakref.ref(file)
    del file
    core.topics.close()
    segment = part.partition.log._segments.all[0]  # pyright: ignore[reportPrivateUsage]
    segment.let_go()
    gc.collect()
    assert watched() is None
    assert known.find(part.partition.log, Choice(OffsetSet([1])), 100, must=True) is None


def test_a_batch_of_which_every_message_is_gone_is_left_out() -> None:
    """Of what was looked up only batches that hold some of the rest are kept: nothing can be cut out of the others."""
    core, _member = begin(4)
    log = core.topic("orders").partition(0).log
    chosen = OffsetSet([at + SIZE * number for number in range(4) for at in (3, SIZE - 1)])
    found = find_batches(log, Choice(chosen), max_bytes=1 << 20, upto=log.end_offset, may_wait=True)
    assert [one.base_offset for one in found.batches] == [0, SIZE, 2 * SIZE, 3 * SIZE]
    left = found.without(OffsetSet([3, SIZE + 3, 2 * SIZE - 1, 3 * SIZE + 3, 4 * SIZE - 1]))
    assert [*left.choice.offsets] == [SIZE - 1, 2 * SIZE + 3, 3 * SIZE - 1]
    assert [one.base_offset for one in left.batches] == [0, 2 * SIZE]
    assert found.without(chosen).batches == []
