"""Retry and Backoff: what they take, and the sixteen bytes that a record carries."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from tidelog import Backoff, Retry
from tidelog.client.core.retries import backoff_info, backoff_of, pack_retry, unpack_retry
from tidelog.protocol.columns import RETRY
from tidelog.protocol.retries import NO_JITTER, BackoffCode, check_retries


def test_the_defaults_are_those_of_the_broker() -> None:
    """Exponential from one second to ten minutes, doubling, a fifth of jitter."""
    assert Backoff() == Backoff("exponential", initial=1.0, max=600.0, multiplier=2.0, jitter=0.2)
    assert Retry() == Retry(max_attempts=None, backoff=None)


def test_a_timedelta_is_seconds() -> None:
    """Waits may be timedeltas, and are kept as seconds."""
    assert Backoff("constant", initial=timedelta(milliseconds=1500), max=timedelta(minutes=5)) == Backoff(
        "constant", initial=1.5, max=300
    )


@pytest.mark.parametrize(
    ("retry", "fields"),
    [
        (Retry(), (0, 0, 0, 0, 0, 0)),
        (Retry(max_attempts=7), (7, 0, 0, 0, 0, 0)),
        (Retry(65_535, Backoff("constant", initial=0.25)), (65_535, 3, 20, 2_000, 250, 600_000)),
        (Retry(backoff=Backoff("linear", initial=2, max=30, jitter=0)), (0, 2, 255, 2_000, 2_000, 30_000)),
        (Retry(backoff=Backoff(initial=0.001, max=4_294_967.295, multiplier=1.005)), (0, 1, 20, 1_005, 1, 2**32 - 1)),
    ],
)
def test_a_record_carries_sixteen_bytes(retry: Retry, fields: tuple[int, ...]) -> None:
    """Each field where storage expects it; what is not given is zero, and no jitter is 255."""
    assert unpack_retry(pack_retry(retry)) == (None if retry == Retry() else retry)
    packed = np.frombuffer(pack_retry(retry), dtype=RETRY)
    assert packed[0].item() == fields
    check_retries(packed)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kind": "fibonacci"}, "backoff.kind: expected exponential, linear or constant, found 'fibonacci'"),
        ({"initial": 0}, "backoff.initial: expected 0.001 to 4294967 seconds, found 0"),
        ({"initial": -1}, "backoff.initial: expected 0 or more seconds, found -1"),
        ({"initial": 0.0015}, "backoff.initial: expected a multiple of 0.001, found 0.0015"),
        ({"initial": 601}, "backoff.initial: expected at most backoff.max=600 s, found 601"),
        (
            {"max": timedelta(days=50)},
            "backoff.max: expected 0.001 to 4294967 seconds, found datetime.timedelta(days=50)",
        ),
        ({"multiplier": 0.5}, "backoff.multiplier: expected 1 to 1000, found 0.5"),
        ({"multiplier": float("nan")}, "backoff.multiplier: expected 1 to 1000, found nan"),
        ({"jitter": 20}, "backoff.jitter: expected 0 to 1, found 20"),
        ({"jitter": 0.125}, "backoff.jitter: expected a multiple of 0.01, found 0.125"),
    ],
)
def test_a_backoff_out_of_range_is_refused(arguments: dict[str, Any], message: str) -> None:
    """A ValueError names the field, what it takes and what was found."""
    with pytest.raises(ValueError) as refusal:
        Backoff(**arguments)
    assert str(refusal.value) == message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kind": 3}, "backoff.kind: expected exponential, linear or constant, found 3"),
        ({"initial": "1s"}, "backoff.initial: expected seconds or a timedelta, found '1s'"),
        ({"jitter": True}, "backoff.jitter: expected a number from 0 to 1, found True"),
    ],
)
def test_a_backoff_of_another_type_is_refused(arguments: dict[str, Any], message: str) -> None:
    """A TypeError names the field; a truth value is no number."""
    with pytest.raises(TypeError) as refusal:
        Backoff(**arguments)
    assert str(refusal.value) == message


def test_attempts_out_of_range_are_refused() -> None:
    """At least one attempt, at most what the record has room for, and a whole number."""
    for wrong in (0, 65_536, -1):
        with pytest.raises(ValueError, match=f"retry.max_attempts: expected .* from 1 to 65535, found {wrong}"):
            Retry(max_attempts=wrong)
    with pytest.raises(TypeError, match=r"retry.max_attempts: expected a whole number from 1 to 65535, found 2.5"):
        Retry(max_attempts=2.5)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match=r"retry.backoff: expected a tidelog.Backoff, found str"):
        Retry(backoff="linear")  # pyright: ignore[reportArgumentType]


def test_a_backoff_and_the_setting_of_a_group_are_the_same() -> None:
    """What a group is given comes back as it was."""
    for given in (Backoff(), Backoff("linear", initial=0.25, max=1, jitter=0), Backoff(multiplier=1.001, jitter=1)):
        assert backoff_of(backoff_info(given)) == given


def test_the_kinds_are_those_of_the_column() -> None:
    """The numbers of the format are the client's."""
    for code, word in ((1, "exponential"), (2, "linear"), (3, "constant")):
        assert BackoffCode(code).word == word
        assert BackoffCode.from_word(word) == code
    assert np.frombuffer(pack_retry(Retry(backoff=Backoff(jitter=0))), dtype=RETRY)["jitter_percent"][0] == NO_JITTER


@pytest.mark.parametrize(
    ("fields", "retry"),
    [
        ((0, 1, 0, 0, 1_000, 0), Retry(None, Backoff("exponential", initial=1))),
        ((3, 3, 0, 0, 0, 0), Retry(3, Backoff("constant"))),
        ((0, 2, NO_JITTER, 0, 0, 500), Retry(None, Backoff("linear", initial=0.5, max=0.5, jitter=0))),
        ((0, 1, 0, 1_000, 900_000, 0), Retry(None, Backoff(initial=900, max=900, multiplier=1))),
        ((7, 9, 0, 0, 1, 0), Retry(7)),
        ((0, 9, 200, 1, 7, 1), None),
    ],
)
def test_what_a_record_leaves_to_its_group_is_shown_as_usual(fields: tuple[int, ...], retry: Retry | None) -> None:
    """A record of another client may say less than a Backoff does; a kind of a later version is shown as none."""
    assert unpack_retry(np.array([fields], RETRY).tobytes()) == retry
