"""The start of a connection, and signs of life."""

from __future__ import annotations

from ...protocol.errors import UnsupportedError
from ...protocol.messages import Hello, HelloReply, PingReply
from ..deferred import Reply
from .context import Context, Peer


def hello(context: Context, peer: Peer, request: Hello) -> Reply:
    """Tell who answers and what it takes. Refuses credentials: nobody should believe that they are checked."""
    if request.token is not None:
        raise UnsupportedError("expected no token, since this broker knows no credentials yet; leave it out")
    peer.greet(f"{request.client_name} {request.client_version}".strip())
    return Reply(HelloReply(context.version, context.node_id, context.time.now_us(), context.limits))


def ping(context: Context) -> Reply:
    """Tell the broker's time."""
    return Reply(PingReply(context.time.now_us()))
