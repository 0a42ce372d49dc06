"""The judge is judged first: each rule of queue groups rejects a bad history made by hand for it."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

from .history import Bounds, Fault, Recorder
from .payloads import payload
from .queue_history import (
    Asked,
    Final,
    Grouped,
    Handed,
    How,
    Killers,
    Moved,
    Published,
    QueueEvent,
    QueueHistory,
    Stepped,
    Told,
    WorkerEvent,
    message_of,
    read_queue_records,
)
from .queue_rules import RULES, violations

P = "orders/0"
G = Grouped(group="g", max_attempts=3)
SECOND_NS = 1_000_000_000
_names = count()


def published(*sequences: int, **changes: object) -> Published:
    """Messages of producer `a`, each at the offset of its number."""
    names = [f"a/{sequence}" for sequence in sequences]
    return Published(messages=names, partition=P, offsets=list(sequences), **changes)  # type: ignore[arg-type]


def handed(sequence: int, lease: int, attempt: int = 1, *, worker: str = "w", group: str = "g", at_ns: int = 0,
           until_ns: int = 0, priority: int = 4) -> Handed:  # fmt: skip
    """One message in a worker's hands."""
    return Handed(
        at_ns=at_ns,
        group=group,
        worker=worker,
        message=f"a/{sequence}",
        partition=P,
        offset=sequence,
        lease=lease,
        attempt=attempt,
        priority=priority,
        until_ns=until_ns,
    )


def asked(what: str, sequence: int, lease: int, how: How | None = "ok", **changes: object) -> list[QueueEvent]:
    """One settle and what was told of it (None: nothing)."""
    given = {"group": "g", "worker": "w", **changes}
    ask = Asked(ask=str(next(_names)), what=what, lease=lease, messages=[f"a/{sequence}"], **given)  # type: ignore[arg-type]
    return [ask] if how is None else [ask, Told(ask=ask.ask, how=how)]


def final(sequence: int, state: str, *, group: str = "g") -> Final:
    """What is said at the end."""
    return Final(group=group, message=f"a/{sequence}", partition=P, offset=sequence, state=state)


def did(what: str, worker: str = "w") -> WorkerEvent:
    """What happened to a worker."""
    return WorkerEvent(worker=worker, did=what)  # type: ignore[arg-type]


RESET: list[QueueEvent] = [Moved(group="g", is_done=False), Moved(group="g", is_done=True)]
ONE: list[QueueEvent] = [G, published(0)]
SLOW: list[QueueEvent] = [Grouped(group="g", max_attempts=3, backoff_us=[1_000_000, 2_000_000]), published(0)]

GOOD: dict[str, list[QueueEvent]] = {
    "nothing at all": [],
    "never handed out": [*ONE, final(0, "available")],
    "handed out and acknowledged": [*ONE, handed(0, 1), *asked("ack", 0, 1), final(0, "acknowledged")],
    "acknowledged, never answered, and done": [*ONE, handed(0, 1), *asked("ack", 0, 1, None), final(0, "acknowledged")],
    "acknowledged, never answered, and not done": [
        *ONE,
        handed(0, 1),
        *asked("ack", 0, 1, None),
        did("killed"),
        handed(0, 2, 2, worker="v"),
        final(0, "leased"),
    ],
    "refused, since the lease was lost": [
        *ONE,
        handed(0, 1),
        handed(0, 2, 2, worker="v"),
        *asked("ack", 0, 1, "lost"),
        *asked("ack", 0, 2, worker="v"),
        final(0, "acknowledged"),
    ],
    "given back, and handed out after its backoff": [
        *SLOW,
        handed(0, 1),
        *asked("nack", 0, 1, at_ns=0),
        handed(0, 2, 2, at_ns=SECOND_NS),
        *asked("nack", 0, 2, at_ns=SECOND_NS),
        handed(0, 3, 3, at_ns=3 * SECOND_NS),
        final(0, "leased"),
    ],
    "handed out early by a broker that started after its clock was set forward": [
        *SLOW,
        handed(0, 1),
        *asked("nack", 0, 1),
        Stepped(by_us=3_600_000_000),
        Fault(kind="kill"),
        handed(0, 2, 2),
        final(0, "leased"),
    ],
    "given up at its limit": [
        *ONE,
        *(event for n in (1, 2, 3) for event in (handed(0, n, n), *asked("nack", 0, n))),
        final(0, "rejected"),
    ],
    "refused at its first attempt": [*ONE, handed(0, 1), *asked("reject", 0, 1), final(0, "rejected")],
    "refused, and a dead letter": [*ONE, handed(0, 1), *asked("reject", 0, 1), final(0, "dead-lettered")],
    "given back unhandled, uncounted": [
        *ONE,
        handed(0, 1),
        *asked("return", 0, 1),
        handed(0, 2, 1),
        final(0, "leased"),
    ],
    "expired: counted, or not": [*ONE, handed(0, 1), handed(0, 2, 1), handed(0, 3, 2), final(0, "leased")],
    "an acknowledgement of a written topic that a power loss took": [
        G,
        published(0, durability="written"),
        handed(0, 1),
        *asked("ack", 0, 1),
        Fault(kind="power"),
        handed(0, 2),
        final(0, "leased"),
    ],
    "a reset group begins anew": [*ONE, handed(0, 1), *asked("ack", 0, 1), *RESET, handed(0, 2), final(0, "leased")],
    "an earlier lease in a buffer, after it was acknowledged by a later one": [
        *ONE,
        handed(0, 2, 1, worker="v"),
        *asked("ack", 0, 2, worker="v"),
        handed(0, 1, 1),
        final(0, "acknowledged"),
    ],
    "removed by retention while it was leased": [
        *ONE,
        handed(0, 1),
        *asked("ack", 0, 1),
        final(0, "expired-by-retention"),
        Bounds(partition=P, start=1, end=1),
    ],
    "a killer is given up, what lay beside it is not": [
        G,
        published(0, 1),
        Killers(messages=["a/0"]),
        *(event for n in (1, 2, 3) for event in (handed(0, n, n, worker=f"w{n}"), did("died", f"w{n}"))),
        handed(1, 4, worker="w4"),
        *asked("ack", 1, 4, worker="w4"),
        final(0, "rejected"),
        final(1, "acknowledged"),
    ],
    "settled by token, by anybody, twice": [
        *ONE,
        handed(0, 1),
        *asked("ack", 0, 1, worker="other", by_token=True),
        *asked("ack", 0, 1, worker="other", by_token=True),
        final(0, "acknowledged"),
    ],
    "extended, and given to the next once that is over": [
        *ONE,
        handed(0, 1, until_ns=SECOND_NS),
        *asked("extend", 0, 1, until_ns=2 * SECOND_NS),
        handed(0, 2, worker="v", at_ns=2 * SECOND_NS),
        final(0, "leased"),
    ],
}

BAD: dict[str, tuple[str, list[QueueEvent]]] = {
    "a message without a state": ("nothing_lost", ONE),
    "a message in two states": ("nothing_lost", [*ONE, final(0, "available"), final(0, "leased")]),
    "a state that there is not": ("nothing_lost", [*ONE, final(0, "gone")]),
    "expired, and still in the log": ("nothing_lost", [*ONE, final(0, "expired-by-retention")]),
    "no state in the second group": (
        "nothing_lost",
        [*ONE, Grouped(group="h"), final(0, "available")],
    ),
    "a message that nobody published": ("nothing_invented", [*ONE, handed(7, 1), final(0, "available")]),
    "another message's place": (
        "nothing_invented",
        [G, Published(messages=["a/0"], partition=P, offsets=[5]), handed(0, 1), final(0, "leased")],
    ),
    "another message's lane": (
        "lane_kept",
        [G, published(0, 1, priorities=[9, 0]), handed(0, 1, priority=9), handed(1, 2), final(1, "leased")],
    ),
    "one lease of two workers": (
        "nothing_invented",
        [G, published(0, 1), handed(0, 1), handed(1, 1, worker="v"), final(0, "leased"), final(1, "leased")],
    ),
    "acknowledged by nobody": ("settled_by_somebody", [*ONE, handed(0, 1), final(0, "acknowledged")]),
    "acknowledged in the other group": (
        "settled_by_somebody",
        [
            *ONE,
            Grouped(group="h"),
            handed(0, 1),
            *asked("ack", 0, 1),
            final(0, "acknowledged"),
            handed(0, 2, group="h"),
            final(0, "acknowledged", group="h"),
        ],
    ),
    "acknowledged after a refusal": (
        "settled_by_somebody",
        [*ONE, handed(0, 1), *asked("ack", 0, 1, "lost"), final(0, "acknowledged")],
    ),
    "rejected, and never handed out": ("settled_by_somebody", [*ONE, final(0, "rejected")]),
    "a dead letter, and acknowledged": (
        "settled_stays",
        [*ONE, handed(0, 1), *asked("ack", 0, 1), final(0, "dead-lettered")],
    ),
    "handed out after it was acknowledged": (
        "settled_stays",
        [*ONE, handed(0, 1), *asked("ack", 0, 1), handed(0, 2, 2), final(0, "leased")],
    ),
    "handed out after it was refused, over a kill": (
        "settled_stays",
        [*ONE, handed(0, 1), *asked("reject", 0, 1), Fault(kind="kill"), handed(0, 2, 2), final(0, "rejected")],
    ),
    "available after it was acknowledged, over a power loss": (
        "settled_stays",
        [*ONE, handed(0, 1), *asked("ack", 0, 1), Fault(kind="power"), final(0, "available")],
    ),
    "handed out twice by one lease": ("one_live_lease", [*ONE, handed(0, 1), handed(0, 1), final(0, "leased")]),
    "handed out while another holds it": (
        "one_live_lease",
        [*ONE, handed(0, 1, until_ns=SECOND_NS), handed(0, 2, worker="v", at_ns=SECOND_NS // 2), final(0, "leased")],
    ),
    "handed out while another has extended it": (
        "one_live_lease",
        [
            *ONE,
            handed(0, 1, until_ns=SECOND_NS),
            *asked("extend", 0, 1, until_ns=2 * SECOND_NS),
            handed(0, 2, worker="v", at_ns=SECOND_NS),
            final(0, "leased"),
        ],
    ),
    "settled by an earlier lease": (
        "stale_changes_nothing",
        [*ONE, handed(0, 1), handed(0, 2, 2, worker="v"), *asked("nack", 0, 1), final(0, "leased")],
    ),
    "settled by who does not hold it": (
        "stale_changes_nothing",
        [*ONE, handed(0, 1), *asked("ack", 0, 1, worker="v"), final(0, "acknowledged")],
    ),
    "settled by a lease of before a reset": (
        "stale_changes_nothing",
        [*ONE, handed(0, 1), *RESET, *asked("ack", 0, 1), final(0, "acknowledged")],
    ),
    "given back after it was acknowledged": (
        "stale_changes_nothing",
        [*ONE, handed(0, 1), *asked("ack", 0, 1), *asked("nack", 0, 1), final(0, "acknowledged")],
    ),
    "an attempt that nobody made": ("attempts_exact", [*ONE, handed(0, 1, 2), final(0, "leased")]),
    "one attempt too many": (
        "attempts_exact",
        [*ONE, handed(0, 1), *asked("nack", 0, 1), handed(0, 2, 3), final(0, "leased")],
    ),
    "an attempt that was forgotten, over a power loss": (
        "attempts_exact",
        [*ONE, handed(0, 1), *asked("nack", 0, 1), Fault(kind="power"), handed(0, 2, 1), final(0, "leased")],
    ),
    "given back unhandled, and counted": (
        "attempts_exact",
        [*ONE, handed(0, 1), *asked("return", 0, 1), handed(0, 2, 2), final(0, "leased")],
    ),
    "handed out before its backoff": (
        "backoff_kept",
        [*SLOW, handed(0, 1), *asked("nack", 0, 1), handed(0, 2, 2, at_ns=SECOND_NS // 2), final(0, "leased")],
    ),
    "handed out early by a broker that ran while its clock was set forward": (
        "backoff_kept",
        [*SLOW, handed(0, 1), *asked("nack", 0, 1), Stepped(by_us=10**9), handed(0, 2, 2), final(0, "leased")],
    ),
    "handed out early by a broker that started after its clock was set back": (
        "backoff_kept",
        [
            *SLOW,
            handed(0, 1),
            *asked("nack", 0, 1),
            Stepped(by_us=-(10**9)),
            Fault(kind="kill"),
            handed(0, 2, 2),
            final(0, "leased"),
        ],
    ),
    "handed out before the delay that was asked for": (
        "backoff_kept",
        [
            *ONE,
            handed(0, 1),
            *asked("nack", 0, 1, delay_us=5_000_000),
            handed(0, 2, 2, at_ns=SECOND_NS),
            final(0, "leased"),
        ],
    ),
    "handed out beyond its limit": (
        "rejected_at_limit",
        [G, published(0, max_attempts=1), handed(0, 1), handed(0, 2, 2), final(0, "leased")],
    ),
    "given back at its limit, and handed out again": (
        "rejected_at_limit",
        [G, published(0, max_attempts=1), handed(0, 1), *asked("nack", 0, 1), handed(0, 2, 1), final(0, "leased")],
    ),
    "given up before its limit": (
        "rejected_at_limit",
        [*ONE, handed(0, 1), *asked("nack", 0, 1), final(0, "rejected")],
    ),
    "what lay beside a killer is given up": (
        "innocents_spared",
        [
            G,
            published(0, 1),
            Killers(messages=["a/0"]),
            handed(1, 1, worker="w1"),
            *(event for n in (1, 2, 3) for event in (handed(0, n, n, worker=f"w{n}"), did("died", f"w{n}"))),
            final(0, "rejected"),
            final(1, "rejected"),
        ],
    ),
}


@pytest.mark.parametrize("name", GOOD)
def test_a_good_history_is_accepted(name: str) -> None:
    """Nothing is held against a broker that kept its promises."""
    assert violations(QueueHistory(GOOD[name])) == []


@pytest.mark.parametrize("name", BAD)
def test_a_bad_history_is_rejected(name: str) -> None:
    """The rule that was broken says so."""
    rule, events = BAD[name]
    assert rule in [violation.rule for violation in violations(QueueHistory(events))]


def test_every_rule_has_a_bad_history() -> None:
    """A rule that rejects nothing would let everything pass."""
    assert {rule for rule, _events in BAD.values()} == {rule.__name__ for rule in RULES}


def test_records_merge_by_time(tmp_path: Path) -> None:
    """Events of two processes come back in the order in which they happened; a line cut by a kill is left out."""
    one, two = Recorder(tmp_path / "one"), Recorder(tmp_path / "two")
    first, second = Told(ask="1", how="ok"), Told(ask="2", how="lost")
    one.add(first)
    two.add(second)
    one.add(handed(0, 1))
    for recorder in (one, two):
        recorder.close()
    with (tmp_path / "two").open("ab") as file:
        file.write(b'{"event":"told","ask"')
    found = read_queue_records([tmp_path / "two", tmp_path / "one"])
    assert [type(event).__name__ for event in found] == ["Told", "Told", "Handed"]
    assert [event.ask for event in found if isinstance(event, Told)] == ["1", "2"]


def test_a_message_is_known_by_its_payload() -> None:
    """A payload names its message, one that was changed does not."""
    assert message_of(payload("a", 7, 100)) == "a/7"
    assert message_of(payload("a", 7, 100)[:-1] + b"\0") != "a/7"
    assert message_of(None) == "None"
