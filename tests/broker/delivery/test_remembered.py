"""How long what settles did is remembered."""

from __future__ import annotations

from tidelog.broker.delivery.offset_set import OffsetSet
from tidelog.broker.delivery.remembered import Deed, Remembered

SECOND = 1_000_000
ACCEPT = 1


def test_the_last_64_requests_of_a_member_are_known():
    """The 65th is forgotten; another member's requests do not count against it."""
    memory = Remembered()
    for number in range(1, 66):
        memory.note(7, number, Deed(100 + number, ACCEPT), OffsetSet([number]), 0)
        memory.note(8, number, Deed(300 + number, ACCEPT), OffsetSet([number]), 0)
    assert memory.done(7, 101, ACCEPT) is None
    assert memory.done(7, 102, ACCEPT) == OffsetSet([2])
    assert memory.done(8, 102, ACCEPT) is None


def test_items_of_one_request_count_once():
    """A request with a hundred items is one of the 64."""
    memory = Remembered()
    for lease in range(100):
        memory.note(7, 1, Deed(lease, ACCEPT), OffsetSet([lease]), 0)
    for number in range(2, 65):
        memory.note(7, number, Deed(1_000 + number, ACCEPT), OffsetSet([number]), 0)
    assert memory.done(7, 0, ACCEPT) == OffsetSet([0])


def test_a_member_is_known_for_ten_minutes_after_its_last_settle():
    """Then it is forgotten, with the next settle of any other."""
    memory = Remembered()
    memory.note(7, 1, Deed(1, ACCEPT), OffsetSet([1]), 0)
    memory.note(8, 1, Deed(2, ACCEPT), OffsetSet([2]), 600 * SECOND)
    assert memory.done(7, 1, ACCEPT) == OffsetSet([1])
    memory.note(8, 2, Deed(2, ACCEPT), OffsetSet([3]), 600 * SECOND + 1)
    assert memory.done(7, 1, ACCEPT) is None
    assert memory.done(8, 2, ACCEPT) == OffsetSet([2, 3])


def test_the_last_ten_thousand_settles_by_token_are_known():
    """However many leases they are of, and however long ago."""
    memory = Remembered()
    for at in range(10_001):
        memory.note(0, 0, Deed(at, ACCEPT), OffsetSet([at]), at * SECOND)
    assert memory.done(0, 0, ACCEPT) is None
    assert memory.done(0, 1, ACCEPT) == OffsetSet([1])
