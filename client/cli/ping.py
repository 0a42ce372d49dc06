"""`tidelog ping`: is a broker there, which one, and how far away?

It needs a connection and nothing more, so it loads neither numpy nor what produces and reads.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import TYPE_CHECKING

import typer

from ...protocol.errors import ClosedError
from .command import Command, example
from .options import DEFAULT_TIMEOUT_S, Output, OutputFormat, Timeout, Url
from .output import StandardOutput
from .session import CLIENT_NAME, URL_VARIABLE, address_refused
from .times import format_time

if TYPE_CHECKING:
    from ..health import Pong


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("ping", cls=Command, epilog=example("tidelog ping", "tidelog ping --url broker-1:9440 --output json"))(
        ping
    )


def ping(url: Url = None, output: Output = OutputFormat.TABLE, timeout: Timeout = None) -> None:
    """Ask the broker for a sign of life: its version, node and clock, and how long the answer took."""
    out = StandardOutput()
    pong = _pong(url, timeout)
    round_trip_us = pong.round_trip // timedelta(microseconds=1)
    if output is OutputFormat.JSON:
        out.json(
            {
                "address": pong.address,
                "broker_version": pong.broker_version,
                "node_id": pong.node_id,
                "server_time": format_time(pong.server_time),
                "round_trip_us": round_trip_us,
            }
        )
    else:
        out.facts(
            [
                ("address", pong.address),
                ("broker", f"tidelog {pong.broker_version}"),
                ("node", pong.node_id),
                ("time", format_time(pong.server_time)),
                ("round trip", f"{round_trip_us / 1000:.3f} ms"),
            ]
        )
    out.flush()


def _pong(url: str | None, timeout: float | None) -> Pong:
    from ..blocking.pinging import lone_link, ping
    from ..blocking.runtime import now
    from ..core.deadline import Deadline
    from ..core.url import target
    from ..version import client_version

    with address_refused(url):
        where = target(url, from_environment=os.environ.get(URL_VARIABLE))
    link = lone_link(where, CLIENT_NAME, client_version())
    try:
        return ping(link, Deadline.after(DEFAULT_TIMEOUT_S if timeout is None else timeout, now()))
    finally:
        link.close(ClosedError("the client is closed"))
