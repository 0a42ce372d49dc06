"""What is compared of a state and its reference."""

from __future__ import annotations

from tests.broker.delivery.reference import Reference

from tidelog.broker.delivery.queue_state import QueueState

Seen = tuple[str, int, int, str | None]


def seen(state: QueueState, at: int) -> Seen:
    if at in state.damaged:
        return "damaged", 0, 0, None
    if at in state.rejected.offsets:
        mark = state.rejected.get(at)
        return "rejected", mark.attempts, 0, mark.error.text if mark.error else None
    if at < state.frontier and at not in state.open:
        return "acknowledged", 0, 0, None
    is_leased = state.lease_of(at) is not None
    word = "leased" if is_leased else "waiting" if at in state.waiting.offsets else "available"
    mark = state.marks.get(at)
    return word, state.attempts(at), mark.suspect, mark.error.text if mark.error else None


def expected(is_to_be: Reference, at: int) -> Seen:
    one = is_to_be.at(at)
    if one.state in ("damaged", "acknowledged"):
        return one.state, 0, 0, None
    return one.state, one.attempts + (one.state == "leased" and one.is_handed), one.together, one.error


def counted(state: QueueState, end: int) -> tuple[int, int, int, int, int, int]:
    """Return floor, settled, available, leased, waiting and suspect."""
    counts = state.counts(end)
    return counts.floor, counts.settled, counts.available, counts.leased, counts.waiting, counts.suspect


def count(is_to_be: Reference) -> tuple[int, int, int, int, int, int]:
    over = ("acknowledged", "rejected", "damaged")
    every = [one for _at, one in is_to_be.every()]
    floor = next((at for at, one in is_to_be.every() if one.state not in over), is_to_be.end)
    return (
        floor,
        len([one for at, one in is_to_be.every() if at >= floor and one.state in over]),
        len([one for one in every if one.state == "available" and not one.together]),
        len([one for one in every if one.state == "leased"]),
        len([one for one in every if one.state == "waiting"]),
        len([one for one in every if one.state == "available" and one.together]),
    )
