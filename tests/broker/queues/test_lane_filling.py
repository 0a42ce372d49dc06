"""A reply of several lanes: one lease each, looked up at once, and the order in which their messages are handed out."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from tests.helpers.broker_core import SECOND
from tests.helpers.lane_core import backlog, begin, given, publish
from tests.helpers.queue_core import QueueCore
from tests.helpers.queue_member import QueueMember

from tidelog.broker.queues.group_partition import GroupPartition
from tidelog.broker.queues.leased_batches import LeasedBatches
from tidelog.broker.storage.files import DiskFiles
from tidelog.protocol.batch import Codec, encode_batch
from tidelog.protocol.messages import AcquireReply, Settling

ROUND = [9] * 120 + [4] * 60 + [0] * 20


def filled(
    *counts: int, partitions: int = 1, codec: Codec = Codec.NONE, size: int = 1
) -> tuple[QueueCore, QueueMember]:
    """A core with a batch of so many messages of each of three lanes in each partition, with weights 6, 3 and 1."""
    core, (member,) = begin(partitions=partitions, lanes_policy="weighted", lanes_weights="9:6, 4:3, 0:1")
    for partition in range(partitions):
        for priority, count in zip((9, 4, 0), counts, strict=True):
            values = [b"%d" % priority + b" " * (size - 1)] * count
            data = encode_batch(values, timestamp_us=7, priority=priority, codec=codec)
            core.produce(core.topic("orders").partition(partition), memoryview(data))
    return core, member


def reply_to(core: QueueCore, member: QueueMember, count: int, max_bytes: int = 1 << 20) -> AcquireReply:
    """What a member is answered; it holds what came."""
    call = member.acquire(count, max_bytes=max_bytes)
    core.settle()
    reply = call.message()
    assert isinstance(reply, AcquireReply)
    member.harvest()
    return reply


def priorities(member: QueueMember) -> list[int]:
    """What came last, as it is handed out."""
    return [int(value.strip("b' ")) for value in member.came]


def open_log(core: QueueCore, member: QueueMember) -> None:
    """Have the delivery log made; the clocks of the lanes begin behind it."""
    assert given(core, member, 200) == ROUND


def test_a_lane_has_one_lease_of_a_reply_and_a_handler_gets_it_in_rounds() -> None:
    """Of a thousand there are three leases of 600, 300 and 100, mixed two hundred at a time."""
    core, member = filled(2_000, 2_000, 2_000)
    open_log(core, member)
    reply = reply_to(core, member, 1_000)
    assert priorities(member) == ROUND * 5
    assert [len(held.left) for held in member.held.values()] == [600, 300, 100]
    assert [(one.grant, one.count) for one in reply.order] == [(0, 120), (1, 60), (2, 20)] * 5


def test_one_round_needs_no_order() -> None:
    """One lease after the other is how a reply is handed out anyway."""
    core, member = filled(500, 500, 500)
    open_log(core, member)
    assert reply_to(core, member, 200).order == []
    assert priorities(member) == ROUND


def test_a_lane_goes_on_in_the_next_partition_within_a_reply() -> None:
    """What one partition has of it ends in the middle of a round: the next one has the rest, and no round is another."""
    core, member = filled(290, 1_000, 1_000, partitions=4)
    open_log(core, member)
    reply = reply_to(core, member, 1_000)
    assert priorities(member) == ROUND * 5
    assert len(reply.grants) <= 6


@pytest.mark.parametrize("max_bytes", [20_000, 200_000])
def test_each_lane_has_its_part_of_the_bytes(max_bytes: int) -> None:
    """Where a reply has room for fewer than were asked for, lanes have their shares of what fits, of the first reply as
    of later ones, and all over: a high lane does not take the room of the others."""
    core, member = filled(*[2_000] * 3, size=100)
    reply_to(core, member, 200, 200_000)
    assert priorities(member) == ROUND
    seen = Counter[int]()
    for _ in range(8):
        reply = reply_to(core, member, 10_000, max_bytes)
        assert sum(grant.bulk_bytes for grant in reply.grants) <= 1.1 * max_bytes, "what a part takes is not known"
        found = Counter(priorities(member))
        assert found.total() >= 20
        seen += found
        if seen[9] == 2_000 - 120:
            break
        shares = [seen.total() * 0.6, seen.total() * 0.3, seen.total() * 0.1]
        assert [seen[lane] for lane in (9, 4, 0)] == pytest.approx(shares, abs=54)


def test_what_was_looked_up_and_is_gone_is_no_part_of_a_reply() -> None:
    """Damage that is found while another lane is looked up takes what lay in it: it is left out of the order, the lanes'
    shares are as if it had not been given, and what is there still comes with the next replies, each once."""
    core, member = filled(1_000, 1_000, 1_000)
    open_log(core, member)
    known = GroupPartition.still
    with pytest.MonkeyPatch.context() as patch:

        def still(part: GroupPartition, found: LeasedBatches) -> LeasedBatches | None:
            is_of_4 = 1_000 <= found.choice.offsets.min() < 2_000
            return None if is_of_4 else known(part, found)

        patch.setattr(GroupPartition, "still", still)
        reply_to(core, member, 1_000)
    assert priorities(member) == ([9] * 120 + [0] * 20) * 5
    seen: list[int] = []
    for held in [*member.held.values()]:
        member.settle([(held, Settling.ACCEPT, [*held.left], -1)])
    core.settle()
    member.harvest()
    while found := given(core, member, 1_000):
        seen += found
    assert Counter(seen) == {9: 1_000 - 720, 4: 1_000 - 60, 0: 1_000 - 120}
    assert Counter(seen[:400]) == {4: 330, 9: 60, 0: 10}, "it is owed its share"


def test_a_damaged_batch_of_which_lanes_had_parts_takes_no_other_message_along(tmp_path: Path) -> None:
    """A lane's batch is damaged on the disk where it is cut: its lease is given back, and the others of the reply come,
    and so does every other message, each once and on its first attempt."""
    core, (member,) = begin(files=DiskFiles(tmp_path), lanes_policy="weighted", lanes_weights="9:6, 4:3, 0:1")
    for priority in (9, 4, 0):
        data = encode_batch([b"%d" % priority + b"." * 99] * 4_000, timestamp_us=7, priority=priority)
        core.produce(core.topic("orders").partition(0), memoryview(data))
    stored = {path: path.read_bytes() for path in (tmp_path / "partitions/1-0/messages").glob("0*.log")}
    (segment,) = (path for path, data in stored.items() if b"4" + b"." * 99 in data)
    with segment.open("r+b") as file:
        file.seek(stored[segment].index(b"4" + b"." * 99) + 50)
        file.write(b"x")
    seen: list[int] = []
    for _ in range(30):
        call = member.acquire(1_000)
        core.settle()
        assert isinstance(call.message(), AcquireReply)
        member.harvest()
        for held in [*member.held.values()]:
            assert not held.earlier
            seen += [int(value[2]) for value in held.left.values()]
            member.settle([(held, Settling.ACCEPT, [*held.left], -1)])
        core.settle()
        member.harvest()
    assert Counter(seen) == {9: 4_000, 0: 4_000}


def test_a_lease_that_ended_while_batches_were_cut_is_left_out_of_the_order() -> None:
    """The others keep their portions, and their places are those of the grants that came."""
    core, member = filled(3_000, 3_000, 3_000, codec=Codec.ZSTD)
    core.workers.held = False
    open_log(core, member)
    core.workers.held = True
    call = member.acquire(1_000)
    core.settle()
    assert call.is_pending
    part = core.queues.part(core.groups.named("default/g"), core.topic("orders").id, 0)
    assert part.state is not None
    first = min(part.state.leases)
    part.give_back([first])
    core.workers.run()
    core.settle()
    reply = call.message()
    assert isinstance(reply, AcquireReply)
    member.harvest()
    assert [(one.grant, one.count) for one in reply.order] == [(0, 60), (1, 20)] * 5
    assert priorities(member) == ([4] * 60 + [0] * 20) * 5


def test_what_is_old_is_of_leases_of_its_own() -> None:
    """What goes for its age may be of any lane: nothing is looked up for the whole reply beside it, and everything comes
    once."""
    core, (member,) = begin(lanes_policy="weighted", lanes_weights="9:6, 4:3, 0:1", lanes_max_wait=10 * SECOND)
    for priority in (9, 4, 0):
        backlog(core, priority, 1_000)
    core.advance(11 * SECOND)
    seen: list[int] = []
    while found := given(core, member, 1_000):
        seen += found
    assert Counter(seen) == {9: 1_000, 4: 1_000, 0: 1_000}


def test_what_is_old_has_one_lease_of_a_reply_and_takes_nothing_that_a_lane_has() -> None:
    """Of five deliveries one is the oldest of whatever lane; the others go by weights. Everything is leased once."""
    core, (member,) = begin(lanes_policy="weighted", lanes_weights="9:6, 4:3, 0:1", lanes_max_wait=10 * SECOND)
    for priority in (0, 4, 9):
        backlog(core, priority, 1_000)
    given(core, member, 1)
    core.advance(11 * SECOND)
    reply = reply_to(core, member, 1_000)
    assert len(reply.grants) == 4
    offsets = [offset for held in member.held.values() for offset in held.left]
    assert len({*offsets}) == len(offsets) == 1_000
    assert [Counter(priorities(member)[at : at + 200]) for at in range(0, 1_000, 200)] == [{9: 96, 4: 48, 0: 56}] * 5


def test_a_batch_that_holds_only_what_is_not_given_out_is_left_out() -> None:
    """Of a batch most of which is settled the last messages were looked up, and came to no round: it has no part in the
    lease. It was cut to nothing, which failed, and each acquire after it."""
    core, (member,) = begin(lanes_policy="weighted")
    for count in (500, 100):
        backlog(core, 9, count)
    reply_to(core, member, 600)
    settled = [*range(500, 596)]
    for held in [*member.held.values()]:
        mine = [offset for offset in held.left if offset in settled]
        rest = [offset for offset in held.left if offset not in settled]
        if mine:
            member.settle([(held, Settling.ACCEPT, mine, -1)])
        member.settle([(held, Settling.RETURN, rest, -1)])
    core.settle()
    member.harvest()
    for priority in (9, 0):
        backlog(core, priority, 1_000)
    reply_to(core, member, 1_000)
    assert Counter(priorities(member)) == {9: 500, 0: 500}
    assert [sorted(held.left)[-1] for held in member.held.values()] == [499, 2_099]


def test_what_is_old_in_several_partitions_has_no_more_than_its_share_of_a_round() -> None:
    """One partition has three old messages, and the next has the others: of each two hundred deliveries forty go for their
    age, whichever partition they are of, and a reply holds a thousand."""
    core, (member,) = begin(partitions=2, lanes_max_wait=10 * SECOND)
    for partition in (0, 1):
        publish(core, [4], partition)
    assert given(core, member, 2) == [4, 4]
    backlog(core, 0, 3, 0)
    core.advance(SECOND)
    backlog(core, 0, 500, 1)
    core.advance(11 * SECOND)
    backlog(core, 9, 2_000)
    seen = given(core, member, 1_000)
    assert [Counter(seen[at : at + 200]) for at in range(0, 1_000, 200)] == [{9: 160, 0: 40}] * 5
