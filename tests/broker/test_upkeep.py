"""When logs are looked after: a second after something happened, at once when busy, never when idle."""

from __future__ import annotations

import errno

from tests.helpers.broker_core import SECOND, Core, batch, start
from tests.helpers.faulty_files import FaultyFiles

from tidelog.broker.storage.files import MemoryFiles


def names(core: Core) -> list[str]:
    return core.files.list_folder("partitions/1-0/messages")


def test_the_next_segment_is_ready_before_it_is_needed() -> None:
    """Within a second of the active segment being half full the next one is prepared, in a worker."""
    core, partition = start(segment_bytes=65_536)
    core.produce(partition, batch(bytes(40_000)))
    core.workers.held = True
    core.advance(SECOND)
    assert not [name for name in names(core) if name.endswith(".next")]
    core.workers.run()
    assert [name for name in names(core) if name.endswith(".next")]


def test_a_busy_log_is_looked_after_at_once() -> None:
    """A writer that takes many bytes within the second does not outrun the reserved space."""
    core, partition = start(segment_bytes=1 << 20)
    for _ in range(6):
        core.produce(partition, batch(bytes(100_000)))
    assert [name for name in names(core) if name.endswith(".next")]


def test_an_idle_broker_has_no_deadline() -> None:
    """After the last upkeep nothing is scheduled any more: an idle broker sleeps."""
    core, partition = start()
    core.produce(partition, batch(b"a"))
    core.advance(10 * SECOND)
    assert core.timers.next_due_us() is None
    assert core.commit.next_due_us() is None


def test_upkeep_that_failed_is_tried_again() -> None:
    """A segment that could not be prepared for want of space is prepared when there is some."""
    files = FaultyFiles(MemoryFiles())
    core, partition = start(files, segment_bytes=65_536)
    fault = files.fail("create", errno.ENOSPC, path="partitions/*")
    core.produce(partition, batch(bytes(40_000)))
    core.advance(SECOND)
    assert fault.fired == 1
    assert core.services.upkeep.failed_steps == 1
    core.advance(SECOND)
    assert [name for name in names(core) if name.endswith(".next")]


def test_an_idle_log_closes_its_last_segment_when_that_is_old() -> None:
    """The retention pass lets the last segment of an idle topic roll, so that its records age out."""
    core, partition = start(segment_age=60 * SECOND)
    core.produce(partition, batch(b"a"))
    core.advance(61 * SECOND)
    core.topics.expire()
    core.advance(3 * SECOND)
    assert partition.log.segment_count == 2
    assert not partition.log.is_rolling
    assert core.read(partition) == [b"a"]


def test_a_deleted_log_is_let_go_after_its_worker() -> None:
    """A deletion during upkeep removes the files when the worker is done."""
    core, partition = start(segment_bytes=65_536)
    core.produce(partition, batch(bytes(40_000)))
    core.workers.held = True
    core.advance(SECOND)
    answer = core.topics.delete("default/orders")
    core.settle()
    assert answer.is_pending
    while core.workers.run():
        core.settle()
    assert answer.result() == 1
    assert core.files.list_folder("partitions") == []
