"""Ask the broker what became of a message with a dedup id."""

from __future__ import annotations

from ...protocol.errors import UnknownTopicIdError
from ...protocol.messages import OutcomeReply
from ..core.deadline import Deadline
from ..core.outcome import outcome_question, outcome_receipt
from ..core.record import Data, DedupId, to_bytes, to_dedup_id
from ..receipt import Receipt
from .sender import MAX_REROUTES
from .session import Session


async def find_outcome(
    session: Session, name: str, dedup_id: DedupId, key: Data, partition: int | None, deadline: Deadline
) -> Receipt | None:
    """Return the receipt of the message, None if there is none. Raises UnknownTopicError, ValueError.

    Where to ask depends on what is known of the topic. What the broker answers counts if that is the latest, or asks
    the same.
    """
    hashed, key_data = to_dedup_id(dedup_id), to_bytes(key, "key")
    asked, reply, gone = None, None, 0
    while True:
        topic = await session.topic(name, deadline, partition=partition)
        question = outcome_question(topic, hashed, key_data, partition)
        if question != asked:
            try:
                reply = (await session.link.call(question, deadline)).message
            except UnknownTopicIdError:  # deleted and made again since it was looked up: nothing is known of its ids
                session.forget(topic)
                gone += 1
                if gone == MAX_REROUTES:
                    raise
                continue
            asked = question
        assert isinstance(reply, OutcomeReply)
        with session.lock:
            session.directory.seen(reply.metadata_version)
        if topic.version >= reply.metadata_version:
            return outcome_receipt(topic, reply)
