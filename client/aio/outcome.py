"""Ask the broker what became of a message with a dedup id."""

from __future__ import annotations

from ...protocol.errors import UnknownTopicIdError
from ...protocol.messages import OutcomeReply
from ..core.deadline import Deadline
from ..core.outcome import outcome_question, outcome_receipt
from ..core.record import Data, DedupId, to_bytes, to_dedup_id
from ..receipt import Receipt
from .session import Session


async def find_outcome(
    session: Session, name: str, dedup_id: DedupId, key: Data, partition: int | None, deadline: Deadline
) -> Receipt | None:
    """Return the receipt of the message, None if there is none. Raises UnknownTopicError, ValueError."""
    hashed, key_data = to_dedup_id(dedup_id), to_bytes(key, "key")
    topic = await session.topic(name, deadline)
    question = outcome_question(topic, hashed, key_data, partition)
    try:
        reply = (await session.link.call(question, deadline)).message
    except UnknownTopicIdError:  # deleted and made again since it was looked up: then nothing is known of its ids
        session.forget(topic)
        topic = await session.topic(name, deadline)
        question = outcome_question(topic, hashed, key_data, partition)
        reply = (await session.link.call(question, deadline)).message
    assert isinstance(reply, OutcomeReply)
    return outcome_receipt(topic, reply)
