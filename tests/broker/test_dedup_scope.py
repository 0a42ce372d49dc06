"""An id that is unique in a whole topic: each partition takes those that lead to it, by the partitions there are."""

from __future__ import annotations

import pytest
import xxhash
from tests.helpers.broker_core import Core, batch, errors_of
from tests.helpers.deduping import shown

from tidelog.protocol.dedup_id import hash_dedup_id
from tidelog.protocol.errors import TopicChangedError

IDS = [b"%d" % at for at in range(40)]


def ids_of(partition: int, partitions: int) -> list[bytes]:
    """Return those of some ids that lead to a partition."""
    return [one for one in IDS if xxhash.xxh3_64_intdigest(hash_dedup_id(one)) % partitions == partition]


@pytest.mark.parametrize("partitions", [1, 4])
def test_a_partition_takes_its_own_ids(partitions: int) -> None:
    """And records without one, which any partition takes."""
    core = Core()
    topic = core.create("t", partitions=partitions, settings={"dedup_scope": "topic"})
    for index, partition in enumerate(topic.partitions):
        mine = ids_of(index, partitions)
        results = core.produce(partition, batch(*mine, b"none", ids=[*mine, None]))
        assert shown(results) == [(0, len(mine) + 1, [])]


def test_an_id_of_another_partition_is_refused_with_what_comes_behind_it() -> None:
    """Nothing of the request's rest is stored, its sequence is free, and it says how many partitions there are."""
    core = Core()
    topic = core.create("t", partitions=4, settings={"dedup_scope": "topic"})
    partition = topic.partitions[1]
    identity = core.init_producer()
    mine, foreign = ids_of(1, 4), ids_of(2, 4)
    of = {"producer": identity.producer_id, "epoch": identity.epoch}
    first, second = batch(b"0", ids=[foreign[0]], **of), batch(b"1", ids=[mine[0]], sequence=1, **of)
    results = core.wait(core.send(partition, first, second)).results
    assert errors_of(results) == [TopicChangedError, TopicChangedError]
    assert results[0].error is not None
    assert results[0].error.error().details == {"partition": 1, "partitions": 4}
    assert results[0].error.error().retriable
    (stored,) = core.produce(partition, batch(b"1", ids=[mine[0]], sequence=0, **of))
    assert stored.error is None
    assert core.read(partition) == [b"1"]


def test_an_id_is_not_stored_twice_by_one_who_knows_fewer_partitions() -> None:
    """After partitions were added the old place of an id refuses it, a repeat of what it took before is answered."""
    core = Core()
    topic = core.create("t", partitions=1, settings={"dedup_scope": "topic"})
    identity = core.init_producer()
    of = {"producer": identity.producer_id, "epoch": identity.epoch}
    before = batch(b"before", ids=[ids_of(2, 3)[0]], **of)
    (first,) = core.produce(topic.partitions[0], before)
    core.wait(core.topics.alter(topic.name, partitions=3))
    moved = ids_of(2, 3)[1]
    core.produce(topic.partitions[2], batch(b"new", ids=[moved]))
    with pytest.raises(TopicChangedError, match="expected dedup ids of partition 0 of 3"):
        core.produce(topic.partitions[0], batch(b"again", ids=[moved]))
    (repeat,) = core.produce(topic.partitions[0], batch(b"before", ids=[ids_of(2, 3)[0]], **of))
    assert (repeat.error, repeat.duplicate, repeat.base_offset) == (None, True, first.base_offset)
    assert [core.read(partition) for partition in topic.partitions] == [[b"before"], [], [b"new"]]


def test_the_scope_may_change() -> None:
    """In a topic of scope `partition`, or with a window of 0, every partition takes every id."""
    core = Core()
    topic = core.create("t", partitions=2)
    foreign = ids_of(1, 2)[0]
    for settings, expected in (
        ({}, None),
        ({"dedup_scope": "topic"}, TopicChangedError),
        ({"dedup_window": 0}, None),
        ({"dedup_window": 1_000_000, "dedup_scope": "partition"}, None),
    ):
        if settings:
            core.wait(core.topics.alter(topic.name, settings=settings))
        results = core.wait(core.send(topic.partitions[0], batch(b"x", ids=[foreign]))).results
        assert errors_of(results) == [expected], settings
