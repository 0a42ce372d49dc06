"""The end of a life of queue groups: all that is left is taken, and the broker is asked what became of every message."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tidelog.protocol.messages import AcquireReply, MessageStates, MessageStatesReply, Settling

from .broker_core import SECOND
from .giving_up import copies
from .history import Bounds
from .queue_history import Final, WorkerEvent, message_of

if TYPE_CHECKING:
    from .queue_life import QueueLife


def drain(life: QueueLife) -> None:
    """Let every member go, and one more of each group acknowledge all there is, however long it waits."""
    for member in life.members:
        life.note(WorkerEvent(worker=member.name, did="killed"))
        member.connection.close()
    life.members.clear()
    for group in life.groups:
        last, idle = life.new_member(group), 0
        while idle < 3:
            taken = last.acquire(1_000)
            life.core.settle()
            last.harvest()
            assert not taken.is_pending
            answer = taken.message()
            assert isinstance(answer, AcquireReply)
            assert answer.errors == []
            for held in [*last.held.values()]:
                last.settle([(held, Settling.ACCEPT, sorted(held.left), 0)])
                idle = -1
            life.core.settle()
            last.harvest()
            assert not last.requests
            idle += 1
            life.core.advance(45 * SECOND)


def ask_for_all(life: QueueLife) -> None:
    """Ask the broker what every message is in every group."""
    door = life.core.door()
    for index, partition in enumerate(life.partitions):
        name = f"{life.book.topic}/{index}"
        life.note(Bounds(partition=name, start=partition.start_offset, end=partition.visible_offset))
        for offset, value in enumerate(life.core.read(partition), partition.start_offset):
            message = message_of(value)
            life.publish([message], name, offset)
            states = door.ask(MessageStates(life.topic_id, index, offset)).message()
            assert isinstance(states, MessageStatesReply)
            for state in states.states:
                life.note(
                    Final(
                        group=state.group,
                        message=message,
                        partition=name,
                        offset=offset,
                        state=state.state,
                        attempts=state.attempts,
                    )
                )


def copies_amiss(life: QueueLife) -> list[str]:
    """Return which messages that were given up do not have one copy each in the dead-letter topic; one that a reset or
    a lost acknowledgement brought back may have been given up again."""
    topic = life.core.topics.find(f"default/{life.book.topic}.dlq")
    found = Counter(
        (copy.said("dlq.group").removeprefix("default/"), message_of(copy.value))
        for partition in (() if topic is None else topic.partitions)
        for copy in copies(life.core, partition)
    )
    given_up = {(event.group, event.message) for event in life.events if isinstance(event, Final) and _is_letter(event)}
    is_once = life.durability == "synced" and not life.resets
    amiss = [f"{group} gave up {message}: no copy" for group, message in given_up - found.keys()]
    if is_once:
        amiss += [
            f"{group} gave up {message}: {count} copies" for (group, message), count in found.items() if count > 1
        ]
        amiss += [f"{group} has a copy of {message}" for group, message in found.keys() - given_up]
    return amiss


def _is_letter(event: Final) -> bool:
    return event.state == "dead-lettered"
