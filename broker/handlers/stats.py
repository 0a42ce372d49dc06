"""Counters and gauges."""

from __future__ import annotations

from ...protocol.messages import StatsReply
from ..deferred import Reply
from .context import Context


def stats(context: Context) -> Reply:
    """Return all of them by name; `metrics.HELP` says what each means."""
    return Reply(StatsReply({**context.metrics.values(), **context.gauges()}))
