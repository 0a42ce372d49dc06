"""Identities of producers."""

from __future__ import annotations

from ...protocol.messages import InitProducer
from ..deferred import Reply
from .context import Answer, Context


def init_producer(context: Context, request: InitProducer) -> Answer:
    """Give a producer its id and epoch."""
    return context.topics.init_producer(request.name).then(Reply)
