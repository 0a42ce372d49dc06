"""Settles of one member: merged into ranges, numbered, repeated, tried again in halves."""

from __future__ import annotations

import math

import pytest
from tests.client.core.leases import DESK, lease_of

from tidelog.client.core.held_lease import HeldLease
from tidelog.client.core.lease_book import LeaseBook
from tidelog.client.core.settles import MAX_IN_FLIGHT, Flight, How, Settles
from tidelog.protocol.errors import LeaseLostError, OverloadedError, UnknownGroupError
from tidelog.protocol.messages import ErrorInfo, Settle, SettleReply, Settling
from tidelog.protocol.offset_ranges import iter_ranges

ACK, NACK = How(Settling.ACCEPT), How(Settling.RELEASE, 5, 0, ("ValueError", "no", ""))
LOST = ErrorInfo.of(LeaseLostError("gone"))
BUSY = ErrorInfo.of(OverloadedError("busy"))


def book_of(*leases: HeldLease) -> LeaseBook:
    """Return a book that holds leases."""
    book = LeaseBook(Settles(7))
    book.settles.group = (3, 1)
    for lease in leases:
        book.take(lease)
    DESK.dirty = book.dirty
    return book


def ack(lease: HeldLease, *offsets: int) -> None:
    """Do what `message.ack()` does."""
    lease.acked += offsets
    if lease.is_clean:
        lease.is_clean = False
        lease.desk.dirty.append(lease)


def said(flight: Flight | None) -> list[tuple[str, int, list[tuple[int, int]]]]:
    """Return what a request says: what, lease, ranges of each item."""
    assert flight is not None
    assert isinstance(flight.message, Settle)
    return [(item.what.name, item.lease, [*iter_ranges(item.ranges)]) for item in flight.message.items]


def test_acknowledgements_become_ranges() -> None:
    """In order one range; in any order the ranges they are; nothing twice, whoever says it again."""
    lease = lease_of((0, 1000))
    book = book_of(lease)
    ack(lease, *range(400))
    book.gather()
    assert said(book.settles.next_request([], 0.0)) == [("ACCEPT", 1, [(0, 400)])]
    ack(lease, 999, 500, 400, 500, 3, 401)
    book.gather()
    assert said(book.settles.next_request([], 0.0)) == [("ACCEPT", 1, [(400, 402), (500, 501), (999, 1000)])]
    ack(lease, 500)
    book.gather()
    assert book.settles.next_request([], 0.0) is None
    assert (lease.left, book.counts["lost"]) == (596, 0)


def test_the_first_outcome_of_a_message_counts() -> None:
    """In the order in which they were said, acknowledgements by the way included; another outcome is counted lost."""
    lease = lease_of((0, 10))
    book = book_of(lease)
    ack(lease, 1)
    entry, conflicts = book.settle(lease, [1], NACK)
    assert (entry, conflicts) == (None, 1)
    entry, conflicts = book.settle(lease, [2], NACK)
    assert entry is not None
    assert conflicts == 0
    ack(lease, 2)
    book.gather()
    assert book.counts["lost"] == 2
    assert said(book.settles.next_request([], 0.0)) == [("ACCEPT", 1, [(1, 2)]), ("RELEASE", 1, [(2, 3)])]


def test_requests_are_numbered_and_bounded() -> None:
    """Entries with the same outcome share an item; at most 32 requests wait for answers; a number goes out again."""
    lease, other = lease_of((0, 100)), lease_of((0, 5), number=2)
    book = book_of(lease, other)
    settles = book.settles
    for at in (5, 6, 7):
        book.settle(lease, [at], NACK)
    book.settle(other, [0, 1, 2, 3, 4], ACK)
    first = settles.next_request([], 0.0)
    assert said(first) == [("RELEASE", 1, [(5, 8)]), ("ACCEPT", 2, [(0, 5)])]
    for at in range(10, 10 + MAX_IN_FLIGHT):
        book.settle(lease, [at], ACK)
        flight = settles.next_request([], 0.0)
        assert (flight is None) == (at == 10 + MAX_IN_FLIGHT - 1)
    assert [flight.message.number for flight in settles.to_send()] == [*range(1, MAX_IN_FLIGHT + 1)]
    for flight in settles.to_send():
        flight.is_sent = True
    assert settles.to_send() == []
    settles.lost_connection()
    assert [flight.message.number for flight in settles.to_send()] == [*range(1, MAX_IN_FLIGHT + 1)]


def test_a_request_takes_errors_up_to_a_mebibyte() -> None:
    """Of 600 messages that failed, each in its own way, 256 fit with 4,096 bytes; one error of all is sent once."""
    lease = lease_of((0, 2_000))
    book = book_of(lease)
    for at in range(600):
        book.settle(lease, [at], NACK._replace(error=("E" * 46, f"{at:05}" + "é" * 1_000, "t" * 1_999 + "é" * 23)))
    sizes: list[int] = []
    while (flight := book.settles.next_request([], 0.0)) is not None:
        sizes.append(len(flight.message.items))
    assert sizes == [256, 256, 88]
    for at in range(1_000, 2_000):
        book.settle(lease, [at], NACK._replace(error=("E", "t" * 2_000, "b" * 2_000)))
    assert [said(book.settles.next_request([], 0.0)), book.settles.next_request([], 0.0)] == [
        [("RELEASE", 1, [(1_000, 2_000)])],
        None,
    ]


def test_answers_are_final_or_tried_again() -> None:
    """What the broker could not do now goes out under a new number; what it refuses for good is told."""
    lease = lease_of((0, 100))
    book = book_of(lease)
    settles = book.settles
    book.settle(lease, [1], ACK)
    flight = settles.next_request([], 0.0)
    assert flight is not None
    assert settles.answered(flight, SettleReply([BUSY]), 0.0) == ([], True)
    again = settles.next_request([], 0.0)
    assert said(again) == [("ACCEPT", 1, [(1, 2)])]
    assert again is not None
    assert again.message.number == 2
    closed = settles.refused(again, UnknownGroupError("gone"))
    assert [(entry.is_answered, type(entry.error)) for entry in closed] == [(True, UnknownGroupError)]
    assert lease.unanswered == 0


def test_a_refused_range_is_tried_again_in_halves() -> None:
    """The broker does nothing of a range with one message that was settled elsewhere: that one is found, and the
    others are settled; of a lease that has ended nothing is tried again."""
    lease = lease_of((0, 8))
    book = book_of(lease)
    settles = book.settles
    entry, _ = book.settle(lease, [*range(8)], ACK)
    taken: set[int] = set()
    for _round in range(10):
        flight = settles.next_request([], 0.0)
        if flight is None:
            break
        results: list[ErrorInfo | None] = []
        for item in flight.message.items:
            offsets = {at for start, end in iter_ranges(item.ranges) for at in range(start, end)}
            results.append(LOST if 5 in offsets else None)
            taken |= set() if 5 in offsets else offsets
        closed, _pause = settles.answered(flight, SettleReply(results), 0.0)
        book.confirmed(closed, 0, 0.0)
    assert taken == {0, 1, 2, 3, 4, 6, 7}
    assert entry is not None
    assert entry.is_answered
    assert isinstance(entry.error, LeaseLostError)
    assert (book.counts["acknowledged"], book.counts["lost"]) == (7, 1)
    assert [report.offsets for report in book.reports] == [[5]]
    assert book.leases == {}
    ended = lease_of((0, 8), number=3)
    book.take(ended)
    book.settle(ended, [*range(8)], ACK)
    flight = settles.next_request([], 0.0)
    assert flight is not None
    closed, _pause = settles.answered(flight, SettleReply([LOST]), ended.expires_at + 1)
    assert len(closed) == 1


def test_hand_overs_are_reported_once_and_without_what_is_settled() -> None:
    """Only what the user has and said nothing of; in the order of offsets."""
    lease = lease_of((0, 10), (20, 30))
    book = book_of(lease)
    lease.handed = 12
    ack(lease, *range(10), 21)
    book.gather()
    (report,) = book.hand_overs()
    assert [*iter_ranges(report.ranges)] == [(20, 21)]
    assert book.hand_overs() == []
    lease.handed = 14
    (report,) = book.hand_overs()
    assert [*iter_ranges(report.ranges)] == [(22, 24)]


def test_giving_back_is_by_what_was_handed_out() -> None:
    """What was handed out in one way, the rest uncounted, what is settled not at all."""
    lease = lease_of((0, 10))
    book = book_of(lease)
    lease.handed = 3
    ack(lease, 0)
    book.gather()
    book.give_back(lease, How(Settling.SUSPECT))
    assert said(book.settles.next_request([], 0.0)) == [
        ("ACCEPT", 1, [(0, 1)]),
        ("SUSPECT", 1, [(1, 3)]),
        ("RETURN", 1, [(3, 10)]),
    ]
    assert lease.left == 0


@pytest.mark.parametrize("count", [1, 7])
def test_a_lease_ends_with_its_last_answer(count: int) -> None:
    """It is kept until everything of it is confirmed, so that a reconnect names it."""
    lease = lease_of((0, count))
    book = book_of(lease)
    book.settle(lease, [*range(count)], ACK)
    flight = book.settles.next_request([], 0.0)
    assert [*book.leases] == [1]
    assert flight is not None
    closed, _pause = book.settles.answered(flight, SettleReply([None]), 0.0)
    book.confirmed(closed, 0, 0.0)
    assert book.leases == {}
    assert book.counts["acknowledged"] == count


def test_what_expired_in_the_buffer_is_passed_over_and_given_back() -> None:
    """It counts as expired, once, and what was handed out can be settled still: the broker says whether its lease goes
    on. A lease that is known to be lost is not mentioned."""
    lease, lost = lease_of((0, 10)), lease_of((0, 5), number=2)
    book = book_of(lease, lost)
    lease.handed = 3
    ack(lease, 0)
    book.expire(lease)
    book.expire(lease)
    lost.is_lost = True
    book.expire(lost)
    book.expire(lost)
    assert (book.load(0.0, 0)[0], book.counts["expired"], lease.left) == (0, 12, 2)
    flight = book.settles.next_request(book.hand_overs(), 0.0)
    assert said(flight) == [("ACCEPT", 1, [(0, 1)]), ("RETURN", 1, [(3, 10)])]
    assert flight is not None
    assert [[*iter_ranges(each.ranges)] for each in flight.message.hand_overs] == [[(1, 3)]]
    ack(lease, 1)
    book.gather()
    closed, _pause = book.settles.answered(flight, SettleReply([None, LOST]), lease.expires_at)
    book.confirmed(closed, 0, 0.0)
    assert (book.counts["acknowledged"], book.counts["returned"], book.counts["lost"]) == (1, 0, 0)
    assert said(book.settles.next_request([], 0.0)) == [("ACCEPT", 1, [(1, 2)])]


@pytest.mark.parametrize("settled_elsewhere", [1, 3, 1000], ids=["one", "three", "all"])
def test_halves_cost_few_requests(settled_elsewhere: int) -> None:
    """However many of 1,000 were settled elsewhere, they are found in 11 requests more, with an item for each half: at
    most 20 for each of few, 2,000 for all."""
    lease = lease_of((0, 1000))
    book = book_of(lease)
    step = 1000 // settled_elsewhere
    gone = {*range(0, 1000, step)} if settled_elsewhere > 3 else {at * step for at in range(settled_elsewhere)}
    book.settle(lease, [*range(1000)], ACK)
    requests = items = 0
    while (flight := book.settles.next_request([], 0.0)) is not None:
        requests += 1
        items += len(flight.message.items)
        results: list[ErrorInfo | None] = []
        for item in flight.message.items:
            spans = [*iter_ranges(item.ranges)]
            results.append(LOST if any(at in gone for start, end in spans for at in range(start, end)) else None)
        closed, _pause = book.settles.answered(flight, SettleReply(results), 0.0)
        book.confirmed(closed, 0, 0.0)
    assert requests <= 12
    assert items <= min(1 + 20 * settled_elsewhere, 2000)
    assert (book.counts["acknowledged"], book.counts["lost"]) == (1000 - len(gone), len(gone))
    assert book.leases == {}


def test_what_ended_by_the_clock_holds_nothing() -> None:
    """A lease of 30 s counts for 30 s: then it is neither in hand nor room taken. It is forgotten once nothing of it
    waits here or is on its way, and an acknowledgement that comes still is told to the broker."""
    lease = lease_of((0, 4))
    book = book_of(lease)
    lease.handed = 4
    assert (book.load(29.0, 29_000_000), book.next_end(29.0, 29_000_000)) == ((0, 4), 30.0)
    ack(lease, 0)
    book.gather()
    assert (book.load(30.0, 30_000_000), book.next_end(30.0, 30_000_000)) == ((0, 0), math.inf)
    book.forget_over(30.0, 30_000_000)
    assert [*book] == [lease]  # what was acknowledged is not answered
    (flight,) = [book.settles.next_request([], 30.0)]
    assert flight is not None
    entries, _ = book.settles.answered(flight, SettleReply([None]), 30.0)
    book.confirmed(entries, 30_000_000, 30.0)
    book.forget_over(29.0, 29_000_000)
    assert [*book] == [lease]
    book.forget_over(30.0, 30_000_000)
    assert [*book] == []
    ack(lease, 1)
    book.gather()
    assert [[*entry.offsets] for entry in book.settles.unanswered()] == [[1]]
    assert book.statistics(30.0, 30_000_000).in_hand == 0


def test_hand_overs_are_told_in_the_end() -> None:
    """What no request had room for is told by the next, and what a connection took with it over the one after."""
    busy, lease = lease_of((0, MAX_IN_FLIGHT)), lease_of((100, 110), number=2)
    book = book_of(busy, lease)
    for offset in range(MAX_IN_FLIGHT):
        book.settle(busy, [offset], How(Settling.ACCEPT))
        assert book.settles.has_room
        assert book.settles.next_request([], 0.0) is not None
    assert not book.settles.has_room  # nobody asks for hand-overs then: they count as told once they are asked for
    lease.handed = 5
    (told,) = book.hand_overs()
    assert [*iter_ranges(told.ranges)] == [(100, 105)]
    assert book.hand_overs() == []
    book.settle(lease, [100], How(Settling.ACCEPT))
    book.tell_again()
    (again,) = book.hand_overs()
    assert [*iter_ranges(again.ranges)] == [(101, 105)]
