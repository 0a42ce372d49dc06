"""What is compared of a state and its reference."""

from __future__ import annotations

from dataclasses import astuple

from tests.broker.delivery.reference import Reference

from tidelog.broker.delivery.queue_state import QueueState

Seen = tuple[str, int, int, str | None, int]


def seen(state: QueueState, at: int) -> Seen:
    if at in state.damaged:
        return "damaged", 0, 0, None, 0
    if at in state.rejected.offsets:
        mark = state.rejected.get(at)
        word = "dead-lettered" if at in state.dead_lettered else "rejected"
        word = "dead-lettering" if at in state.moves.offsets else word
        error = mark.error.text if mark.error and word != "rejected" else None
        return word, mark.attempts, 0, error, mark.redrives
    if at < state.frontier and at not in state.open:
        return "acknowledged", 0, 0, None, 0
    if at in state.moves.offsets:
        return "dead-lettering", 0, 0, None, 0
    is_leased = state.lease_of(at) is not None
    word = "leased" if is_leased else "waiting" if at in state.waiting.offsets else "available"
    mark = state.marks.get(at)
    return word, state.attempts(at), mark.suspect, mark.error.text if mark.error else None, mark.redrives


def expected(is_to_be: Reference, at: int) -> Seen:
    one = is_to_be.at(at)
    if one.state in ("damaged", "acknowledged") or (one.state == "dead-lettering" and not one.is_given_up):
        return one.state, 0, 0, None, 0
    error = None if one.state in ("dead-lettered", "rejected") else one.error
    attempts = one.attempts + (one.state == "leased" and one.is_handed)
    return one.state, attempts, one.together, error, one.redrives


def counted(state: QueueState, end: int) -> tuple[int, ...]:
    """Return floor, settled, available, leased, waiting, suspect, dead-lettering and dead-lettered."""
    return astuple(state.counts(end))


def count(is_to_be: Reference) -> tuple[int, ...]:
    over = ("acknowledged", "rejected", "dead-lettered", "damaged")
    every = [one for _at, one in is_to_be.every()]
    floor = next((at for at, one in is_to_be.every() if one.state not in over), is_to_be.end)
    return (
        floor,
        len([one for at, one in is_to_be.every() if at >= floor and one.state in over]),
        len([one for one in every if one.state == "available" and not one.together]),
        len([one for one in every if one.state == "leased"]),
        len([one for one in every if one.state == "waiting"]),
        len([one for one in every if one.state == "available" and one.together]),
        len([one for one in every if one.state == "dead-lettering"]),
        len([one for one in every if one.state == "dead-lettered"]),
    )
