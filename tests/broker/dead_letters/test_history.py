"""What events make of the history of one message."""

from __future__ import annotations

from tidelog.broker.dead_letters.history import MAX_ENTRIES, MessageHistory
from tidelog.broker.delivery.events import Event, Flag, Kind
from tidelog.protocol.messages import AttemptInfo, SettleError
from tidelog.protocol.offset_ranges import pack_ranges

BOOM = SettleError("ValueError", "boom")
MEMBER = 77


def event(kind: Kind, lease: int = 1, *ranges: tuple[int, int], **more: object) -> Event:
    """An event about offset 5 among others, unless other ranges are given."""
    return Event(kind, 1, 1, pack_ranges(ranges or [(0, 2), (4, 6)]), lease=lease, member=MEMBER, **more)  # pyright: ignore


def history(*events: Event) -> list[AttemptInfo]:
    """The history of offset 5, one event every ten microseconds."""
    found = MessageHistory(5)
    for at, one in enumerate(events):
        found.note(one, 1_000 + 10 * at)
    return found.entries()


def test_an_attempt_is_from_its_hand_over_to_its_end() -> None:
    """With who had it, when, how long it was to wait, and why."""
    released = event(Kind.RELEASED, 1, (5, 6), duration_us=500, error=BOOM)
    assert history(event(Kind.ACQUIRED), event(Kind.HANDED_OVER), released) == [
        AttemptInfo("failed", 1, 1_010, 1_020, MEMBER, 500, BOOM)
    ]


def test_every_end_has_its_word() -> None:
    """Only those that count have a number."""
    ends = [
        (event(Kind.RELEASED), "failed", 1),
        (event(Kind.RELEASED, flags=Flag.EXPIRED), "expired", 1),
        (event(Kind.REJECTED), "rejected", 1),
        (event(Kind.REJECTED, flags=Flag.AT_LIMIT | Flag.KEPT), "failed", 1),
        (event(Kind.REJECTED, flags=Flag.AT_LIMIT | Flag.EXPIRED), "expired", 1),
        (event(Kind.ACCEPTED), "acknowledged", 1),
        (event(Kind.RETURNED), "returned", 0),
        (event(Kind.SUSPECTED, flags=Flag.EXPIRED), "suspected", 0),
    ]
    for end, outcome, number in ends:
        [entry] = history(event(Kind.ACQUIRED), end)
        assert (entry.outcome, entry.number, entry.began_us) == (outcome, number, 1_000)


def test_attempts_are_counted_anew_after_a_redrive() -> None:
    """Two, given up, redriven, one more; what was given back unhandled counts in neither."""
    acquired = event(Kind.ACQUIRED)
    entries = history(
        acquired, event(Kind.RELEASED), acquired, event(Kind.RETURNED), acquired, event(Kind.REJECTED),
        event(Kind.MOVING), event(Kind.MOVED), event(Kind.REDRIVEN), acquired, event(Kind.ACCEPTED),
    )  # fmt: skip
    assert [(one.outcome, one.number) for one in entries] == [
        ("failed", 1),
        ("returned", 0),
        ("rejected", 2),
        ("dead-lettered", 0),
        ("redriven", 0),
        ("acknowledged", 1),
    ]


def test_others_and_other_leases_say_nothing() -> None:
    """Events of neighbours, and ends of leases that do not hold it, are passed over; a lease that runs comes last."""
    assert history(event(Kind.ACQUIRED, 1, (4, 5)), event(Kind.ACCEPTED, 1, (6, 9))) == []
    assert history(event(Kind.ACQUIRED), event(Kind.ACCEPTED, 2), event(Kind.HANDED_OVER, 2)) == [
        AttemptInfo("leased", 0, 1_000, member=MEMBER)
    ]
    assert history(event(Kind.RENEWED, 1, (5, 6)), Event(Kind.RENEWED, 1, 1, lease=1)) == []


def test_a_settled_message_has_a_last_event() -> None:
    """Acknowledged, dropped, resolved, or moved as often as it was given up; one that is open has none."""
    acquired, rejected = event(Kind.ACQUIRED), event(Kind.REJECTED, flags=Flag.KEPT)
    once = [acquired, rejected, event(Kind.MOVED), event(Kind.REDRIVEN)]
    cases: list[tuple[MessageHistory, list[Event], list[bool]]] = [
        (MessageHistory(5), [acquired, event(Kind.ACCEPTED)], [False, False]),
        (MessageHistory(5, is_settled=True), [acquired, event(Kind.ACCEPTED)], [False, True]),
        (MessageHistory(5, is_settled=True), [acquired, event(Kind.REJECTED)], [False, True]),
        (MessageHistory(5, is_settled=True), [*once[:3], event(Kind.RESOLVED)], [False, False, False, True]),
        (MessageHistory(5, redrives=0), once[:3], [False, False, True]),
        (MessageHistory(5, redrives=1), [*once, *once[:3]], [False, False, False, False, False, False, True]),
    ]
    for found, events, over in cases:
        said: list[bool] = []
        for at, one in enumerate(events):
            found.note(one, 1_000 + at)
            said.append(found.is_over)
        assert said == over


def test_a_copy_that_is_recorded_after_its_message_came_back_is_no_end() -> None:
    """Redriven before it was on record that it was copied: the record says nothing, and the next time counts."""
    acquired, rejected = event(Kind.ACQUIRED), event(Kind.REJECTED, flags=Flag.KEPT)
    found = MessageHistory(5, redrives=1)
    for one in (acquired, rejected, event(Kind.REDRIVEN), event(Kind.MOVED), acquired, rejected):
        found.note(one, 1_000)
        assert not found.is_over
    found.note(event(Kind.MOVED), 1_000)
    assert found.is_over
    assert [one.outcome for one in found.entries()] == [
        "rejected",
        "redriven",
        "rejected",
        "dead-lettered",
    ]


def test_a_message_that_goes_round_is_cut_to_its_last_attempts() -> None:
    """A history is as long as a reply can be, and ends with the last."""
    entries = history(*[event(Kind.ACQUIRED), event(Kind.RELEASED)] * (MAX_ENTRIES + 5))
    assert (len(entries), entries[-1].number) == (MAX_ENTRIES, MAX_ENTRIES + 5)


def test_a_message_in_a_lease_has_a_last_event() -> None:
    """It was taken into that lease, or handed over in it if it was; one whose copy is being made was given up."""
    acquired, handed = event(Kind.ACQUIRED, 2), event(Kind.HANDED_OVER, 2)
    counted, rejected = event(Kind.ACQUIRED, 2, flags=Flag.COUNTED), event(Kind.REJECTED, 2, flags=Flag.KEPT)
    before = [event(Kind.ACQUIRED), event(Kind.HANDED_OVER), event(Kind.RELEASED)]
    again = [acquired, rejected, event(Kind.REDRIVEN), acquired, rejected]
    cases: list[tuple[MessageHistory, list[Event]]] = [
        (MessageHistory(5, lease=2), [*before, acquired]),
        (MessageHistory(5, lease=2, is_handed=True), [*before, acquired, handed]),
        (MessageHistory(5, lease=2, is_handed=True), [*before, counted]),
        (MessageHistory(5, redrives=0, is_copied=False), [*before, acquired, rejected]),
        (MessageHistory(5, redrives=1, is_copied=False), again),
        (MessageHistory(5, is_settled=True), [event(Kind.DAMAGED)]),
    ]
    for found, events in cases:
        said: list[bool] = []
        for at, one in enumerate(events):
            found.note(one, 1_000 + at)
            said.append(found.is_over)
        assert said == [False] * (len(events) - 1) + [True]


def test_behind_a_cut_an_attempt_begins_with_its_hand_over() -> None:
    """Who had it is not known; the others are told as they were."""
    found = MessageHistory(5)
    found.cut()
    for at, one in enumerate((event(Kind.HANDED_OVER, 7), event(Kind.RELEASED, 7, error=BOOM), event(Kind.ACQUIRED))):
        found.note(one, 1_000 + at)
    assert found.entries() == [
        AttemptInfo("failed", 1, 1_000, 1_001, 0, 0, BOOM),
        AttemptInfo("leased", 0, 1_002, 0, MEMBER),
    ]
