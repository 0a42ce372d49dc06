"""Named scenarios of queue groups, each of which broke a broker once: over kills, power losses and exact moments."""

from __future__ import annotations

import random

import pytest
from tests.helpers.broker_core import SECOND, batch, model
from tests.helpers.disk_model import Inode, Loss
from tests.helpers.payloads import payload
from tests.helpers.power_loss import Crashed, PowerLossFiles
from tests.helpers.queue_core import QueueCore, member_of, notebook, settings, settle, take
from tests.helpers.queue_member import QueueMember

from tidelog.broker.partition import Partition
from tidelog.protocol.messages import Settling
from tidelog.protocol.messages.groups import GroupStart

pytestmark = pytest.mark.crash


def begin(**given: object) -> tuple[QueueCore, Partition]:
    """Return a core over a disk model with a topic of one partition."""
    core = QueueCore(PowerLossFiles())
    return core, core.create("orders", 1, given).partition(0)  # type: ignore[arg-type]


def publish(core: QueueCore, first: int, count: int) -> None:
    """Publish messages, as durable as the topic says."""
    values = [payload("p", first + at) for at in range(count)]
    core.produce(core.topic("orders").partition(0), batch(*values))


def sync_delivery_log(core: QueueCore) -> int:
    """Let the disk have all of the delivery log, and of it alone; returns how many files that were."""
    folder = model(core).disk.folder("partitions/1-0/delivery")
    files = [node for node in folder.entries.values() if isinstance(node, Inode)]
    for file in files:
        file.sync()
    model(core).disk.sync_folder(folder)
    return len(files)


def forget_unsynced(core: QueueCore) -> None:
    """Let the page cache drop the pages of messages that a failed sync called clean: they read as the disk has them."""
    for node in model(core).disk.folder("partitions/1-0/messages").entries.values():
        if isinstance(node, Inode):
            left = node.after_power_loss(random.Random(1), Loss.NOTHING_SURVIVES)
            node.memory[: node.used] = left.read(0, node.used).ljust(node.used, b"\0")


@pytest.mark.parametrize("power", [False, True], ids=["kill", "power"])
def test_a_group_made_at_latest_begins_there(power: bool) -> None:
    """What was published after it was made is delivered, though the broker died before the first lease; what was there
    before is not, and a later start has no effect."""
    core, _ = begin()
    publish(core, 0, 5)
    book, _events = notebook(core)
    member = member_of(core, book, 1, start="latest")
    publish(core, 5, 1_000)
    core = core.after_power_loss(random.Random(1)) if power else core.after_kill()
    book.now_us = core.clock.wall_us
    member.connect(core.door())
    again = member.join(GroupStart("earliest"))
    core.settle()
    assert not member.joined(again).created
    assert sorted(take(core, member, 2_000)) == [*range(5, 1_005)]


def test_acknowledgements_of_lost_messages_do_not_settle_new_ones() -> None:
    """Of a `written` topic the power takes messages that were acknowledged; new ones at their offsets are delivered,
    also after two more restarts."""
    core, _ = begin(durability="written")
    publish(core, 0, 3)
    core.settle()
    publish(core, 3, 7)
    book, _events = notebook(core)
    member = member_of(core, book, 1)
    assert sorted(take(core, member, 100)) == [*range(10)]
    end = core.topic("orders").partition(0).visible_offset
    assert end == 10
    for held in [*member.held.values()]:
        member.settle([(held, Settling.ACCEPT, [1, 4, 5, 9], 0)])
    assert sync_delivery_log(core) > 0
    files = model(core).crash(random.Random(1), pages=Loss.NOTHING_SURVIVES, names=Loss.NOTHING_SURVIVES)
    core = core.next_process(files)
    lost_from = core.topic("orders").partition(0).visible_offset
    assert lost_from < 10, "the power took nothing"
    publish(core, 100, 10 - lost_from)
    core.settle()
    for _ in range(2):
        core = core.after_kill()
    book, events = notebook(core)
    other = member_of(core, book, 2)
    member.connect(core.door())
    core.advance(60 * SECOND)
    found = {**take(core, other, 100)}
    assert {offset for offset in found if offset >= lost_from} == set(range(lost_from, 10))
    assert 1 not in found or lost_from <= 1
    assert events == []


def test_messages_that_a_fault_takes_under_a_running_group() -> None:
    """Of a `written` topic messages are leased and settled whose sync then fails, and the disk never had them: once the
    log is reopened, new ones at their offsets are delivered, and no restart is needed for that."""
    core, partition = begin(durability="written")
    publish(core, 0, 3)
    core.advance(2 * SECOND)
    publish(core, 3, 7)
    book, _events = notebook(core)
    member = member_of(core, book, 1)
    assert sorted(take(core, member, 100)) == [*range(10)]
    settle(core, member, Settling.ACCEPT, [1, 4, 5, 9])
    files = model(core)
    files.fail_syncs(lambda path: "/messages/" in path)
    core.advance(2 * SECOND)
    files.fail_syncs(None)
    assert (files.failed_syncs, partition.is_fenced) == (1, True)
    forget_unsynced(core)
    core.wait(core.topics.reopen("default/orders"))
    assert partition.visible_offset == 3
    publish(core, 100, 7)
    other = member_of(core, book, 2)
    assert sorted(take(core, other, 100)) == [*range(3, 10)]
    assert core.states(partition.topic_id, 1)["g"].state == "acknowledged"


def test_a_lease_id_is_never_given_twice() -> None:
    """Not after a power loss that took the lease, either: what its member settles then is refused."""
    core, _ = begin()
    publish(core, 0, 4)
    book, _events = notebook(core)
    member = member_of(core, book, 1)
    take(core, member, 4)
    (held,) = member.held.values()
    files = model(core).crash(random.Random(1), pages=Loss.NOTHING_SURVIVES, names=Loss.NOTHING_SURVIVES)
    core = core.next_process(files)
    book.now_us = core.clock.wall_us
    other = member_of(core, book, 2)
    assert sorted(take(core, other, 4)) == [0, 1, 2, 3]
    assert [*other.held] != [held.lease]
    member.connect(core.door())
    settle(core, member, Settling.ACCEPT, [0, 1])
    assert book.refused == 1
    settle(core, other, Settling.ACCEPT, [0, 1, 2, 3])
    assert book.refused == 1


@pytest.mark.parametrize("what", [Settling.ACCEPT, Settling.RELEASE, Settling.REJECT, Settling.RETURN])
@pytest.mark.parametrize("power", [False, True], ids=["kill", "power"])
def test_a_settle_whose_answer_was_lost(what: Settling, power: bool) -> None:
    """Its repeat is answered OK and changes nothing, though the message is another's by then; another outcome is
    refused."""
    core, _ = begin()
    publish(core, 0, 3)
    book, _events = notebook(core)
    member = member_of(core, book, 1, given=settings())
    take(core, member, 3)
    (held,) = member.held.values()
    member.settle([(held, what, [1], 0 if what is Settling.RELEASE else -1)])
    core.settle()
    member.harvest(lose=True)
    assert [request.was_done for request in member.requests] == [{0}]
    core = core.after_power_loss(random.Random(2)) if power else core.after_kill()
    book.now_us = core.clock.wall_us
    other = member_of(core, book, 2, given=settings())
    taken = take(core, other, 10)
    member.connect(core.door())
    core.settle()
    member.harvest()
    assert book.repeats == 1
    assert member.requests == []
    comes_back = what in (Settling.RELEASE, Settling.RETURN)
    assert sorted(taken) == ([1] if comes_back else [])
    for again, refused in ((what, 0), (Settling.REJECT if what is Settling.ACCEPT else Settling.ACCEPT, 1)):
        held.left[1] = "p/1"
        member.settle([(held, again, [1], 0)])
        core.settle()
        member.harvest()
        assert book.refused == refused
    if comes_back:
        settle(core, other, Settling.ACCEPT, [1])
        assert book.refused == 1


@pytest.mark.parametrize(("early_us", "is_done"), [(1, True), (0, False), (-1, False)])
def test_a_settle_at_the_deadline(early_us: int, is_done: bool) -> None:
    """A microsecond before its lease ends a settle is done, from then on it is refused."""
    core, _ = begin()
    publish(core, 0, 1)
    book, _events = notebook(core)
    member = member_of(core, book, 1, given=settings(visibility_s=30))
    take(core, member, 1)
    core.advance(30 * SECOND - early_us)
    settle(core, member, Settling.ACCEPT, [0])
    assert book.refused == (not is_done)
    state = core.states(core.topic("orders").id, 0)["g"].state
    assert state == ("acknowledged" if is_done else "suspect")


def test_what_another_member_holds_cannot_be_settled() -> None:
    """Nor what was settled otherwise before: each is refused, and changes nothing."""
    core, _ = begin()
    publish(core, 0, 4)
    book, _events = notebook(core)
    one, two = (member_of(core, book, number, given=settings()) for number in (1, 2))
    take(core, one, 2)
    take(core, two, 2)
    (of_one,) = one.held.values()
    for what in (Settling.ACCEPT, Settling.RELEASE, Settling.REJECT, Settling.RETURN, Settling.RENEW):
        refused = book.refused
        two.settle([(of_one, what, [], 0)])
        core.settle()
        two.harvest()
        assert book.refused == refused + 1
    of_one.left = {0: "p/0", 1: "p/1"}
    settle(core, one, Settling.ACCEPT, [0])
    of_one.left[0] = "p/0"
    settle(core, one, Settling.RELEASE, [0])
    assert book.refused == 6
    states = [core.states(core.topic("orders").id, offset)["g"].state for offset in range(4)]
    assert states == ["acknowledged", "leased", "leased", "leased"]


def test_a_kill_in_the_making_of_the_delivery_log() -> None:
    """Wherever it is cut, what is acknowledged after the next start survives a power loss: its folder has a name."""
    operations = 0
    while True:
        core, _ = begin()
        publish(core, 0, 2)
        book, _events = notebook(core)
        member = member_of(core, book, 1)
        model(core).crash_at(operations + 1, random.Random(1))
        try:
            member.acquire(2)
            core.settle()
        except Crashed:
            operations += 1
        else:
            break
        core = core.after_kill()
        book.now_us = core.clock.wall_us
        member.connect(core.door())
        assert sorted(take(core, member, 2)) == [0, 1]
        settle(core, member, Settling.ACCEPT, [0])
        core = core.next_process(
            model(core).crash(random.Random(1), pages=Loss.NOTHING_SURVIVES, names=Loss.NOTHING_SURVIVES)
        )
        book.now_us = core.clock.wall_us
        topic_id = core.topic("orders").id
        assert core.states(topic_id, 0)["g"].state == "acknowledged", f"after operation {operations}"
        core.advance(31 * SECOND)
        assert sorted(take(core, member_of(core, book, 2), 2)) == [1]
    assert operations >= 5


@pytest.mark.parametrize("how", ["expiry", "nack"])
def test_a_limit_of_its_own_holds_over_a_restart(how: str) -> None:
    """A message that may be handed over once is given up after it, though its lease outlived the broker."""
    core, partition = begin()
    core.produce(partition, batch(payload("p", 0), payload("p", 1), max_attempts=[1, 0]))
    book, _events = notebook(core)
    member = member_of(core, book, 1, given=settings(max_attempts=4))
    for _ in range(2):
        take(core, member, 1)  # each in a lease of its own: of several in hand none would be blamed for the expiry
    for held in member.held.values():
        member.hand_over(held, [*held.left])
    member.acquire(1)
    core = core.after_kill()
    book.now_us = core.clock.wall_us
    member.connect(core.door())
    if how == "nack":
        settle(core, member, Settling.RELEASE, [0, 1], 0)
    core.advance(120 * SECOND)
    states = [core.states(core.topic("orders").id, offset)["g"] for offset in (0, 1)]
    assert [(state.state, state.attempts) for state in states] == [("dead-lettered", 1), ("available", 1)]


def test_a_member_that_comes_back_over_another_connection() -> None:
    """What its half-open connection still asks for is asked for by nobody: the first message goes to where it is now."""
    core, _ = begin()
    book, _events = notebook(core)
    member = member_of(core, book, 1, given=settings())
    lost = member.acquire(10, max_wait_us=60 * SECOND)
    core.settle()
    assert lost.is_pending
    member.connect(core.door())  # the broker has not heard of the end of the other one
    found = member.acquire(10, max_wait_us=60 * SECOND)
    publish(core, 0, 1)
    core.settle()
    assert not found.is_pending
    member.harvest()
    assert next(iter(member.held.values())).left == {0: "p/0"}
    assert core.states(core.topic("orders").id, 0)["g"].state == "leased"


def killed_by(member: QueueMember, killer: int, handled: int) -> None:
    """Hand over a lease message by message, acknowledging each, up to the killer or so many."""
    for held in [*member.held.values()]:
        for offset in sorted(held.left)[:handled]:
            member.hand_over(held, [offset])
            if offset == killer:
                return
            member.settle([(held, Settling.ACCEPT, [offset], 0)])


def test_a_thousand_leased_and_one_that_kills() -> None:
    """1,000 are leased, the 500th kills its worker again and again, and the broker is deployed five times under the
    backlog: the killer alone is given up, nobody innocent loses an attempt by it."""
    core, _ = begin()
    publish(core, 0, 1_000)
    book, events = notebook(core)
    topic_id, killer, deaths = core.topic("orders").id, 500, 0
    for number in range(1, 200):
        member = member_of(core, book, number, given=settings(max_attempts=3))
        if not take(core, member, 1_000):
            core.advance(31 * SECOND)
            if not take(core, member, 1_000):
                break
        if deaths >= 3 and number % 4 == 0:  # a deploy in the middle of it
            core = core.after_stop() if number % 8 else core.after_kill()
            book.now_us = core.clock.wall_us
            member.connect(core.door())
        dies = any(killer in held.left for held in member.held.values())
        killed_by(member, killer, 1_000)
        core.settle()
        member.harvest()
        deaths += dies
        member.connection.close()
        core.advance(31 * SECOND)
    states = [core.states(topic_id, offset)["g"] for offset in range(1_000)]
    assert {state.state for offset, state in enumerate(states) if offset != killer} == {"acknowledged"}
    assert (states[killer].state, states[killer].attempts) == ("dead-lettered", 3)
    assert 3 <= deaths <= 8
    assert book.refused == 0
    assert len(events) > 2_000
