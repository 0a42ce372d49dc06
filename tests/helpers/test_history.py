"""The judge is judged first: each rule of the history checker rejects a bad history made by hand for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from .history import (
    AnyEvent,
    Bounds,
    Fail,
    Fault,
    History,
    Invoke,
    Ok,
    Read,
    Recorder,
    Unknown,
    read_records,
    violations,
)
from .payloads import Origin, origin_of, payload

P = "orders/0"


def sent(first: int, *, operation: str = "", producer: str = "a", **changes: object) -> Invoke:
    """An invocation of one message by producer `a`, unless changed."""
    return Invoke(operation=operation or f"{producer}{first}", producer=producer, first=first, **changes)  # type: ignore[arg-type]


def read_back(*sequences: int, producer: str = "a", start: int = 0) -> list[AnyEvent]:
    """The final reading of a partition that holds these messages of one producer from `start` on."""
    bounds = Bounds(partition=P, start=start, end=start + len(sequences))
    return [bounds, *(stored(start + n, s, producer=producer) for n, s in enumerate(sequences))]


def stored(offset: int, sequence: int, *, producer: str = "a", final: bool = True, **changes: object) -> Read:
    """One reading of a message."""
    value = payload(producer, sequence)
    return Read(partition=P, offset=offset, value=value, final=final, **changes)  # type: ignore[arg-type]


def ok(operation: str, *offsets: int) -> Ok:
    """An acknowledgement in the partition."""
    return Ok(operation=operation, partition=P, offsets=list(offsets))


GOOD: dict[str, list[AnyEvent]] = {
    "nothing at all": [],
    "acknowledged and there": [sent(0), ok("a0", 0), Fault(kind="kill"), *read_back(0)],
    "unknown and there": [sent(0), Unknown(operation="a0"), *read_back(0)],
    "unknown and not there": [sent(0), Unknown(operation="a0"), *read_back()],
    "never answered and there": [sent(0), *read_back(0)],
    "refused and not there": [sent(0), Fail(operation="a0"), sent(1), ok("a1", 0), *read_back(1)],
    "a repeat with the same receipt": [sent(0), ok("a0", 0), ok("a0", 0), *read_back(0)],
    "a batch of three": [sent(0, count=3), ok("a0", 0, 1, 2), *read_back(0, 1, 2)],
    "written, gone after power loss": [
        sent(0, durability="written"),
        ok("a0", 0),
        Fault(kind="power"),
        *read_back(),
    ],
    "written, replaced after power loss": [
        sent(0, durability="written"),
        ok("a0", 0),
        stored(0, 0, final=False),
        Fault(kind="power"),
        sent(1),
        ok("a1", 0),
        *read_back(1),
    ],
    "another priority overtakes": [
        sent(0, priority=1),
        sent(1, priority=9),
        Bounds(partition=P, start=0, end=2),
        stored(0, 1, priority=9),
        stored(1, 0, priority=1),
    ],
    "removed by retention": [sent(0), ok("a0", 0), sent(1), ok("a1", 1), *read_back(1, start=1)],
    "a later epoch": [sent(0), ok("a0", 0), sent(1, epoch=1), ok("a1", 1), *read_back(0, 1)],
}

BAD: dict[str, tuple[str, list[AnyEvent]]] = {
    "acknowledged at synced, gone": (
        "nothing_lost",
        [sent(0), ok("a0", 0), Fault(kind="power"), *read_back()],
    ),
    "acknowledged at written, gone after a kill": (
        "nothing_lost",
        [sent(0, durability="written"), ok("a0", 0), Fault(kind="kill"), *read_back()],
    ),
    "acknowledged after the power loss, gone": (
        "nothing_lost",
        [Fault(kind="power"), sent(0, durability="written"), ok("a0", 0), *read_back()],
    ),
    "acknowledged, another in its place": (
        "nothing_lost",
        [sent(0), ok("a0", 0), sent(1), Unknown(operation="a1"), *read_back(1)],
    ),
    "the middle of a batch is gone": (
        "nothing_lost",
        [sent(0, count=3), ok("a0", 0, 1, 2), *read_back(0, 1)],
    ),
    "shown to a reader, then gone": ("nothing_lost", [sent(0), stored(0, 0, final=False), *read_back()]),
    "one byte changed": (
        "nothing_invented",
        [
            sent(0),
            Read(partition=P, offset=0, value=payload("a", 0)[:-1] + b"\0", final=True),
            Bounds(partition=P, start=0, end=1),
        ],
    ),
    "never sent": ("nothing_invented", [*read_back(7)]),
    "refused and stored": ("nothing_invented", [sent(0), Fail(operation="a0"), *read_back(0)]),
    "read with another key": (
        "nothing_invented",
        [sent(0, key="k"), stored(0, 0, key="j"), Bounds(partition=P, start=0, end=1)],
    ),
    "read with another priority": (
        "nothing_invented",
        [sent(0, priority=9), stored(0, 0, priority=4), Bounds(partition=P, start=0, end=1)],
    ),
    "stored twice": ("nothing_twice", [sent(0), ok("a0", 0), *read_back(0, 0)]),
    "unknown and stored twice": ("nothing_twice", [sent(0), Unknown(operation="a0"), *read_back(0, 0)]),
    "a hole in the offsets": (
        "offsets_dense",
        [sent(0), sent(1), Bounds(partition=P, start=0, end=3), stored(0, 0), stored(2, 1)],
    ),
    "the reading ends early": ("offsets_dense", [sent(0), Bounds(partition=P, start=0, end=2), stored(0, 0)]),
    "nothing could be read": ("offsets_dense", [Bounds(partition=P, start=0, end=2)]),
    "the reading goes back": (
        "offsets_dense",
        [sent(0), sent(1), Bounds(partition=P, start=0, end=2), stored(1, 1), stored(0, 0)],
    ),
    "a value changed between two readings": (
        "values_fixed",
        [sent(0), sent(1), stored(0, 0, final=False), stored(0, 1, final=False)],
    ),
    "another value than the one acknowledged": (
        "values_fixed",
        [sent(0), ok("a0", 0), sent(1), stored(0, 1, final=False)],
    ),
    "two acknowledged at one offset": ("values_fixed", [sent(0), ok("a0", 0), sent(1), ok("a1", 0)]),
    "seen again after the power loss, then changed": (
        "values_fixed",
        [
            sent(0, durability="written"),
            sent(1),
            stored(0, 0, final=False),
            Fault(kind="power"),
            stored(0, 0, final=False),
            stored(0, 1, final=False),
        ],
    ),
    "the second before the first": (
        "order_kept",
        [sent(0), ok("a0", 1), sent(1), ok("a1", 0), *read_back(1, 0)],
    ),
    "a late arrival of what was given up": (
        "order_kept",
        [sent(0), Unknown(operation="a0"), sent(1), ok("a1", 0), *read_back(1, 0)],
    ),
    "a repeat with another receipt": ("repeats_agree", [sent(0), ok("a0", 0), ok("a0", 1)]),
    "a repeat in another partition": (
        "repeats_agree",
        [sent(0), ok("a0", 0), Ok(operation="a0", partition="orders/1", offsets=[0])],
    ),
    "fewer offsets than messages": ("repeats_agree", [sent(0, count=2), ok("a0", 0)]),
    "one offset for two messages": ("repeats_agree", [sent(0, count=2), ok("a0", 0, 0)]),
    "an old epoch accepted": (
        "old_epochs_refused",
        [sent(0, epoch=1), ok("a0", 0), sent(1, epoch=0), ok("a1", 1)],
    ),
}


@pytest.mark.parametrize("name", GOOD)
def test_good_history(name: str) -> None:
    """A history that keeps every promise is accepted."""
    assert violations(History(GOOD[name])) == []


@pytest.mark.parametrize("name", BAD)
def test_bad_history(name: str) -> None:
    """A history that breaks one promise is rejected by the rule that states the promise."""
    rule, events = BAD[name]
    assert rule in {violation.rule for violation in violations(History(events))}


def test_every_rule_has_a_bad_history() -> None:
    """No rule is left that never rejected anything."""
    assert {rule for rule, _events in BAD.values()} == {
        "nothing_lost",
        "nothing_invented",
        "nothing_twice",
        "offsets_dense",
        "values_fixed",
        "order_kept",
        "repeats_agree",
        "old_epochs_refused",
    }


def test_payload_names_its_origin() -> None:
    """A payload says who sent it, and any change of a byte makes it nobody's."""
    value = payload("worker-1", 42, 100)
    assert len(value) == 100
    assert origin_of(value) == Origin("worker-1", 42)
    changed = [value[:n] + bytes([value[n] ^ 1]) + value[n + 1 :] for n in range(100)]
    assert [origin_of(other) for other in changed if origin_of(other)] == []
    assert [origin_of(value[:99]), origin_of(value + b"x"), origin_of(b""), origin_of(None)] == [None] * 4


def test_records_merge_by_time(tmp_path: Path) -> None:
    """Records of two drivers merge in the order of the machine's clock, a cut line left out."""
    one, two = Recorder(tmp_path / "one"), Recorder(tmp_path / "two")
    one.add(sent(0))
    two.add(sent(0, producer="b"))
    one.add(ok("a0", 0))
    one.close()
    two.close()
    with (tmp_path / "one").open("ab") as file:
        file.write(b'{"event":"ok","opera')
    events = read_records([tmp_path / "two", tmp_path / "one"])
    assert [(type(event).__name__, getattr(event, "operation", "")) for event in events] == [
        ("Invoke", "a0"),
        ("Invoke", "b0"),
        ("Ok", "a0"),
    ]
