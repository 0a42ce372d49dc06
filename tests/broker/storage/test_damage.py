"""Damaged ranges are kept in order, merged, and told once."""

from __future__ import annotations

from tidelog.broker.storage.damage import Damage, DamagedRange


def test_touching_ranges_become_one() -> None:
    """Readers are sent past all of it at once."""
    damage = Damage()
    for start, end in ((10, 20), (30, 40), (20, 30), (5, 5)):
        damage.add(start, end)
    assert damage.ranges == [DamagedRange(10, 40)]


def test_an_offset_finds_its_range() -> None:
    """Start inclusive, end exclusive."""
    damage = Damage()
    damage.add(30, 40)
    damage.add(10, 20)
    assert [damage.find(offset) for offset in (9, 10, 19, 20)] == [
        None,
        DamagedRange(10, 20),
        DamagedRange(10, 20),
        None,
    ]
    assert damage.next_start(0, 100) == 10
    assert damage.next_start(20, 100) == 30
    assert damage.next_start(20, 25) == 25
    assert damage.next_start(40, 100) == 100


def test_news_is_told_once() -> None:
    """Known ranges, and parts of what is there, are no news."""
    damage = Damage()
    damage.add(10, 20)
    damage.add(12, 15)
    damage.add(50, 60, known=True)
    assert damage.take_new() == [DamagedRange(10, 20)]
    assert damage.take_new() == []


def test_what_turns_out_to_be_known_or_gone_is_no_news() -> None:
    """A range that recovery found again before it was said to be known is not told, nor one that was removed."""
    damage = Damage()
    for start, end in ((10, 20), (30, 40), (50, 60)):
        damage.add(start, end)
    damage.add(30, 40, known=True)
    damage.add(49, 55, known=True)
    damage.forget_before(20)
    assert damage.take_new() == [DamagedRange(50, 60)]


def test_what_retention_removed_is_forgotten() -> None:
    """A range that reaches past the start stays."""
    damage = Damage()
    damage.add(10, 20)
    damage.add(30, 40)
    damage.forget_before(35)
    assert damage.ranges == [DamagedRange(30, 40)]


def test_the_error_names_range_and_next() -> None:
    """What a client needs to go on is in the details."""
    error = DamagedRange(3, 9).error("log")
    assert error.code == "CORRUPT"
    assert error.details == {"start": 3, "end": 9, "next": 9}
