"""A batch in hand: what is left of it, and where it is, however it ends."""

from __future__ import annotations

import pytest

from tidelog import Message, MessageBatch
from tidelog.client.core.directory import TopicEntry
from tidelog.client.core.hand import Hand
from tidelog.client.core.position import Position
from tidelog.protocol.batch import decode_batch, encode_batch


def position(partition: int = 2) -> Position:
    """Return where a reader is: at offset 9 of a partition."""
    return Position(
        TopicEntry("default/t", "t", id=1, count=1, partitions=3, max_message_bytes=None, version=1), partition, 9
    )


@pytest.fixture
def hand() -> Hand[Message]:
    """Five messages of t/2."""
    data = encode_batch([b"%d" % at for at in range(5)], timestamps_us=[1] * 5)
    return Hand(MessageBatch("t", 1, 2, decode_batch(data)))


def test_the_place_follows_the_iterator(hand: Hand[Message]) -> None:
    """The next offset is that of the message that comes next; of other partitions, and at the end, the position's."""
    for offset in range(5):
        assert (len(hand), hand.next_offset(position())) == (5 - offset, offset)
        assert hand.next_offset(position(1)) == 9
        assert next(hand.items).offset == offset
    assert (len(hand), hand.next_offset(position())) == (0, 9)
    assert (len(Hand[Message]()), Hand[Message]().next_offset(position())) == (0, 9)


@pytest.mark.parametrize("taken", range(6))
def test_what_is_kept_back_keeps_its_place(hand: Hand[Message], taken: int) -> None:
    """After any number of messages, told once or more, before or after the iterator notices."""
    for _ in range(taken):
        next(hand.items)
    hand.keep_back()
    for _ in range(2):
        assert [*hand.items] == []
        hand.keep_back()
        assert hand.next_offset(position()) == (taken if taken < 5 else 9)


def test_what_is_dropped_leaves_no_place(hand: Hand[Message]) -> None:
    """It is fetched again, or handed out another way: the position alone says where that is."""
    next(hand.items)
    hand.drop()
    assert ([*hand.items], hand.batch, hand.next_offset(position())) == ([], None, 9)
