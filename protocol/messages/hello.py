"""The start of a connection, and whether the other side is alive."""

from __future__ import annotations

from .base import Message, Name


class Hello(Message):
    """Must come first. `token` is refused until brokers know credentials."""

    client_name: Name
    client_version: Name
    token: str | None = None


class BrokerLimits(Message):
    """What the broker takes; a client cuts its requests accordingly."""

    max_frame_bytes: int
    max_message_bytes: int
    max_batch_bytes: int
    max_batch_payload_bytes: int
    max_requests_in_flight: int
    max_wait_us: int
    idle_timeout_us: int


class HelloReply(Message):
    """Who answers, its limits and its clock."""

    broker_version: str
    node_id: str
    server_time_us: int
    limits: BrokerLimits


class Ping(Message):
    """Asks for a sign of life."""


class PingReply(Message):
    """The broker's clock."""

    server_time_us: int
