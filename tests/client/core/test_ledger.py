"""A producer's account, interrupted between any two lines of its core: nothing is lost, twice, or out of order."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest
from tests.client.core.interrupting import interrupted
from tests.client.core.producer_driver import FILES, Producer

from tidelog.client.core.ledger import Mark
from tidelog.protocol.errors import UnknownTopicIdError

each_kind = pytest.mark.parametrize("reports", [False, True], ids=["", "reporting"])


def at_every_line(prepare: Callable[[], Producer], change: Callable[[Producer], object]) -> list[Producer]:
    """Return producers whose `change` was interrupted before its first line, its second, and so on to the last."""
    found: list[Producer] = []
    for number in count(1):
        producer = prepare()
        if not producer.interrupt(number, lambda producer=producer: change(producer)):
            return found
        found.append(producer)
    raise AssertionError("it has an end")


def lingering(*, reports: bool) -> Producer:
    """Return a producer with messages of every width that are in no batch."""
    producer = Producer(reports=reports)
    producer.send()
    return producer


def on_its_way(*, reports: bool) -> Producer:
    """Return a producer whose batches are with the broker."""
    producer = lingering(reports=reports)
    producer.cut()
    producer.pump()
    return producer


def returned(*, reports: bool) -> Producer:
    """Return a producer whose batches came back, since the id of their topic is gone."""
    producer = on_its_way(reports=reports)
    while producer.wire:
        producer.answer(UnknownTopicIdError("gone"))
    assert len(producer.ledger.returned) == len(producer.ledger.open) > 3
    return producer


@each_kind
def test_a_cut_may_be_interrupted_anywhere(*, reports: bool) -> None:
    """What was sent is stored once, in order, and counted once, though nobody sends or cuts anything more."""
    producers = at_every_line(lambda: lingering(reports=reports), Producer.cut)
    assert len(producers) > 100
    for producer in producers:
        producer.finish()
        assert producer.broker.stored == producer.sent
        producer.check_the_account()


@each_kind
def test_a_cut_that_is_interrupted_may_go_on_after_its_batches_were_answered(*, reports: bool) -> None:
    """What was cut goes out, and is not cut again by those who send more."""
    for producer in at_every_line(lambda: lingering(reports=reports), Producer.cut):
        producer.pump()
        while producer.wire:
            producer.answer()
        producer.send()
        producer.finish()
        assert producer.broker.stored == producer.sent
        producer.check_the_account()


@each_kind
def test_an_answer_may_be_interrupted_anywhere(*, reports: bool) -> None:
    """The batch is counted once; who waits for all of them is told when they are closed, and not before."""

    def answered(producer: Producer) -> None:
        producer.ledger.wait_for_all(mark := Mark())
        marks[producer] = mark
        producer.answer()

    marks: dict[Producer, Mark] = {}
    producers = at_every_line(lambda: on_its_way(reports=reports), answered)
    assert len(producers) > 10
    for producer in producers:
        mark = marks.get(producer)
        assert mark is None or not mark.done
        producer.finish()
        assert producer.broker.stored == producer.sent
        producer.check_the_account()
        assert mark is None or mark.number is None or mark.done


@each_kind
def test_a_refusal_may_be_interrupted_anywhere(*, reports: bool) -> None:
    """The message that the broker does not take counts as failed once, and the others are stored."""

    def prepare() -> Producer:
        producer = on_its_way(reports=reports)
        producer.bad = producer.sent[0]
        return producer

    producers = at_every_line(prepare, Producer.answer)
    assert len(producers) > 10
    for producer in producers:
        producer.finish()
        assert producer.broker.stored == producer.sent[1:]
        producer.check_the_account(failed=1)


@each_kind
def test_following_a_topic_may_be_interrupted_anywhere(*, reports: bool) -> None:
    """What came back is sent to the new topic once, in order."""
    producers = at_every_line(lambda: returned(reports=reports), Producer.follow)
    assert len(producers) > 100
    for producer in producers:
        producer.finish()
        assert producer.broker.stored == producer.sent
        producer.check_the_account()


@each_kind
def test_setting_it_right_may_be_interrupted_too(*, reports: bool) -> None:
    """A second Ctrl-C strikes while what the first one left is counted anew: it is counted anew again."""
    for lines in (5, 40, 90):
        for number in count(1):
            producer = returned(reports=reports)
            assert interrupted(lines, producer.follow, FILES)
            producer.outbox.lost()
            producer.ledger.is_in_doubt = True
            was_struck = interrupted(number, producer.buffer.recount, FILES)
            assert producer.ledger.is_in_doubt == was_struck
            producer.set_right()
            producer.finish()
            assert producer.broker.stored == producer.sent
            producer.check_the_account()
            if not was_struck:
                break
        assert number > 50


def test_a_topic_that_is_made_again_and_again_is_followed_by_its_ids() -> None:
    """An answer that is out of date, and names the same id twice, takes none of the three new ids from a batch."""
    producer = returned(reports=False)
    for topic_id in (8, 8, 9):
        producer.follow(topic_id)
        producer.pump()
        while producer.wire:
            producer.answer(UnknownTopicIdError("gone"))
            producer.pump()
    producer.follow(10)
    producer.finish()
    assert producer.broker.stored == producer.sent
    producer.check_the_account()


@pytest.mark.parametrize("ids", [(8, 8, 8, 8), (8, 9, 10)], ids=["the same", "new ones"])
def test_a_topic_is_not_followed_for_ever(ids: tuple[int, ...]) -> None:
    """A broker that names an id and refuses it, or always another: then the batches fail."""
    producer = returned(reports=False)
    for topic_id in ids:
        assert producer.ledger.returned
        producer.follow(topic_id)
        producer.pump()
        while producer.wire:
            producer.answer(UnknownTopicIdError("gone"))
            producer.pump()
    producer.check_the_account(failed=len(producer.sent))
    assert producer.broker.stored == []
