"""What is read back is compared with what was sent, and nothing lost, repeated or moved passes."""

from __future__ import annotations

import pytest
from bench.calling import calls_of, time_callers, time_round_trips
from bench.errors import VerificationError
from bench.pacing import Arrivals, paced_count, send_paced
from bench.values import InOrder, check_count, unique_values


def test_every_value_of_every_round_is_another() -> None:
    """No two values of a run are the same, and none is that of another round."""
    first, second = unique_values(100, 50, 0), unique_values(100, 50, 1)
    assert len({*first, *second}) == 200
    assert {len(value) for value in first} == {50}


def take_in_steps(found: list[bytes | None], step: int) -> None:
    """Compare what was found with a, b and c, so many at a time."""
    check = InOrder([b"a", b"b", b"c"])
    for at in range(0, len(found), step):
        check.take(found[at : at + step])
    check.finish()


@pytest.mark.parametrize(
    "found",
    [
        pytest.param([b"a", b"c"], id="lost"),
        pytest.param([b"a", b"a", b"b"], id="repeated"),
        pytest.param([b"b", b"a"], id="reordered"),
        pytest.param([b"a", b"B"], id="changed"),
        pytest.param([b"a", None], id="null"),
        pytest.param([b"a", b"b", b"c", b"d"], id="one too many"),
    ],
)
def test_a_wrong_value_is_found(found: list[bytes | None]) -> None:
    """Each way of coming back wrong is an error, whether the pieces are long or short."""
    for step in (1, len(found)):
        with pytest.raises(VerificationError):
            take_in_steps(found, step)


def test_a_missing_end_is_found() -> None:
    """A read that ends too early is an error."""
    check = InOrder([b"a", b"b"])
    check.take([b"a"])
    assert check.missing == 1
    with pytest.raises(VerificationError, match="expected 2 messages, read 1"):
        check.finish()
    check.take([b"b"])
    check.finish()


def test_a_wrong_count_is_found() -> None:
    """A timed pass that saw fewer messages, or fewer bytes, is an error."""
    check_count(2, 5, [b"ab", b"cde"])
    for messages, size in ((1, 5), (2, 4)):
        with pytest.raises(VerificationError):
            check_count(messages, size, [b"ab", b"cde"])


def test_a_round_trip_that_is_stored_elsewhere_is_found() -> None:
    """An offset that is not the next one is an error."""
    offsets = iter([0, 1, 3])
    with pytest.raises(VerificationError, match="expected offset 2, found 3"):
        time_round_trips([b"a", b"b", b"c"], 0, lambda value: next(offsets))


@pytest.mark.parametrize(("callers", "together"), [(1, 1_000), (8, 8_000), (64, 8_000)])
def test_callers_share_the_calls(callers: int, together: int) -> None:
    """More than eight callers make the same number of calls together, so that no run takes for ever."""
    assert calls_of(callers, 1_000) == together


def test_callers_are_told_apart_by_their_offsets() -> None:
    """What all threads stored comes back in the order of the offsets they were given."""
    stored: list[bytes] = []

    def produce(value: bytes) -> int:
        stored.append(value)
        return stored.index(value)

    values = [b"%d" % number for number in range(80)]
    _rate, found = time_callers(8, values, produce)
    assert found == stored
    assert sorted(found) == sorted(values)


def test_callers_who_share_an_offset_are_found() -> None:
    """Two callers that are given the same offset are an error."""
    with pytest.raises(VerificationError, match="expected 4 offsets"):
        time_callers(2, [b"a", b"b", b"c", b"d"], lambda value: 0)


def test_an_error_of_a_caller_is_raised() -> None:
    """What a call raises in its thread ends the run."""

    def fail(value: bytes) -> int:
        raise OSError(value)

    with pytest.raises(OSError, match="a"):
        time_callers(1, [b"a"], fail)


def test_paced_values_arrive_whole_and_in_order() -> None:
    """The reader takes exactly what the sender sent, and a value out of its place is an error."""
    sent: list[bytes] = []
    count = paced_count(0.008)
    assert count == 10
    send_paced(count, 100, sent.append)
    arrivals = Arrivals(count, 100)
    for value in sent[:-1]:
        arrivals.take(value)
    with pytest.raises(VerificationError, match="expected 10 messages, received 9"):
        arrivals.percentiles_us()
    for wrong in (sent[0], sent[-1][:-1], sent[-1][:-1] + b"x", None, b""):
        with pytest.raises(VerificationError, match="expected message 9"):
            arrivals.take(wrong)
    arrivals.take(sent[-1])
    middle, tail = arrivals.percentiles_us()
    assert 0 < middle <= tail
