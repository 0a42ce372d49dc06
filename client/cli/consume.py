"""`tidelog consume`, `tail` and `replay`: print messages, and leave no state behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from ...protocol.errors import NotFoundError, TidelogError, TimedOutError
from .command import Command, example
from .consume_queue import (
    Group,
    Mode,
    QueueRun,
    Settle,
    SettleMode,
    VisibilityTimeout,
    check_no_group,
    consume_queue,
)
from .errors import OutputClosed, WrongUsage
from .escaping import visible_bytes
from .message_json import message_fields
from .options import (
    DEFAULT_TIMEOUT_S,
    Output,
    OutputFormat,
    Timeout,
    Topic,
    Url,
    parse_limit,
    parse_partition,
    parse_timeout_s,
)
from .output import StandardOutput
from .progress import can_be_drawn, progress
from .session import check_partition, connected
from .times import Bound, Position, parse_position

if TYPE_CHECKING:
    from ..blocking.client import Client
    from ..blocking.consumer import Consumer
    from ..message import Message

RECEIVE_MESSAGES = 1_000
"""Messages written before the output is flushed and the limit is looked at."""

WATCH_S = 1.0
"""How often a follower looks whether anybody still reads its output."""

LEAST_PATIENCE_S = 3.0
"""A shorter --timeout is about messages that do not come, not about the way to the broker."""

POSITION = "earliest, latest, an offset, or a time: 2025-01-14T15:00:00Z, now, -15m."

From = Annotated[
    Position | None,
    typer.Option(
        "--from",
        parser=parse_position,
        metavar="POSITION",
        help=f"{POSITION} [default: earliest; with --follow latest]",
    ),
]
To = Annotated[
    Position | None,
    typer.Option(
        "--to", parser=parse_position, metavar="POSITION", help="Where to end, exclusive [default: the end now]."
    ),
]
ReplayFrom = Annotated[Position, typer.Option("--from", parser=parse_position, metavar="POSITION", help=POSITION)]
ReplayTo = Annotated[
    Position, typer.Option("--to", parser=parse_position, metavar="POSITION", help="The end, exclusive.")
]
Partition = Annotated[
    int | None, typer.Option("--partition", parser=parse_partition, metavar="N", help="Only this one [default: all].")
]
Limit = Annotated[int | None, typer.Option("--limit", parser=parse_limit, metavar="N", help="Stop after N messages.")]
IdleTimeout = Annotated[
    float | None,
    typer.Option(
        "--timeout", parser=parse_timeout_s, metavar="DURATION", help="Stop when no message came for this long."
    ),
]
IncludeArchived = Annotated[
    bool, typer.Option("--include-archived", help="Read what retention removed from the broker's archive.")
]
Follow = Annotated[bool, typer.Option("--follow", help="Go on with what is produced from now on.")]


@dataclass(frozen=True, slots=True)
class Stop:
    """When to stop reading: after so many messages, or after so long a silence."""

    limit: int | None
    idle_s: float | None

    @property
    def patience_s(self) -> float:
        """How long a broker may take to answer: not for ever where a silence would have ended the command by then."""
        return DEFAULT_TIMEOUT_S if self.idle_s is None else min(DEFAULT_TIMEOUT_S, max(self.idle_s, LEAST_PATIENCE_S))


@dataclass(frozen=True, slots=True)
class Found:
    """The broker's clock, which gave the append times, and where the partition that is meant ends."""

    now: datetime
    end_offset: int


def consume(
    topic: Topic,
    start: From = None,
    end: To = None,
    partition: Partition = None,
    limit: Limit = None,
    timeout: IdleTimeout = None,
    follow: Follow = False,
    include_archived: IncludeArchived = False,
    group: Group = None,
    mode: Mode = None,
    settle: Settle = None,
    visibility_timeout: VisibilityTimeout = None,
    url: Url = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Print the messages of a topic. Without --group no state is left behind.

    Each value and a newline, byte for byte in a pipe, escaped on a terminal; with --output json everything about each
    message, a line that `tidelog produce --input json` reads. It ends at the end there was at its first read, and
    with exit code 3 if there was no message at all.

    A bare number is an offset, and needs --partition where there are several. A --to past the end means the end; a
    --from past it is OFFSET_OUT_OF_RANGE. Times are those of the broker's clock.

    With --group it takes messages of a queue group, which nobody else of the group gets meanwhile. Each is acknowledged
    when it was written out; what was not goes back, uncounted. With --settle none it is left leased, for `tidelog
    settle`: a line is the token, a tab and the value; with JSON there is a `lease_token`. It ends when nothing came for
    a second, or for --timeout. --from says where a new group begins [default: earliest].
    """
    if group is not None:
        if end is not None or partition is not None or include_archived:
            raise WrongUsage("expected no --to, --partition or --include-archived with --group")
        run = QueueRun(topic, group, start, settle or SettleMode.ACK, visibility_timeout, limit, timeout, follow)
        consume_queue(run, mode, url, output)
        return
    check_no_group(mode, settle, visibility_timeout)
    if follow and end is not None:
        raise WrongUsage("expected --follow or --to, found both")
    first = start or Position("latest" if follow else "earliest")
    last = None if follow else end or Position("latest")
    _consume(topic, first, last, partition, Stop(limit, timeout), url, output, include_archived)


def tail(
    topic: Topic,
    partition: Partition = None,
    limit: Limit = None,
    timeout: IdleTimeout = None,
    url: Url = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Print what is produced from now on, until Ctrl-C: the same as `consume --follow --from latest`."""
    _consume(topic, Position("latest"), None, partition, Stop(limit, timeout), url, output)


def replay(
    topic: Topic,
    start: ReplayFrom,
    end: ReplayTo,
    partition: Partition = None,
    limit: Limit = None,
    include_archived: IncludeArchived = False,
    url: Url = None,
    output: Output = OutputFormat.TABLE,
    timeout: Timeout = None,
) -> None:
    """Print exactly the messages appended from one moment up to another, the same at every repetition.

    If retention or damage took a part of the range, the error says what is left, and nothing is printed as if it were
    whole. With --include-archived what retention took comes from the broker's archive.
    """
    out = StandardOutput()
    write = _writer(out, output)
    with connected(url, timeout) as client:
        found = _look_up(client, topic, (start, end), partition)
        first, last = start.resolve(found.now), end.resolve(found.now)
        _check_order(first, last)
        with client.replay(
            topic, start=first, end=last, partition=partition, include_archived=include_archived
        ) as reader:
            total = sum(max(0, stop - begin) for begin, stop in reader.ranges().values())
            total = total if limit is None else min(total, limit)
            with progress(f"replaying {topic}", total, shown=not out.is_terminal) as advance:
                left = total
                for batch in reader:
                    messages = batch.messages()[:left]
                    write(messages)
                    advance(len(messages))
                    left -= len(messages)
                    if not left:
                        break
    out.flush()
    if not total:
        raise NotFoundError(f"no message of {topic} is in that range")


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    lines = (
        "tidelog consume orders --from -1h --to now",
        "tidelog consume orders --partition 2 --from 45678 --limit 10 --output json",
        "tidelog consume orders --follow --timeout 5m",
        "tidelog consume orders --group billing --mode queue --follow",
        "tidelog consume orders --group billing --settle none --limit 1",
    )
    app.command("consume", cls=Command, epilog=example(*lines))(consume)
    app.command("tail", cls=Command, epilog=example("tidelog tail orders --output json"))(tail)
    line = "tidelog replay orders --from 2025-01-14T15:00:00Z --to 2025-01-14T16:00:00Z"
    app.command("replay", cls=Command, epilog=example(line))(replay)


def _consume(
    topic: str,
    start: Position,
    end: Position | None,
    partition: int | None,
    stop: Stop,
    url: str | None,
    output: OutputFormat,
    include_archived: bool = False,
) -> None:
    out = StandardOutput()
    write = _writer(out, output)
    with connected(url, stop.patience_s) as client:
        found = _look_up(client, topic, (start,) if end is None else (start, end), partition)
        first, last = start.resolve(found.now), None if end is None else end.resolve(found.now)
        _check_order(first, last)
        is_past_end = isinstance(first, int) and first > found.end_offset  # the broker refuses that, whatever the end
        if isinstance(last, int) and not is_past_end:
            last = min(last, found.end_offset)  # without --follow nobody waits for what is not there yet
        count = 0
        shown = not out.is_terminal and last is not None and can_be_drawn()
        total = None
        if shown:
            total = _count(client, topic, (first, last or "latest"), partition, stop.limit, include_archived)
        with (
            client.consumer(
                topic, start=first, end=last, partition=partition, include_archived=include_archived
            ) as reader,
            progress(f"consuming {topic}", total, shown=total is not None) as advance,
        ):
            for messages in _received(reader, stop, out):
                write(messages)
                out.flush()
                count += len(messages)
                advance(len(messages))
    if not count:
        raise NotFoundError(f"no message of {topic} is in that range")


def _count(
    client: Client,
    topic: str,
    bounds: tuple[Bound, Bound],
    partition: int | None,
    limit: int | None,
    include_archived: bool,
) -> int | None:
    """Return how many messages a bar counts up to, or None where the range says so itself when it is read."""
    first, last = bounds
    try:
        with client.replay(
            topic, start=first, end=last, partition=partition, include_archived=include_archived
        ) as reader:
            total = sum(max(0, stop - begin) for begin, stop in reader.ranges().values())
    except TidelogError:
        return None
    return total if limit is None else min(total, limit)


def _received(reader: Consumer, stop: Stop, out: StandardOutput) -> Iterator[list[Message]]:
    """Yield messages until the limit, the end, or a silence of the timeout: then TimedOutError."""
    left = stop.limit
    silent_s = 0.0
    while left is None or left > 0:
        wait_s = WATCH_S if stop.idle_s is None else min(WATCH_S, max(0.0, stop.idle_s - silent_s))
        messages = reader.receive(RECEIVE_MESSAGES if left is None else min(left, RECEIVE_MESSAGES), timeout=wait_s)
        if messages:
            silent_s = 0.0
            left = None if left is None else left - len(messages)
            yield messages
            continue
        if reader.is_finished:
            return
        silent_s += wait_s
        if stop.idle_s is not None and silent_s >= stop.idle_s:
            raise TimedOutError(f"expected a message within {stop.idle_s:g} s, found none")
        if out.reader_is_gone():
            raise OutputClosed


def _look_up(client: Client, topic: str, positions: tuple[Position, ...], partition: int | None) -> Found:
    """Ask the broker for its clock, and where a partition or an offset is named, whether it can be there."""
    now = client.ping().server_time  # before anything else: a broker that is not there is said at once
    if partition is None and not any(position.is_offset for position in positions):
        return Found(now, 0)
    partitions = client.topics.describe(topic).partitions
    if partition is None and len(partitions) > 1:
        raise WrongUsage(f"an offset needs --partition: {topic} has {len(partitions)} partitions")
    if partition is not None:
        check_partition(partition, len(partitions), topic)
    return Found(now, partitions[partition or 0].end_offset)


def _check_order(first: Bound, last: Bound | None) -> None:
    """Raise WrongUsage for a range that is written backwards: an empty answer would hide the slip."""
    backwards = (
        (isinstance(first, int) and isinstance(last, int) and first > last)
        or (isinstance(first, datetime) and isinstance(last, datetime) and first > last)
        or (first == "latest" and last == "earliest")
    )
    if backwards:
        raise WrongUsage("expected --from to be before --to, found it after")


def _writer(out: StandardOutput, output: OutputFormat) -> Callable[[Sequence[Message]], None]:
    def as_json(messages: Sequence[Message]) -> None:
        for message in messages:
            out.json(message_fields(message))

    def escaped(messages: Sequence[Message]) -> None:
        for message in messages:
            out.text(visible_bytes(message.value or b""))

    def raw(messages: Sequence[Message]) -> None:
        out.write(b"".join([b"%b\n" % (message.value or b"") for message in messages]))

    return as_json if output is OutputFormat.JSON else escaped if out.is_terminal else raw
