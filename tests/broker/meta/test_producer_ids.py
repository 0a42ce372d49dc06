"""Producer identities: never twice, and nobody waits for a block that could have been there."""

from __future__ import annotations

import errno

from tests.helpers.broker_core import Core
from tests.helpers.faulty_files import FaultyFiles

from tidelog.broker.meta.meta_log import PRODUCER_ID_BLOCK
from tidelog.broker.producer_id import NAMED_PRODUCER, is_named
from tidelog.broker.storage.files import MemoryFiles
from tidelog.protocol.errors import DiskFullError, InvalidRequestError
from tidelog.protocol.messages import InitProducerReply


def test_nameless_ids_are_given_at_once() -> None:
    """Ids of the block that is on record need no sync, and follow one another."""
    core = Core()
    first, second = core.topics.init_producer(None).result(), core.topics.init_producer(None).result()
    assert (second.producer_id - first.producer_id, first.epoch, second.epoch) == (1, 0, 0)
    assert not is_named(first.producer_id)


def test_the_next_block_is_on_record_before_it_is_needed() -> None:
    """With syncs in between, a whole block and more is given out without anybody waiting."""
    core = Core()
    ids: set[int] = set()
    for n in range(2 * PRODUCER_ID_BLOCK):
        ids.add(core.topics.init_producer(None).result().producer_id)
        if n % 500 == 0:
            core.settle()
    assert len(ids) == 2 * PRODUCER_ID_BLOCK


def test_without_a_synced_block_producers_wait() -> None:
    """An id is never used before it is on record: when the block is used up, producers wait for the sync in order."""
    core = Core()
    given = [core.topics.init_producer(None) for _ in range(PRODUCER_ID_BLOCK + 3)]
    assert [answer.is_pending for answer in given[-4:]] == [False, True, True, True]
    core.settle()
    ids = [answer.result().producer_id for answer in given]
    assert ids == sorted(set(ids))


def test_a_block_that_cannot_be_recorded_fails_those_who_wait() -> None:
    """Producers that wait for a block get what the disk said; later ones are served when it has room."""
    files = FaultyFiles(MemoryFiles())
    core = Core(files)
    fault = files.fail("write_at", errno.ENOSPC, path="meta/*", times=None)
    given = [core.topics.init_producer(None) for _ in range(PRODUCER_ID_BLOCK + 1)]
    assert fault.fired > 0
    assert isinstance(given[-1].error, DiskFullError)
    files.heal()
    assert core.init_producer().producer_id == given[-2].result().producer_id + 1


def test_a_name_returns_under_a_raised_epoch() -> None:
    """A named producer keeps its id and gets the next epoch each time, told only when that is synced."""
    core = Core()
    first = core.topics.init_producer("ingest")
    assert first.is_pending
    core.settle()
    assert first.result() == InitProducerReply(NAMED_PRODUCER | 1, 0)
    assert core.init_producer("other") == InitProducerReply(NAMED_PRODUCER | 2, 0)
    assert core.init_producer("ingest") == InitProducerReply(NAMED_PRODUCER | 1, 1)
    core = core.after_stop()
    assert core.init_producer("ingest") == InitProducerReply(NAMED_PRODUCER | 1, 2)


def test_two_sessions_of_a_name_at_once_differ() -> None:
    """Two processes that come under one name at the same time get different epochs: the later one wins."""
    core = Core()
    answers = [core.topics.init_producer("ingest") for _ in range(3)]
    core.settle()
    assert [answer.result().epoch for answer in answers] == [0, 1, 2]


def test_an_empty_name_is_no_name() -> None:
    """An empty producer name is refused: it is neither a name nor none."""
    assert isinstance(Core().topics.init_producer("").error, InvalidRequestError)
