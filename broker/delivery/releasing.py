"""What becomes of messages whose attempt failed: they wait by their policy, or are given up at their limit."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from ...protocol.messages import SettleError
from ...protocol.messages.queue import POLICY_DELAY
from .backoff import RetryPolicy
from .events import Event, Flag, Kind
from .moment import Moment
from .offset_set import OffsetSet, array_of, packed_of, set_of_array
from .queue_state import QueueState

Policies = Callable[[OffsetSet], Iterable[tuple[OffsetSet, RetryPolicy]]]
"""Returns the retry policies of messages, as parts that cover them and are not to be changed."""


SPREAD = 16
"""Into so many parts jitter spreads what fails together: each is a range, and so an event of its own."""


class Failure(NamedTuple):
    """How attempts ended: of which lease, asked by whom, and why."""

    group: int
    generation: int
    lease: int
    flags: Flag = Flag.NONE
    member: int = 0
    number: int = 0
    error: SettleError | None = None
    together: int = 0
    """How many of the suspects among them may be leased together next."""
    delay_us: int = POLICY_DELAY


class Retrying(NamedTuple):
    """What decides about another attempt: policies, chance (from 0 up to 1), and the time."""

    policies: Policies
    chance: Callable[[], float]
    now: Moment
    keeps: bool = False
    """Whether what is given up goes to a dead-letter topic."""

    @property
    def given_up(self) -> Flag:
        """How giving up is recorded."""
        return Flag.KEPT if self.keeps else Flag.NONE


def released(state: QueueState, offsets: OffsetSet, failure: Failure, retrying: Retrying) -> list[Event]:
    """Return the events that give messages back after an attempt; those at their limit are rejected, or where several
    were in the hands of a member that went down are to be leased alone.

    Those that fail together and wait by the same policy are spread by its jitter: `SPREAD` draws of chance for them.
    """
    given_up = OffsetSet()
    waits: dict[int, OffsetSet] = {}
    delays: dict[tuple[int, RetryPolicy, int], int] = {}

    def wait(some: OffsetSet, delay_us: int) -> None:
        waits[delay_us] = waits[delay_us] | some if delay_us in waits else some

    for mark, part in state.marks.parts(offsets):
        attempts = mark.attempts + 1
        for mine, policy in retrying.policies(part):
            if attempts >= policy.max_attempts:
                given_up |= mine
                continue
            if failure.delay_us != POLICY_DELAY:
                wait(mine, failure.delay_us)
                continue
            for number, some in enumerate(_spread(mine, policy)):
                key = (attempts, policy, number)
                if key not in delays:
                    delays[key] = policy.backoff.delay_us(attempts, retrying.chance())
                wait(some, delays[key])
    events = [_event(Kind.RELEASED, group, failure, retrying.now, delay_us) for delay_us, group in waits.items()]
    if given_up and Flag.SEVERAL in failure.flags:
        alone = failure._replace(flags=Flag.EXPIRED, together=1)
        events.append(_event(Kind.SUSPECTED, given_up, alone, retrying.now, 0))
    elif given_up:
        at_limit = failure._replace(flags=failure.flags | Flag.AT_LIMIT | retrying.given_up)
        events.append(_event(Kind.REJECTED, given_up, at_limit, retrying.now, 0))
    return events


def _spread(offsets: OffsetSet, policy: RetryPolicy) -> list[OffsetSet]:
    """Return messages as parts that wait each by a draw of its own: neighbours stay together."""
    count = len(offsets)
    if count == 1 or not policy.backoff.jitter:
        return [offsets]
    places = array_of(offsets)
    parts = min(count, SPREAD)
    return [set_of_array(places[count * at // parts : count * (at + 1) // parts]) for at in range(parts)]


def _event(kind: Kind, offsets: OffsetSet, failure: Failure, now: Moment, delay_us: int) -> Event:
    return Event(
        kind,
        failure.group,
        failure.generation,
        packed_of(offsets),
        lease=failure.lease,
        member=failure.member,
        number=failure.number,
        time_us=now.wall_us + delay_us,
        duration_us=delay_us,
        count=failure.together,
        flags=failure.flags,
        error=failure.error,
    )
