"""What groups make of stored messages that cannot be read as they should be: damage that a lookup meets, a column of
retry policies that is damaged or cannot be read, a batch that is larger than batches may be now."""

from __future__ import annotations

import dataclasses
import errno
from pathlib import Path

import pytest
from tests.helpers.broker_core import SECOND, batch
from tests.helpers.faulty_files import FaultyFiles
from tests.helpers.frame_door import Call
from tests.helpers.queue_core import QueueCore, member_of, notebook, settings, take
from tests.helpers.queue_core import settle as settle_some
from tests.helpers.queue_member import QueueMember
from tests.helpers.stored_data import flip, segments_of

from tidelog.broker.queues import own_retries
from tidelog.broker.queues.leased_batches import LeasedBatch
from tidelog.broker.storage.files import DiskFiles, MemoryFiles
from tidelog.broker.storage.files.descriptor import DescriptorFile
from tidelog.protocol.batch import HEADER_BYTES
from tidelog.protocol.messages import AcquireReply, Settling
from tidelog.protocol.segment_header import SEGMENT_HEADER_BYTES

BACKOFF_KIND = 2
"""Where it is in an entry of the column."""


def joined(core: QueueCore) -> tuple[QueueMember, QueueMember]:
    """A member of each of two groups."""
    book, _events = notebook(core)
    return member_of(core, book, 1, given=settings()), member_of(core, book, 2, group="h", given=settings())


def offsets(member: QueueMember) -> list[int]:
    """What a member holds."""
    return sorted(offset for held in member.held.values() for offset in held.left)


def refusals(core: QueueCore, call: Call) -> list[str]:
    """The codes of what an acquire was told."""
    core.settle()
    reply = call.message()
    assert isinstance(reply, AcquireReply)
    return [one.error.error().code for one in reply.errors]


def stored_retries(tmp_path: Path) -> tuple[QueueCore, Path]:
    """A core with a batch of three messages that each may be tried once, and one of three that say nothing, and the
    file that both are in."""
    core = QueueCore(DiskFiles(tmp_path))
    core.create("orders", 1)
    partition = core.topic("orders").partition(0)
    core.produce(partition, batch(b"0", b"1", b"2", max_attempts=[1, 1, 1]))
    core.produce(partition, batch(b"3", b"4", b"5"))
    (segment,) = segments_of(tmp_path, "partitions/1-0/messages")
    return core, segment


def invert(segment: Path, position: int, bits: int = 0x40) -> None:
    """Flip bits of a byte."""
    with segment.open("r+b") as file:
        file.seek(position)
        found = file.read(1)[0]
        file.seek(position)
        file.write(bytes([found ^ bits]))


def test_damage_that_a_lease_meets_is_recorded_and_told(tmp_path: Path) -> None:
    """As the damage that a fetch meets: reported, quarantined in `meta`, and settled in every group, not only in the
    one whose acquire met it."""
    core = QueueCore(DiskFiles(tmp_path))
    core.create("orders", 1)
    partition = core.topic("orders").partition(0)
    for _ in range(20):
        core.produce(partition, batch(*[b"x" * 100] * 10))
    member, other = joined(core)
    take(core, member, 10)
    take(core, other, 10)
    (segment,) = segments_of(tmp_path, "partitions/1-0/messages")
    flip(segment, SEGMENT_HEADER_BYTES + 5 * len(batch(*[b"x" * 100] * 10)))
    core.events.clear()
    for _ in range(30):
        take(core, member, 10)
    assert core.events.count("damage found") == 1
    ((log_id, found),) = core.topics.meta.state.quarantined.items()
    assert log_id == partition.log.log_id
    assert len(found) == 1
    gone = partition.log.damaged[0]
    assert gone.start == 50
    assert [core.states(1, 50)[group].state for group in ("g", "h")] == ["damaged", "damaged"]
    assert [core.states(1, 49)[group].state for group in ("g", "h")] == ["leased", "available"]
    assert offsets(member) == [*range(50), *range(gone.end, 200)]


@pytest.mark.parametrize("bits", [0x40, 0x04])
def test_a_damaged_retry_column_is_found_and_passed_over(tmp_path: Path, bits: int) -> None:
    """A flipped bit makes a backoff that there is not: the batch is checked, its messages are lost, and nobody else's.
    Before, each nack ended in INTERNAL."""
    core, segment = stored_retries(tmp_path)
    member, other = joined(core)
    invert(segment, SEGMENT_HEADER_BYTES + HEADER_BYTES + BACKOFF_KIND, bits)
    core.events.clear()
    take(core, member, 10)
    assert offsets(member) == [3, 4, 5]
    assert core.events.count("damage found") == 1
    assert [(gone.start, gone.end) for gone in core.topic("orders").partition(0).log.damaged] == [(0, 3)]
    take(core, other, 10)
    assert offsets(other) == [3, 4, 5]


def test_a_retry_column_that_cannot_be_read_is_told() -> None:
    """EIO of the column refuses the lease with STORAGE_ERROR and leaves nobody waiting; once it can be read all is
    leased, with its own limit."""
    files = FaultyFiles(MemoryFiles())
    core = QueueCore(files)
    core.create("orders", 1)
    core.produce(core.topic("orders").partition(0), batch(b"0", max_attempts=[1]))
    member, _other = joined(core)
    fault = files.fail("read_at", errno.EIO, path="*/messages/0*", times=None)
    with pytest.MonkeyPatch.context() as patch:

        def is_resident(_file: DescriptorFile, _position: int, _length: int) -> bool:
            return True

        patch.setattr(DescriptorFile, "is_resident", is_resident)
        assert refusals(core, member.acquire(10, max_wait_us=60 * SECOND)) == ["STORAGE_ERROR"]
    assert fault.fired > 0
    files.heal()
    assert take(core, member, 10) == {0: 0}


def test_a_sound_batch_that_says_what_none_should_follows_its_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was checked and is whole: its messages are delivered under the group's policy, and it is checked once."""
    core, _segment = stored_retries(tmp_path)
    member, _other = joined(core)

    def refused(_word: bytes) -> None:
        raise own_retries.InvalidBatchError("expected a backoff kind of 0 to 3, found 64")

    monkeypatch.setattr(own_retries, "_check", refused)
    take(core, member, 10)
    take(core, member, 10)
    assert offsets(member) == [0, 1, 2, 3, 4, 5]
    settle_some(core, member, Settling.RELEASE, [0], delay_us=0)
    assert core.states(1, 0)["g"].state == "available"


def test_one_unreadable_batch_hides_no_policies_of_others(tmp_path: Path) -> None:
    """A start finds the column of the first batch damaged; the limit of the second's messages holds all the same."""
    core, segment = stored_retries(tmp_path)
    partition = core.topic("orders").partition(0)
    core.produce(partition, batch(b"6", max_attempts=[1]))
    member, _other = joined(core)
    for count in (3, 3, 1):
        take(core, member, count)
    (held,) = [held for held in member.held.values() if 6 in held.left]
    member.hand_over(held, [6])
    member.acquire(1)
    core.settle()
    core.topics.close()
    invert(segment, SEGMENT_HEADER_BYTES + HEADER_BYTES + BACKOFF_KIND)
    again = core.next_process(core.files)
    again.advance(31 * SECOND)
    assert again.states(1, 6)["g"].state == "dead-lettered"
    assert again.states(1, 3)["g"].state == "suspect"


def test_one_damaged_batch_hides_no_policies_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor one that a lookup cannot find."""
    core = QueueCore()
    core.create("orders", 1)
    partition = core.topic("orders").partition(0)
    core.produce(partition, batch(b"0", b"1"))
    core.produce(partition, batch(b"2", max_attempts=[1]))
    own = own_retries.OwnRetries()
    partition.log._damage.add(0, 2)  # pyright: ignore[reportPrivateUsage]
    own.load(partition.log, own_retries.set_of([(0, 3)]))
    assert [*own.offsets] == [2]


def test_a_batch_that_is_larger_than_batches_may_be_now_goes_whole() -> None:
    """`max_batch_payload` was lowered since: one message of it comes with its whole batch, and is delivered."""
    core = QueueCore()
    core.create("orders", 1)
    core.produce(core.topic("orders").partition(0), batch(*[b"%d" % number * 40 for number in range(1_000)]))
    member, _other = joined(core)
    take(core, member, 1_000)
    settle_some(core, member, Settling.ACCEPT, [offset for offset in offsets(member) if offset != 7])
    settle_some(core, member, Settling.RELEASE, [7], delay_us=0)
    core.services.batch_limits = dataclasses.replace(core.services.batch_limits, max_payload_bytes=1_000)
    call = member.acquire(10)
    assert refusals(core, call) == []
    assert call.reply is not None
    assert len(call.reply.bulk) > 40_000
    member.harvest()
    assert offsets(member) == [7]


def test_a_short_read_of_the_column_is_no_policy() -> None:
    """A file that ends in the middle of it: CorruptError, not another message's policy."""

    class Short:
        path = "short"

        def read_at(self, _position: int, length: int) -> bytes:
            return data[:length] if length == HEADER_BYTES else b""

    data = bytes(batch(b"0", max_attempts=[1]))
    stored = LeasedBatch(Short(), 0, len(data), 0, 1, True, False, True)  # pyright: ignore[reportArgumentType]
    with pytest.raises(own_retries.CorruptError, match="expected 16 bytes of the column, found 0"):
        list(own_retries.read_retries(stored, own_retries.set_of([(0, 1)])))
