"""What the broker says about itself."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec


class Pong(msgspec.Struct, frozen=True):
    """The answer to a ping."""

    address: str
    broker_version: str
    node_id: str
    server_time: datetime
    round_trip: timedelta


class Health(msgspec.Struct, frozen=True):
    """Whether every partition takes writes and is undamaged; `problems` has one line for each that is not."""

    ok: bool
    pong: Pong
    topics: int
    partitions: int
    problems: list[str]
