"""`tidelog bench produce|consume|latency|queue`."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from ....protocol.durability import Durability
from ....protocol.limits import MAX_MESSAGE_BYTES
from ....protocol.quantities import format_size, parse_size
from ..command import Command, Group, example
from ..errors import WrongUsage
from ..options import (
    DEFAULT_TIMEOUT_S,
    Output,
    OutputFormat,
    Timeout,
    Url,
    parse_limit,
    parse_partitions,
    parse_topic,
    parse_whole,
)
from .payload import SMALLEST_BYTES

if TYPE_CHECKING:
    from .runs import Plan

MAX_CALLERS = 1_000
"""Threads of one process; beyond this they measure the operating system."""

MAX_HELD_BYTES = 1 << 30
"""Messages are made before the clock begins, and what was read is compared after it: so much may be held for that."""

DEFAULT_MESSAGES, DEFAULT_LATENCY_MESSAGES = 100_000, 1_000
DEFAULT_BATCH = 1_000


class SendMode(Enum):
    """How messages are sent."""

    MANY = "many"
    SEND = "send"
    SINGLE = "single"


class ReadMode(Enum):
    """How messages are read."""

    MESSAGES = "messages"
    BATCHES = "batches"


def parse_payload_size(text: str) -> int:
    """Read how large a value is."""
    size = parse_size(text)
    if not SMALLEST_BYTES <= size <= MAX_MESSAGE_BYTES:
        raise ValueError(f"expected {SMALLEST_BYTES} to {format_size(MAX_MESSAGE_BYTES)}, found {text!r}")
    return size


def parse_callers(text: str) -> int:
    """Read how many threads call at the same time."""
    return parse_whole(text, 1, MAX_CALLERS)


def parse_durability(text: str) -> str:
    """Read one of the three words."""
    return Durability.from_word(text).word


Topic = Annotated[
    str | None,
    typer.Option(
        "--topic",
        parser=parse_topic,
        metavar="NAME",
        help="Where to send; made if missing [default: a new tidelog-bench-...].",
    ),
]
Partitions = Annotated[
    int | None,
    typer.Option("--partitions", parser=parse_partitions, metavar="N", help="Of a topic that is made [default: 1]."),
]
Keep = Annotated[bool, typer.Option("--keep", help="Do not delete the topic that was made.")]
Messages = Annotated[
    int | None, typer.Option("--messages", parser=parse_limit, metavar="N", help="How many [default: 100000].")
]
FewMessages = Annotated[
    int | None, typer.Option("--messages", parser=parse_limit, metavar="N", help="How many [default: 1000].")
]
Size = Annotated[
    int | None,
    typer.Option("--size", parser=parse_payload_size, metavar="SIZE", help="Bytes of each value [default: 100]."),
]
SendBatch = Annotated[
    int | None,
    typer.Option("--batch", parser=parse_limit, metavar="N", help="Messages of one call, for many [default: 1000]."),
]
ReadBatch = Annotated[
    int | None,
    typer.Option("--batch", parser=parse_limit, metavar="N", help="Messages of one receive at most [default: 1000]."),
]
Callers = Annotated[
    int | None,
    typer.Option("--callers", parser=parse_callers, metavar="N", help="Threads at the same time [default: 1]."),
]
DurabilityWord = Annotated[
    str | None,
    typer.Option(
        "--durability",
        parser=parse_durability,
        metavar="synced|written|received",
        help="What each call waits for [default: the topic's].",
    ),
]
SendModeOption = Annotated[
    SendMode,
    typer.Option(
        "--mode",
        metavar="many|send|single",
        help="produce_many of lists, a producer's send of each message, or produce of one message at a time.",
    ),
]
ReadModeOption = Annotated[
    ReadMode, typer.Option("--mode", metavar="messages|batches", help="Message objects, or batches of columns.")
]


def produce(
    topic: Topic = None,
    messages: Messages = None,
    size: Size = None,
    mode: SendModeOption = SendMode.MANY,
    batch: SendBatch = None,
    callers: Callers = None,
    durability: DurabilityWord = None,
    partitions: Partitions = None,
    keep: Keep = False,
    url: Url = None,
    output: Output = OutputFormat.TABLE,
    timeout: Timeout = None,
) -> None:
    """Measure sending: messages a second, and how long each call takes until it is as durable as asked for.

    With --mode send a call does not wait; its time is that from the call to the report of the delivery.

    Every receipt is checked, and everything is read back and compared after the clock has stopped. If anything was
    lost, repeated, reordered, altered or misplaced, no figure is shown and the exit code is 1.
    """
    from .runs import run_produce

    if mode is not SendMode.MANY and batch is not None:
        raise WrongUsage("--batch needs --mode many: otherwise a call is about one message")
    where = _Where(topic, partitions, keep, url, timeout)
    plan = _plan(where, messages or DEFAULT_MESSAGES, size, callers, batch if mode is SendMode.MANY else 1, durability)
    run_produce(plan, mode.value, output)


def consume(
    topic: Topic = None,
    messages: Messages = None,
    size: Size = None,
    mode: ReadModeOption = ReadMode.MESSAGES,
    batch: ReadBatch = None,
    callers: Callers = None,
    partitions: Partitions = None,
    keep: Keep = False,
    url: Url = None,
    output: Output = OutputFormat.TABLE,
    timeout: Timeout = None,
) -> None:
    """Measure reading: messages a second, and how long each call waits for its messages.

    The messages are sent first, without being measured. Each caller reads all of them over a connection of its own;
    they are compared after the clock has stopped.
    """
    from .runs import run_consume

    if mode is ReadMode.BATCHES and batch is not None:
        raise WrongUsage("--batch needs --mode messages: otherwise batches come as they were stored")
    where = _Where(topic, partitions, keep, url, timeout)
    plan = _plan(where, messages or DEFAULT_MESSAGES, size, callers, batch, None)
    run_consume(plan, mode.value, output)


def latency(
    topic: Topic = None,
    messages: FewMessages = None,
    size: Size = None,
    callers: Callers = None,
    durability: DurabilityWord = None,
    partitions: Partitions = None,
    keep: Keep = False,
    url: Url = None,
    output: Output = OutputFormat.TABLE,
    timeout: Timeout = None,
) -> None:
    """Measure round trips: one message at a time, until its receipt, and until a consumer that follows has it.

    Consumers see a message when it is as durable as its topic asks, whatever the call waits for.
    """
    from .runs import run_latency

    where = _Where(topic, partitions, keep, url, timeout)
    plan = _plan(where, messages or DEFAULT_LATENCY_MESSAGES, size, callers, 1, durability)
    run_latency(plan, output)


def queue(
    topic: Topic = None,
    messages: Messages = None,
    size: Size = None,
    batch: ReadBatch = None,
    callers: Callers = None,
    partitions: Partitions = None,
    keep: Keep = False,
    url: Url = None,
    output: Output = OutputFormat.TABLE,
    timeout: Timeout = None,
) -> None:
    """Measure a queue group: messages a second, each acknowledged on its own, and how long a lone acknowledgement takes
    until it is durable.

    The messages are sent first, without being measured. Each caller is a consumer of the same group, which is made for
    it and deleted. Every message must be acknowledged once, by the messages themselves and by the group's account.
    """
    from .runs import run_queue

    where = _Where(topic, partitions, keep, url, timeout)
    run_queue(_plan(where, messages or DEFAULT_MESSAGES, size, callers, batch, None), output)


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    group = typer.Typer(cls=Group, help="Measure a running broker, and verify every message.", rich_markup_mode=None)
    group.command(
        "produce",
        cls=Command,
        epilog=example(
            "tidelog bench produce",
            "tidelog bench produce --size 1KiB --durability written --callers 8 --mode single --messages 10000",
        ),
    )(produce)
    group.command(
        "consume",
        cls=Command,
        epilog=example("tidelog bench consume --messages 1000000", "tidelog bench consume --mode batches"),
    )(consume)
    group.command("latency", cls=Command, epilog=example("tidelog bench latency --durability synced --output json"))(
        latency
    )
    group.command(
        "queue",
        cls=Command,
        epilog=example("tidelog bench queue", "tidelog bench queue --messages 1000000 --callers 4 --partitions 4"),
    )(queue)
    app.add_typer(group, name="bench")


@dataclass(frozen=True, slots=True)
class _Where:
    topic: str | None
    partitions: int | None
    keep: bool
    url: str | None
    timeout: float | None


def _plan(
    where: _Where, messages: int, size: int | None, callers: int | None, batch: int | None, durability: str | None
) -> Plan:
    from .runs import Plan

    size = 100 if size is None else size
    callers = callers or 1
    if messages * size > MAX_HELD_BYTES:
        found = f"{messages} of {format_size(size)}"
        raise WrongUsage(f"expected at most {format_size(MAX_HELD_BYTES)} of messages, found {found}")
    if callers > messages:
        raise WrongUsage(f"expected at least one message for each of {callers} callers, found {messages}")
    return Plan(
        url=where.url,
        timeout_s=DEFAULT_TIMEOUT_S if where.timeout is None else where.timeout,
        topic=where.topic,
        partitions=where.partitions,
        keep=where.keep,
        messages=messages,
        size=size,
        batch=batch or DEFAULT_BATCH,
        callers=callers,
        durability=durability,
        run=secrets.token_bytes(8),
    )
