"""Appending batches to a partition."""

from __future__ import annotations

from ...protocol.durability import Durability
from ...protocol.errors import InvalidRequestError
from ...protocol.limits import MAX_WAIT_US
from ...protocol.messages import Produce, ProduceReply
from ..deferred import Reply
from ..partition import Produced
from .context import Answer, Context

AS_THE_TOPIC_SAYS = 0
_DURABILITIES = frozenset({AS_THE_TOPIC_SAYS, *Durability})


def produce(context: Context, request: Produce, bulk: memoryview) -> Answer:
    """Append the batches in `bulk`; answered once they are as durable as the request asks for."""
    if request.durability not in _DURABILITIES:
        raise InvalidRequestError(f"expected a durability of 0 to 3, found {request.durability}")
    if not bulk:
        raise InvalidRequestError("expected at least one batch, found none")
    context.metrics.produce_request_bytes += len(bulk)
    produced = context.topics.partition(request.topic_id, request.partition).produce(
        bulk, durability=request.durability, max_wait_us=min(request.max_wait_us, MAX_WAIT_US)
    )
    if isinstance(produced, Produced):
        return _reply(context, produced)
    return produced.then(lambda result: _reply(context, result))


def _reply(context: Context, produced: Produced) -> Reply:
    metrics = context.metrics
    stored = 0
    for result in produced.results:
        if result.error is not None:
            metrics.refused_batches += 1
        elif result.duplicate:
            metrics.duplicate_batches += 1
        else:
            stored += 1
            metrics.duplicate_records += len(result.duplicates)
            metrics.produced_records += result.record_count
    metrics.produced_batches += stored
    return Reply(ProduceReply(context.topics.version, produced.durability, produced.results))
