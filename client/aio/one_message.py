"""Reading one message by its id."""

from __future__ import annotations

import numpy as np

from ...protocol.batch import decode_batch, verify
from ...protocol.errors import NotFoundError
from ...protocol.messages import Get, GetReply
from ...protocol.topic_name import MessageId, short_name
from ..core.deadline import Deadline
from ..message import Message
from ..message_batch import MessageBatch
from .session import Session


async def read_one(session: Session, wanted: MessageId, deadline: Deadline) -> MessageBatch[Message]:
    """Return a batch of one message. Raises NotFoundError, UnknownTopicError."""
    request = Get(wanted.topic, wanted.count, wanted.partition, wanted.offset)
    reply = await session.link.call(request, deadline)
    assert isinstance(reply.message, GetReply)
    verify(reply.bulk)
    records = decode_batch(reply.bulk)
    batch = MessageBatch[Message](short_name(wanted.topic), wanted.count, wanted.partition, records)
    at = int(np.searchsorted(batch.offsets, wanted.offset))
    if at < len(batch) and batch.offsets[at] == wanted.offset:
        return batch[at : at + 1]
    raise NotFoundError(f"no message {wanted}: the broker answered with {batch!r}")
