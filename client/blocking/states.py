# Generated from client/aio/states.py by client/generate.py: change that, then run it.
"""Ask the broker what every queue group makes of a message."""

from __future__ import annotations

from ...protocol.errors import NotFoundError, UnknownTopicIdError
from ...protocol.messages import MessageStates, MessageStatesReply
from ...protocol.topic_name import MessageId
from ..core.deadline import Deadline
from ..core.directory import TopicEntry
from ..message_state import MessageState
from .sender import MAX_REROUTES
from .session import Session


def find_states(session: Session, wanted: MessageId, deadline: Deadline) -> list[MessageState]:
    """Return one state a group that reads the topic, by the groups' names. Raises UnknownTopicError, NotFoundError."""
    gone = 0
    while True:
        topic = session.topic(wanted.topic, deadline)
        if topic.count != wanted.count:
            raise NotFoundError(f"expected a message of {topic.shown} as it is now, found the id {wanted}")
        try:
            states = _read_states(session, topic, wanted, deadline)
        except UnknownTopicIdError:  # made again since it was looked up
            session.forget(topic)
            gone += 1
            if gone == MAX_REROUTES:
                raise
            continue
        return sorted(states, key=lambda state: state.group)


def _read_states(session: Session, topic: TopicEntry, wanted: MessageId, deadline: Deadline) -> list[MessageState]:
    """Return the states of all groups, which may take several pages."""
    found: list[MessageState] = []
    place: int | None = 0
    while place is not None:
        question = MessageStates(topic.id, wanted.partition, wanted.offset, place)
        reply = (session.link.call(question, deadline)).message
        assert isinstance(reply, MessageStatesReply)
        found += [MessageState.of(state, wanted) for state in reply.states]
        place = reply.place
    return found
