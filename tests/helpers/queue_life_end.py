"""The end of a life of queue groups: all that is left is taken, and the broker is asked what became of every message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.protocol.messages import AcquireReply, MessageStates, MessageStatesReply, Settling

from .broker_core import SECOND
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
