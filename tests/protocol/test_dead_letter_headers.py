"""The headers of a dead letter: written, read, and what is none of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidelog.protocol.dead_letter_headers import DeadLetterHeaders, original_of, redrives_of

TIME_US = 1_736_866_800_000_001  # 2025-01-14T15:00:00.000001Z
SAID = DeadLetterHeaders(
    "rejected", "default/g", "default/orders", 3, 7, 2, "ValueError: x", TIME_US, TIME_US + 9, 1, 2
)


def test_they_are_text_that_a_consumer_can_read() -> None:
    """Names and values, byte for byte."""
    assert SAID.pairs() == [
        ("tidelog.dlq.reason", b"rejected"),
        ("tidelog.dlq.error", b"ValueError: x"),
        ("tidelog.dlq.group", b"default/g"),
        ("tidelog.dlq.topic", b"default/orders~2"),
        ("tidelog.dlq.partition", b"3"),
        ("tidelog.dlq.offset", b"7"),
        ("tidelog.dlq.attempts", b"2"),
        ("tidelog.dlq.first_delivered_at", b"2025-01-14T15:00:00.000001Z"),
        ("tidelog.dlq.at", b"2025-01-14T15:00:00.000010Z"),
        ("tidelog.redrives", b"1"),
    ]
    assert str(SAID.original) == "orders~2/3@7"


def test_what_is_not_known_is_left_out() -> None:
    """No error, no first delivery, no redrive: no header."""
    names = [name for name, _ in DeadLetterHeaders("expired", "default/g", "default/t", 0, 0, 1, at_us=TIME_US).pairs()]
    assert not {"tidelog.dlq.error", "tidelog.dlq.first_delivered_at", "tidelog.redrives"} & {*names}


@given(
    st.builds(
        DeadLetterHeaders,
        reason=st.sampled_from(["rejected", "max-attempts", "expired"]),
        group=st.just("default/g"),
        topic=st.just("default/t"),
        partition=st.integers(0, 1 << 29),
        offset=st.integers(0, 1 << 59),
        attempts=st.integers(0, 65_535),
        error=st.none() | st.text(),
        first_delivered_us=st.integers(0, 1 << 55),
        at_us=st.integers(0, 1 << 55),
        redrives=st.integers(0, 1_000),
        topic_count=st.integers(1, 9),
    )
)
def test_they_are_read_as_they_were_written(said: DeadLetterHeaders) -> None:
    """Whatever stands beside them; half of a surrogate pair has no bytes, and is replaced."""
    own = [("h", b"1"), ("x-tidelog.redrives", b"9"), ("tidelog.dlq.reason.x", None)]
    read = DeadLetterHeaders.read([*own, *said.pairs(), ("h", None)])
    assert read is not None
    expected = None if said.error is None else said.error.encode("utf-8", "replace").decode()
    assert (read.error, read.original, read.redrives) == (expected, said.original, said.redrives)
    assert original_of([*own, *said.pairs(), ("h", None)]) == said.original
    assert (read.attempts, read.first_delivered_us, read.at_us) == (said.attempts, said.first_delivered_us, said.at_us)


@given(st.lists(st.tuples(st.sampled_from([name for name, _ in SAID.pairs()]), st.none() | st.binary(max_size=20))))
def test_what_no_broker_wrote_is_no_dead_letter(pairs: list[tuple[str, bytes | None]]) -> None:
    """Any bytes under these names are read as something or as nothing, never an error."""
    DeadLetterHeaders.read(pairs)
    original_of(pairs)
    assert redrives_of(pairs) >= 0


def test_a_message_without_them_is_none() -> None:
    """Nor is one with only some of them."""
    assert DeadLetterHeaders.read([("a", b"b")]) is None
    assert DeadLetterHeaders.read(SAID.pairs()[:4]) is None
    assert original_of(SAID.pairs()[:5]) is None
    assert redrives_of([("tidelog.redrives", b"many")]) == 0
    assert redrives_of([("tidelog.redrives", b"2")]) == 2
