"""The error tree: numbers, pickling, and the way over the wire."""

import pickle

import pytest

from tidelog.protocol.errors import ERRORS, OffsetOutOfRangeError, TidelogError, error_from_wire


def test_numbers_and_codes_are_unique():
    """No two errors share a number or a code, so neither can be mistaken for another."""
    assert len({error.code for error in ERRORS.values()}) == len(ERRORS)
    assert all(number == error.number for number, error in ERRORS.items())


def test_numbers_do_not_change():
    """Numbers on the wire are fixed for ever; a sample of each family stands for its place."""
    numbers = {error.code: number for number, error in ERRORS.items()}
    expected = {"INVALID_REQUEST": 1, "MALFORMED_FRAME": 2, "UNKNOWN_TOPIC": 20, "SEQUENCE_GAP": 33}
    expected |= {"OFFSET_OUT_OF_RANGE": 40, "CORRUPT": 42, "LOG_FENCED": 50, "CANNOT_CONNECT": 101}
    assert {code: numbers[code] for code in expected} == expected


@pytest.mark.parametrize("kind", ERRORS.values(), ids=lambda kind: kind.__name__)
def test_every_error_pickles_with_its_details(kind: type[TidelogError]):
    """An error crosses a process boundary whole."""
    copy = pickle.loads(pickle.dumps(kind("expected a, found b", start=3, end=None)))
    assert type(copy) is kind
    assert (str(copy), copy.details) == ("expected a, found b", {"start": 3, "end": None})


def test_a_number_from_a_later_broker_becomes_the_base_class():
    """An unknown error is still a TidelogError with its message."""
    error = error_from_wire(99_999, "later", {"a": 1})
    assert type(error) is TidelogError
    assert str(error) == "later"


def test_error_from_wire_is_typed():
    """A known number becomes its class."""
    error = error_from_wire(40, "no", {"start": 1, "end": 2})
    assert type(error) is OffsetOutOfRangeError
    assert error.details == {"start": 1, "end": 2}
