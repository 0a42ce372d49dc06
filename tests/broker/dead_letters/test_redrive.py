"""What a redrive and a purge do, and what they refuse, over whatever became of the messages meanwhile."""

from __future__ import annotations

import pytest
from tests.helpers.broker_core import SECOND, Core
from tests.helpers.giving_up import BOOM, GivingUp, letter_settings
from tests.helpers.redriving import Redriving, offsets_in

from tidelog.broker.groups import Group
from tidelog.broker.queues.group_partition import GroupPartition
from tidelog.broker.queues.queues import Queues
from tidelog.protocol.batch import Codec, encode_batch
from tidelog.protocol.errors import InvalidBatchError, InvalidRequestError, UnknownTopicIdError
from tidelog.protocol.messages import (
    DeadLetters,
    GroupStart,
    MessageAttempts,
    Purge,
    Redrive,
    RedriveReply,
    Settling,
)
from tidelog.protocol.offset_ranges import pack_ranges


@pytest.fixture
def redriving() -> Redriving:
    """Eight messages, all of which group g gave up on."""
    return Redriving.begin(Core())


def refusals(reply: RedriveReply) -> dict[int, str]:
    """Return the code of the error for each dead letter that was refused."""
    return {offset: refusal.error.error().code for refusal in reply.refused for offset in offsets_in(refusal.ranges)}


def test_messages_are_available_again_where_they_were(redriving: Redriving) -> None:
    """Those that were asked for, at their own offsets; the others stay dead letters."""
    reply = redriving.redrive([(1, 3), (6, 7)])
    assert offsets_in(reply.in_place) == [1, 2, 6]
    assert redriving.pending() == [0, 3, 4, 5, 7]
    assert redriving.available() == [1, 2, 6]
    assert len(redriving.giving.letters()) == 8
    assert redriving.core.gauges()['tidelog_queue_redriven_messages_total{group="g"}'] == 3


def test_where_they_came_from_is_looked_up_once(redriving: Redriving, monkeypatch: pytest.MonkeyPatch) -> None:
    """For all dead letters that a group made of a partition, which may be thousands."""
    queues = redriving.core.queues
    asked: list[int] = []

    def part(group: Group, topic_id: int, index: int) -> GroupPartition:
        asked.append(index)
        return Queues.part(queues, group, topic_id, index)

    monkeypatch.setattr(queues, "part", part)
    assert offsets_in(redriving.redrive().in_place) == [*range(8)]
    assert asked == [0]


def test_a_redrive_that_is_repeated_does_nothing(redriving: Redriving) -> None:
    """Also after the messages were acknowledged."""
    redriving.redrive()
    held = redriving.giving.take("g")
    redriving.core.wait(redriving.giving.ask("g", redriving.giving.items(held, Settling.ACCEPT, sorted(held))))
    reply = redriving.redrive()
    assert (reply.in_place, reply.as_new, reply.refused) == (b"", b"", [])
    assert redriving.available() == []


def test_a_dead_letter_is_resolved_when_its_message_is_back_for_sure(redriving: Redriving) -> None:
    """Not before it is synced that the message is available: a power loss in between would lose both."""
    redriving.redrive([(0, 1)])
    core = redriving.core
    delivery = core.topic("orders.dlq").partition(0).delivery
    assert delivery.log is not None
    before = delivery.log.log.end_offset
    answer = redriving.ask([(1, 2)])
    assert delivery.log.log.end_offset == before + 1  # announced
    core.begin_round()
    core.finish_round()
    assert delivery.log.log.end_offset == before + 1  # the message is back, and that is not synced
    core.begin_round()
    core.finish_round()
    assert delivery.log.log.end_offset == before + 2
    assert answer.is_pending
    core.settle()
    assert offsets_in(answer.result().in_place) == [1]


def test_of_two_at_once_one_passes_over_what_the_other_has_in_hand(redriving: Redriving) -> None:
    """Each message is brought back once, though nothing is synced when the second asks."""
    first, second = redriving.ask([(0, 5)]), redriving.ask([(3, 8)])
    assert first.is_pending
    redriving.core.settle()
    assert offsets_in(first.result().in_place) == [0, 1, 2, 3, 4]
    assert offsets_in(second.result().in_place) == [5, 6, 7]
    assert offsets_in(second.result().passed) == [3, 4]


def test_what_is_given_up_again_is_another_dead_letter(redriving: Redriving) -> None:
    """It says how often it came back, and the one before is pending no more."""
    for times in range(1, 4):
        redriving.redrive()
        redriving.giving.reject("g", range(8))
        redriving.core.advance(3 * SECOND)
        assert redriving.pending() == [*range(8 * times, 8 * times + 8)]
        assert {copy.said("redrives") for copy in redriving.giving.letters()[-8:]} == {str(times)}
    assert refusals(redriving.redrive([(24, 26)])) == {24: "REDRIVE_LIMIT", 25: "REDRIVE_LIMIT"}
    assert redriving.pending() == [*range(24, 32)]
    assert offsets_in(redriving.redrive([(24, 26)], max_redrives=4).in_place) == [24, 25]


def test_two_groups_give_up_on_one_message(redriving: Redriving) -> None:
    """Each has a dead letter of its own, and a redrive of one brings it back for that group alone."""
    redriving.giving.group("h", letter_settings())
    redriving.giving.reject("h", [0])
    redriving.core.advance(3 * SECOND)
    assert offsets_in(redriving.redrive([(8, 9)]).in_place) == [8]
    assert redriving.available("g") == []
    assert redriving.available("h") == [*range(8)]
    assert redriving.pending() == [*range(8)]


def test_as_new_each_has_one_new_message(redriving: Redriving) -> None:
    """With the producer's own headers, the first id and how often it was redriven; for every group."""
    reply = redriving.redrive([(2, 4)], as_new=True)
    assert offsets_in(reply.as_new) == [2, 3]
    new = redriving.giving.letters("orders")[8:]
    assert [copy.value for copy in new] == [b"2", b"3"]
    assert [copy.headers for copy in new] == [
        [("tidelog.redrives", b"1"), ("tidelog.origin_id", b"orders/0@%d" % at)] for at in (2, 3)
    ]
    assert redriving.available("g") == [8, 9]
    assert redriving.pending() == [0, 1, 4, 5, 6, 7]


def test_what_is_being_sent_anew_is_not_pending(redriving: Redriving) -> None:
    """From when it is announced to when its copy is on record, another request passes over it."""
    core = redriving.core
    answer = redriving.ask([(2, 4)], as_new=True)
    core.begin_round()
    core.finish_round()  # announced; the copies are on their way
    assert answer.is_pending
    assert redriving.pending() == [0, 1, 4, 5, 6, 7]
    core.settle()
    assert offsets_in(answer.result().as_new) == [2, 3]


def test_as_new_again_the_first_id_stays(redriving: Redriving) -> None:
    """A message that goes round as new keeps the id that its producer was given, and counts on."""
    redriving.redrive([(2, 3)], as_new=True)
    redriving.giving.reject("g", [8])
    redriving.core.advance(3 * SECOND)
    [letter] = redriving.giving.letters()[8:]
    assert (letter.said("redrives"), letter.said("origin_id"), letter.said("dlq.offset")) == ("1", "orders/0@2", "8")
    redriving.redrive([(8, 9)], as_new=True)
    new = redriving.giving.letters("orders")[-1]
    assert new.headers == [("tidelog.redrives", b"2"), ("tidelog.origin_id", b"orders/0@2")]


def test_a_purged_dead_letter_is_gone(redriving: Redriving) -> None:
    """It is not pending, a redrive passes over it, and its group says that it was given up."""
    assert offsets_in(redriving.purge([(0, 2)]).purged) == [0, 1]
    reply = redriving.redrive([(0, 3)])
    assert (offsets_in(reply.in_place), offsets_in(reply.passed)) == ([2], [0, 1])
    state = redriving.giving.part("g").state
    assert state is not None
    assert sorted(state.dead_lettered) == [3, 4, 5, 6, 7]
    assert {0, 1} <= {*state.rejected.offsets}


def test_as_new_all_batches_of_copies_are_told() -> None:
    """Messages of three priorities are published in three batches: none of them counts as another's doing, and none as
    dead-lettered any more."""
    core = Core()
    orders = core.create("orders", 1).partition(0)
    for priority in (1, 5, 9):
        one = encode_batch([b"%d" % priority], priority=priority, timestamp_us=1)
        core.produce(orders, memoryview(bytearray(one)))
    giving = GivingUp(core)
    giving.group("g", letter_settings())
    giving.reject("g", range(3))
    core.advance(3 * SECOND)
    redriving = Redriving(core)
    reply = redriving.redrive([(0, 3)], as_new=True)
    assert (offsets_in(reply.as_new), offsets_in(reply.passed), reply.refused) == ([0, 1, 2], [], [])
    assert sorted(copy.value or b"" for copy in giving.letters("orders")[3:]) == [b"1", b"5", b"9"]
    state = giving.part("g").state
    assert state is not None
    assert sorted(state.dead_lettered) == []


def test_where_the_group_was_moved_past_it_nothing_is_done(redriving: Redriving) -> None:
    """A group that was reset to behind a message would not get it: that is refused, and it stays a dead letter."""
    core = redriving.core
    core.wait(core.groups.reset("default/g", GroupStart("latest")))
    assert refusals(redriving.redrive([(0, 2)])) == {0: "NOT_FOUND", 1: "NOT_FOUND"}
    assert redriving.pending() == [*range(8)]
    assert offsets_in(redriving.redrive([(0, 2)], as_new=True).as_new) == [0, 1]


def test_where_the_group_was_moved_back_it_is_resolved(redriving: Redriving) -> None:
    """A reset to the start delivers the messages again by itself: their dead letters have nothing left to do."""
    core = redriving.core
    core.wait(core.groups.reset("default/g", GroupStart("earliest")))
    assert offsets_in(redriving.redrive().in_place) == [*range(8)]
    assert redriving.available() == [*range(8)]


def test_a_group_that_is_gone_gets_nothing(redriving: Redriving) -> None:
    """Deleted, or made anew under its name: refused, or resolved as what the new one is given anyway."""
    core = redriving.core
    core.wait(core.groups.delete("default/g"))
    assert refusals(redriving.redrive([(0, 1)])) == {0: "UNKNOWN_GROUP"}
    assert offsets_in(redriving.redrive([(0, 1)], as_new=True).as_new) == [0]
    GivingUp(core).group("g", letter_settings())
    assert offsets_in(redriving.redrive([(1, 2)]).in_place) == [1]


def test_a_topic_that_was_made_again_gets_nothing(redriving: Redriving) -> None:
    """A dead letter of a deleted topic is never published to another one of its name."""
    core = redriving.core
    core.wait(core.topics.delete("default/orders"))
    core.create("orders")
    for as_new in (False, True):
        assert refusals(redriving.redrive([(0, 1)], as_new=as_new)) == {0: "UNKNOWN_TOPIC"}
    assert redriving.pending() == [*range(8)]
    assert core.read(core.topic("orders").partition(0)) == []
    assert offsets_in(redriving.purge().purged) == [*range(8)]


def test_the_dead_letter_topic_goes_in_the_middle(redriving: Redriving) -> None:
    """A redrive whose dead-letter topic is deleted meanwhile has a typed error, and the messages are back or not."""
    core = redriving.core
    answer = redriving.ask()
    deleting = core.topics.delete("default/orders.dlq")
    core.settle()
    assert not deleting.is_pending
    assert not answer.is_pending
    if answer.error is not None:
        assert answer.error.code in ("UNKNOWN_TOPIC_ID", "LOG_FENCED")
    with pytest.raises(UnknownTopicIdError):
        redriving.desk.redrive(Redrive(1_000, 0, pack_ranges([(0, 1)])))


def test_what_somebody_produced_there_is_no_dead_letter(redriving: Redriving) -> None:
    """A message in a dead-letter topic that nobody gave up on is refused, whatever its headers say, and can be
    purged."""
    core = redriving.core
    forged = encode_batch([b"x"], headers=[[("dlq.topic", b"other"), ("x-tidelog.redrives", b"9")]], timestamp_us=1)
    core.produce(core.topic("orders.dlq").partition(0), memoryview(bytearray(forged)))
    assert refusals(redriving.redrive([(8, 9)])) == {8: "NOT_FOUND"}
    assert offsets_in(redriving.purge([(8, 9)]).purged) == [8]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@pytest.mark.parametrize("name", ["tidelog.redrives", "tidelog.dlq.topic", "tidelog.origin_id", "tidelog."])
def test_a_batch_with_the_brokers_own_names_is_refused(redriving: Redriving, name: str, codec: Codec) -> None:
    """Also of a client that does not look, once or twice, compressed or not: nothing of it is stored."""
    partition = redriving.core.topic("orders").partition(0)
    headers = [[], [("a", b"1"), (name, b"99"), (name, b"99")]]
    forged = encode_batch([b"x" * 100, b"y" * 100], headers=headers, timestamp_us=1, codec=codec)
    with pytest.raises(InvalidBatchError, match="no header name that begins with"):
        redriving.core.produce(partition, memoryview(bytearray(forged)))
    assert partition.visible_offset == 8


def test_other_topics_have_no_dead_letters(redriving: Redriving) -> None:
    """Messages of a topic that holds none are refused, and not purged; ranges that are none are refused too."""
    core, topic_id = redriving.core, redriving.core.topic("orders").id
    reply = core.wait(redriving.desk.redrive(Redrive(topic_id, 0, pack_ranges([(0, 2)]))))
    assert refusals(reply) == {0: "NOT_FOUND", 1: "NOT_FOUND"}
    purged = core.wait(redriving.desk.purge(Purge(topic_id, 0, pack_ranges([(0, 2)]))))
    assert (purged.purged, offsets_in(purged.passed)) == (b"", [0, 1])
    for wrong in (b"", b"x", pack_ranges([(5, 5)]), pack_ranges([(0, 1_001)])):
        with pytest.raises(InvalidRequestError):
            redriving.desk.redrive(Redrive(redriving.topic_id, 0, wrong))


def test_pending_ones_are_listed_in_pages(redriving: Redriving) -> None:
    """A page says where the next begins, and how many there are in all."""
    redriving.purge([(1, 2), (4, 5)])
    page = redriving.desk.pending(DeadLetters(redriving.topic_id, 0, 0, 3))
    assert (offsets_in(page.ranges), page.pending, page.next_offset) == ([0, 2, 3], 6, 4)
    page = redriving.desk.pending(DeadLetters(redriving.topic_id, 0, 4, 3))
    assert (offsets_in(page.ranges), page.pending, page.next_offset) == ([5, 6, 7], 6, None)


def test_the_history_says_what_happened(redriving: Redriving) -> None:
    """Rejected, dead-lettered, redriven, resolved, each once and in order."""
    core = redriving.core
    redriving.redrive([(3, 4)])
    redriving.giving.reject("g", [3], BOOM)
    core.advance(3 * SECOND)
    redriving.purge([(8, 9)])
    request = MessageAttempts("default/g", core.topic("orders").id, 0, 3)
    reply = core.wait(redriving.desk.attempts(request))
    assert [(one.outcome, one.number) for one in reply.attempts] == [
        ("rejected", 1),
        ("dead-lettered", 0),
        ("redriven", 0),
        ("rejected", 1),
        ("dead-lettered", 0),
        ("resolved", 0),
    ]
    assert reply.is_complete
    assert {one.error for one in reply.attempts if one.number} == {BOOM}
