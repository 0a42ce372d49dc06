"""What a producer has taken and not cut, while other threads append."""

from __future__ import annotations

import math
from itertools import count

import pytest
from tests.client.core.interrupting import at_line

from tidelog.client.core import intake as intake_module
from tidelog.client.core.consignment import consign
from tidelog.client.core.directory import Directory, TopicEntry
from tidelog.client.core.intake import Buffer, Now
from tidelog.client.core.outbox import Outbox
from tidelog.client.core.partitioner import StickyPartitioner
from tidelog.client.core.producing import producer_options
from tidelog.client.core.rows import KEYED, VALUE, Rows

OPTIONS = producer_options(
    linger=0.5,
    batch_bytes=1000,
    buffer_bytes=10_000,
    compression=None,
    durability=None,
    max_block=60,
    delivery_timeout=120,
)
TOPIC = TopicEntry("default/t", "t", 7, 1, 1, None, 1)


def taken(buffer: Buffer) -> list[list[bytes | None]]:
    """Return the values of each batch that was cut."""
    return [list(batch.values) for batch in buffer.ledger.open]


def test_what_comes_while_a_topic_is_cut_begins_the_next_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message appended by another thread between making the batches and taking them off the list lingers as any
    other, and counts against the buffer."""
    buffer = Buffer(OPTIONS, Outbox(), Directory("default"), reports=False)
    intake = buffer.intake(TOPIC, StickyPartitioner(0), 1000)
    assert buffer.admit(intake, 1, Now(10.0, 10))
    intake.rows.append(b"1", None, None, None)

    def interrupted(*args: object, **kwargs: object) -> object:
        intake.rows.append(b"23", None, None, None)
        return consign(*args, **kwargs)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(intake_module, "consign", interrupted)
    assert buffer.cut(intake, Now(20.0, 20))
    assert taken(buffer) == [[b"1"]]
    assert (intake.began, intake.granted, [*buffer.filling]) == (20.0, 10, [intake])
    assert buffer.next_due() == 20.5
    monkeypatch.undo()
    buffer.cut_due(Now(20.5, 30))
    assert taken(buffer) == [[b"1"], [b"23"]]
    assert (intake.granted, [*buffer.filling], buffer.next_due()) == (0, [], math.inf)
    assert buffer.accepted == 2


def test_the_size_of_a_list_counts_keys_and_nulls() -> None:
    """Eight bytes a message, its value and its key; None has none."""
    bare, keyed = Rows(VALUE, 1000), Rows(KEYED, 1000)
    bare.append(b"abc", None, None, None)
    bare.append(None, None, None, None)
    keyed.append(b"abc", b"de", "tag", None)
    keyed.append(None, b"f", None, None)
    assert (bare.size(), keyed.size()) == (19, 22)


def test_messages_of_two_widths_are_drawn_in_the_order_in_which_they_came() -> None:
    """A thread appends to the narrow list, which it found before there was a wide one, and then to that: between
    whichever two lines it does, the second message is not drawn without the first."""
    for number in count(1):
        intake = Buffer(OPTIONS, Outbox(), Directory("default"), reports=False).intake(
            TOPIC, StickyPartitioner(0), 1000
        )
        narrow = intake.rows
        narrow.append(b"1", None, None, None)
        intake.widen(KEYED)
        intake.rows.append(b"2", b"k", None, None)

        def append(narrow: Rows = narrow, wide: Rows = intake.rows) -> None:
            narrow.append(b"3", None, None, None)
            wide.append(b"4", b"k", None, None)

        found: list[list[bytes | None]] = []
        was_struck = at_line(
            number,
            append,
            lambda intake=intake, found=found: found.extend(drawn.messages.values for _, drawn in intake.drawn()),
            ("intake.py", "rows.py"),
        )
        everything = [value for values in found for value in values]
        assert everything in ([b"1", b"2"], [b"1", b"3", b"2"], [b"1", b"3", b"2", b"4"])
        if not was_struck:
            break
    assert number > 10
