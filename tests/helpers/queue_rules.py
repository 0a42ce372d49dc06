"""The rules of queue groups over a history (`queue_history`): `violations(history)` returns what broke one.

What a rule does not know it does not hold against the broker: an answer that never came may mean either, a worker that
was killed may have been handed a message that it had no time to write down, and a lease may end when its member stands
still. What was told is held against it: a settle that was answered, and what `Final` says at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise

from .history import Violation
from .queue_history import BEFORE_START, EXPIRED, Asked, Final, Handed, QueueHistory, Timeline

Rule = Callable[[QueueHistory], Iterator[Violation]]

GIVEN_UP = {"rejected", "dead-lettering", "dead-lettered"}
STATES = {"acknowledged", *GIVEN_UP, "available", "suspect", "leased", "waiting", EXPIRED, BEFORE_START}
SETTLED = {"ack": {"acknowledged"}, "reject": GIVEN_UP}
EARLY_US = 2_000
"""How much earlier than its backoff a delivery may look, by the rounding of the clocks that are compared."""

LEASE_SLACK_NS = 200_000_000
"""How much later a worker may believe that its lease begins and ends than the broker does: a reply waits to be read while
the machine is busy."""


def nothing_lost(history: QueueHistory) -> Iterator[Violation]:
    """Every message is, at the end, in one of the states in every group; it is removed only where retention was."""
    finals: dict[tuple[str, str], int] = {}
    for event in history.events:
        if isinstance(event, Final):
            finals[event.group, event.message] = finals.get((event.group, event.message), 0) + 1
            if event.state not in STATES:
                yield Violation("nothing_lost", f"{event.message} is {event.state!r} in {event.group}")
            if event.state == EXPIRED and not history.is_removed(event.message):
                yield Violation("nothing_lost", f"{event.message} is expired in {event.group}, and is in the log")
    for group in history.groups:
        for message, published in history.published.items():
            count = finals.get((group, message), 0)
            excused = history.is_removed(message) or history.may_be_lost(message, published)
            if count > 1 or (count == 0 and not excused):
                yield Violation("nothing_lost", f"{message} has {count} states in {group} at the end")


def nothing_invented(history: QueueHistory) -> Iterator[Violation]:
    """What is handed out was published, and lies where it was published; a lease is of one group, worker, partition."""
    of_lease: dict[int, tuple[str, str, str]] = {}
    for event in history.events:
        if not isinstance(event, Handed):
            continue
        published = history.published.get(event.message)
        if published is None:
            yield Violation("nothing_invented", f"{event.group} was handed {event.message}, which nobody published")
        elif (event.partition, event.offset) != (published.partition, history.offsets[event.message]):
            yield Violation("nothing_invented", f"{event.message} was handed out as {event.partition}@{event.offset}")
        whose = (event.group, event.worker, event.partition)
        if of_lease.setdefault(event.lease, whose) != whose:
            yield Violation("nothing_invented", f"lease {event.lease:#x} is of {of_lease[event.lease]} and of {whose}")


def lane_kept(history: QueueHistory) -> Iterator[Violation]:
    """A message has the priority that it was published with, whenever it is handed out."""
    for event in history.events:
        if isinstance(event, Handed) and event.message in history.priorities:
            wanted = history.priorities[event.message]
            if event.priority != wanted:
                said = f"{event.message} of priority {wanted} was handed out in {event.group} as of {event.priority}"
                yield Violation("lane_kept", said)


def settled_by_somebody(history: QueueHistory) -> Iterator[Violation]:
    """A message is acknowledged only in a group in which somebody acknowledged it; rejected by a wish, or its limit."""
    for (group, message), timeline in history.timelines.items():
        final = timeline.final
        wanted = None if final is None else next((what for what, ends in SETTLED.items() if final.state in ends), None)
        if final is None or wanted is None:
            continue
        asked = any(each.what == wanted and history.how(each) in ("ok", "unknown") for each in timeline.asked)
        published = history.published.get(message)
        unseen = published is not None and history.did(("killed",), published)
        if not asked and (final.state == "acknowledged" or not (timeline.handed or unseen)):
            said = f"{message} is {final.state} in {group}, where nobody asked for it"
            yield Violation("settled_by_somebody", said)


def settled_stays(history: QueueHistory) -> Iterator[Violation]:
    """What was acknowledged or rejected, and answered, is never handed out again, and says so at the end."""
    for (group, message), timeline in history.timelines.items():
        for asked in timeline.asked:
            if asked.what not in SETTLED or history.how(asked) != "ok" or history.may_be_lost(message, asked):
                continue
            told = history.answers[asked.ask]
            for handed in timeline.handed:
                same = handed.lease == asked.lease and history.place(handed) > history.place(told)
                if (same or handed.lease > asked.lease) and not history.was_reset(group, asked, handed):
                    said = f"{message} was settled ({asked.what}) in {group} by lease {asked.lease:#x}"
                    yield Violation("settled_stays", f"{said}, and handed to {handed.worker} by {handed.lease:#x}")
            final = timeline.final
            if final is None or final.state in {*SETTLED[asked.what], EXPIRED} or history.is_removed(message):
                continue
            if not history.was_reset(group, asked, final):
                said = f"{message} was settled ({asked.what}) in {group}, and is {final.state} at the end"
                yield Violation("settled_stays", said)


def one_live_lease(history: QueueHistory) -> Iterator[Violation]:
    """A message is handed out once by a lease, and by the next one only when that one ended: settled, given back, past
    its time, or its worker stopped."""
    for (group, message), timeline in history.timelines.items():
        for before, after in pairwise(timeline.handed):
            if before.lease == after.lease:
                said = f"{message} was handed out twice by lease {before.lease:#x} of {group}"
                yield Violation("one_live_lease", said)
            elif not _may_have_ended(history, timeline, before, after):
                said = f"{message} is held by {before.worker} ({before.lease:#x}) in {group}"
                yield Violation("one_live_lease", f"{said}, and was handed to {after.worker} ({after.lease:#x})")


def _may_have_ended(history: QueueHistory, timeline: Timeline, before: Handed, after: Handed) -> bool:
    place = history.place(after)
    until_ns = before.until_ns
    for asked in timeline.of_lease(before.lease):
        if history.place(asked) < place:
            if asked.what != "extend" and history.how(asked) != "lost":
                return True
            if asked.what == "extend" and history.how(asked) == "ok":
                until_ns = max(until_ns, asked.until_ns)
    stopped = history.did(("killed", "died", "ended", "paused"), before, after, before.worker)
    # A lease is answered when it is written: a power loss takes it, and a reset, also while it waits to be handed out.
    ends = [fault for fault in history.faults if fault.kind == "power"] + history.moves.get(before.group, [])
    since_ns = (before.since_ns or before.at_ns) - LEASE_SLACK_NS
    gone = any(since_ns <= end.at_ns <= after.at_ns for end in ends) or history.was_reset(before.group, before, after)
    # Who stood still while the reply waited to be read takes the lease for a new one.
    woke = any(
        fate.did == "resumed" and fate.worker == before.worker and abs(fate.at_ns - since_ns) <= 2 * LEASE_SLACK_NS
        for fate in history.fates
    )
    return bool(stopped) or woke or gone or after.at_ns >= until_ns - LEASE_SLACK_NS


def stale_changes_nothing(history: QueueHistory) -> Iterator[Violation]:
    """A settle is done only for who holds the lease, once, and not when the message went to another lease before it was
    asked for."""
    holders = {event.lease: event.worker for event in history.events if isinstance(event, Handed)}
    for (group, message), timeline in history.timelines.items():
        done: dict[int, Asked] = {}
        for asked in timeline.asked:
            if asked.what == "extend" or history.how(asked) != "ok" or history.is_removed(message):
                continue
            said = f"{message} in {group}: {asked.what} by {asked.worker} under {asked.lease:#x} was done"
            if not asked.by_token and holders.get(asked.lease, asked.worker) != asked.worker:
                yield Violation("stale_changes_nothing", f"{said}, a lease of {holders[asked.lease]}")
            earlier = done.setdefault(asked.lease, asked)
            if earlier.what != asked.what:
                yield Violation("stale_changes_nothing", f"{said} after {earlier.what}")
            if _is_repeat(history, timeline, asked):
                continue
            if any(_was_reset_between(history, handed, asked) for handed in timeline.handed):
                yield Violation("stale_changes_nothing", f"{said}, and the group was reset since it was handed out")
            for handed in timeline.handed:
                if handed.lease > asked.lease and history.place(handed) < history.place(asked):
                    yield Violation("stale_changes_nothing", f"{said}, and it had gone to {handed.lease:#x}")


def _was_reset_between(history: QueueHistory, handed: Handed, asked: Asked) -> bool:
    """Whether a lease was asked to be settled after a reset that began after it was handed out."""
    moves = history.moves.get(handed.group, [])
    places = [history.place(move) for move in moves if not move.is_done]
    ends = [history.place(move) for move in moves if move.is_done]
    since, until = history.place(handed), history.place(asked)
    return handed.lease == asked.lease and any(
        since < begun and any(begun < end < until for end in ends) for begun in places
    )


def _is_repeat(history: QueueHistory, timeline: Timeline, asked: Asked) -> bool:
    """Whether the same may have been done before: then it is answered as the first time."""
    before = [each for each in timeline.of_lease(asked.lease) if history.place(each) < history.place(asked)]
    return any(each.what == asked.what and history.how(each) in ("ok", "unknown") for each in before)


def attempts_exact(history: QueueHistory) -> Iterator[Violation]:
    """An attempt is one more than those that were counted; fewer only where a power loss took a hand-over."""
    for (group, message), timeline in history.timelines.items():
        sure = 0  # counted for certain, and durably
        for place, handed in enumerate(timeline.handed):
            before = timeline.handed[place - 1] if place else None
            most = _most_attempts(history, timeline, before, handed)
            if before is not None and history.was_reset(group, before, handed):
                sure, most = 0, max(most, 1)
            if not sure < handed.attempt <= most:
                said = f"{message} in {group} was handed out as attempt {handed.attempt} by {handed.lease:#x}"
                yield Violation("attempts_exact", f"{said}, expected {sure + 1} to {most}")
            if _counts_for_sure(history, timeline, handed):
                sure = max(sure, handed.attempt)


def _most_attempts(history: QueueHistory, timeline: Timeline, before: Handed | None, handed: Handed) -> int:
    """A worker that was killed may have been handed it as well, without the time to write that down."""
    if before is None:
        first = history.published.get(handed.message)
        return 1 if first is None else 1 + history.did(("killed", "died"), first, handed)
    asked = timeline.of_lease(before.lease)
    given_back = [each for each in asked if each.what == "return" and history.how(each) == "ok"]
    return before.attempt + (not given_back) + history.did(("killed", "died"), before, handed)


def _counts_for_sure(history: QueueHistory, timeline: Timeline, handed: Handed) -> bool:
    return any(
        each.what == "nack" and history.how(each) == "ok" and not history.may_be_lost(handed.message, each)
        for each in timeline.of_lease(handed.lease)
    )


def backoff_kept(history: QueueHistory) -> Iterator[Violation]:
    """What was given back is not handed out again before its time."""
    for (group, message), timeline in history.timelines.items():
        attempts = {handed.lease: handed.attempt for handed in timeline.handed}
        for asked in timeline.asked:
            if asked.what != "nack" or history.how(asked) != "ok" or history.may_be_lost(message, asked):
                continue
            wait_us = asked.delay_us
            if wait_us is None:
                waits = history.groups[group].backoff_us if group in history.groups else [0]
                wait_us = waits[min(attempts.get(asked.lease, 1), len(waits)) - 1]
            for handed in timeline.handed:
                early_us = wait_us - (handed.at_ns - asked.at_ns) // 1_000
                if handed.lease <= asked.lease or early_us <= EARLY_US:
                    continue
                if not (history.was_reset(group, asked, handed) or history.was_set_forward(asked, handed)):
                    said = f"{message} in {group}: given back for {wait_us} us, handed out {early_us} us too early"
                    yield Violation("backoff_kept", said)


def rejected_at_limit(history: QueueHistory) -> Iterator[Violation]:
    """A message is given up exactly at its limit: never handed out beyond it, nor given up by itself before it."""
    for (group, message), timeline in history.timelines.items():
        limit = history.limit(group, message)
        last = timeline.handed[-1] if timeline.handed else None
        for handed in timeline.handed:
            said = f"{message} in {group}, attempt {handed.attempt} of {limit}"
            if handed.attempt > limit:
                yield Violation("rejected_at_limit", f"{said}: handed out beyond its limit")
            again = last is not None and handed is not last and not history.was_reset(group, handed, last)
            if handed.attempt == limit and again and _counts_for_sure(history, timeline, handed):
                yield Violation("rejected_at_limit", f"{said}: given back at its limit, and handed out again")
        if timeline.final is None or timeline.final.state not in GIVEN_UP or _was_refused(history, timeline):
            continue
        most = 0 if last is None else last.attempt + history.did(("killed", "died"), last)
        if most < limit:
            yield Violation("rejected_at_limit", f"{message} in {group} was given up after {most} of {limit} attempts")


def _was_refused(history: QueueHistory, timeline: Timeline) -> bool:
    return any(each.what == "reject" and history.how(each) in ("ok", "unknown") for each in timeline.asked)


def innocents_spared(history: QueueHistory) -> Iterator[Violation]:
    """A message that kills nobody is given up only when it was handed to a worker's code as often as its limit says:
    what merely lay beside a killer is not."""
    for (group, message), timeline in history.timelines.items():
        final = timeline.final
        innocent = message not in history.killers and not _was_refused(history, timeline)
        if final is None or final.state not in GIVEN_UP or not innocent:
            continue
        times, limit = len({handed.lease for handed in timeline.handed}), history.limit(group, message)
        first = history.published.get(message)
        unseen = 0 if first is None else history.did(("killed",), first)
        if not times or times + unseen < limit:
            said = f"{message} in {group} was given up, and was handed out {times} times of {limit}"
            yield Violation("innocents_spared", said)


RULES: tuple[Rule, ...] = (
    nothing_lost,
    nothing_invented,
    lane_kept,
    settled_by_somebody,
    settled_stays,
    one_live_lease,
    stale_changes_nothing,
    attempts_exact,
    backoff_kept,
    rejected_at_limit,
    innocents_spared,
)


def violations(history: QueueHistory, rules: Iterable[Rule] = RULES) -> list[Violation]:
    """Return every violation of every rule; an empty list means that the history is a good one."""
    return [violation for rule in rules for violation in rule(history)]
