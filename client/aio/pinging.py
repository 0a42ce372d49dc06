"""Asking a broker for a sign of life: all that `tidelog ping` needs, so it loads nothing of producing and reading."""

from __future__ import annotations

from datetime import timedelta

from ...protocol.messages import Ping, PingReply
from ..core.deadline import Deadline
from ..core.times import from_us
from ..core.url import Target
from ..core.vigil import QUIET_S
from ..health import Pong
from . import runtime
from .link import Acquaintance, Link


def lone_link(target: Target, client_name: str, client_version: str) -> Link:
    """Return a link without a client round it, for whoever only asks."""
    return Link(target.servers, client_name, client_version, runtime.Lock(), QUIET_S, Acquaintance())


async def ping(link: Link, deadline: Deadline) -> Pong:
    """Connect if need be, then take the time of one question and its answer."""
    await link.connection(deadline)
    started = link.time.now()
    reply = (await link.call(Ping(), deadline)).message
    assert isinstance(reply, PingReply)
    round_trip = timedelta(seconds=link.time.now() - started)
    greeting = link.greeting
    assert greeting is not None
    return Pong(link.address, greeting.broker_version, greeting.node_id, from_us(reply.server_time_us), round_trip)
