"""Counters and gauges."""

from __future__ import annotations

from ...protocol.messages import Stats, StatsPlace, StatsReply
from ..deferred import Reply
from ..flow import Flow
from ..metrics import Values
from ..page_room import PageRoom
from ..turns import Pace, in_turns
from .context import Answer, Context


def stats(context: Context, request: Stats) -> Answer:
    """Return all of them by name; `metrics.HELP` says what each means."""
    return in_turns(_told(context, request))


def _told(context: Context, request: Stats) -> Flow[Reply]:
    """Read them in turns; what is of no group comes first."""
    begin, pace, values = request.place or StatsPlace(), Pace(context.offload), Values()
    room = PageRoom.asked(request.place)
    if begin == StatsPlace():
        values = {**context.metrics.values(), **(yield from context.gauges(pace))}
    found, rest = yield from context.queues.group_gauges(begin, room, pace)
    return Reply(StatsReply({**values, **found}, rest))
