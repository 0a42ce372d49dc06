"""`tidelog consume --group G --mode queue`: take messages of a queue group, and settle them or leave them leased.

A message is acknowledged once it was written out, and handed to the system. Whatever ends the command before that gives
it back at once, uncounted: a reader that went away, a full disk, Ctrl-C.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from ...protocol.errors import NotFoundError, TimedOutError, UnknownGroupError
from .completion import complete_group
from .errors import OutputClosed, WrongUsage
from .escaping import visible_bytes
from .group_places import check_new_group
from .lease_durations import parse_visibility
from .message_json import leased_fields
from .options import DEFAULT_TIMEOUT_S, OutputFormat, parse_group
from .output import StandardOutput
from .session import connected
from .times import Bound, Position

if TYPE_CHECKING:
    from ..blocking.client import Client
    from ..blocking.leasing import Leasing
    from ..blocking.queue import Queue
    from ..blocking.queue_message import QueueMessage
    from ..core.queue_plan import QueuePlan

AT_ONCE = 500
"""Messages written before the output is flushed and they are acknowledged."""

WATCH_S = 1.0
"""How often somebody who waits looks whether anybody still reads the output."""

SILENCE_S = 1.0
"""How long nothing may come until a command that does not follow has taken what there is."""


LAST_WORD_S = 5.0
"""How long giving messages back may take when something else has failed already."""


class GroupMode(Enum):
    """What kind of group reads."""

    STREAM = "stream"
    QUEUE = "queue"


class SettleMode(Enum):
    """What becomes of messages that were written out."""

    ACK = "ack"
    NONE = "none"


Group = Annotated[
    str | None,
    typer.Option(
        "--group",
        parser=parse_group,
        metavar="G",
        autocompletion=complete_group,
        help="Take messages of this group; made if it is new.",
    ),
]
Mode = Annotated[
    GroupMode | None,
    typer.Option("--mode", metavar="queue", help="The kind of the group [default: the one it has]."),
]
Settle = Annotated[
    SettleMode | None,
    typer.Option(
        "--settle",
        metavar="ack|none",
        help="Acknowledge what was written out, or leave it leased and print the tokens that settle it [default: ack].",
    ),
]
VisibilityTimeout = Annotated[
    timedelta | None,
    typer.Option(
        "--visibility-timeout",
        parser=parse_visibility,
        metavar="DURATION",
        help="How long a message is leased: of a new group, or with --settle none of these messages"
        " [default: as the group says].",
    ),
]


@dataclass(frozen=True, slots=True)
class QueueRun:
    """What was asked for."""

    topic: str
    group: str
    start: Position | None
    settle: SettleMode
    visibility_timeout: timedelta | None
    limit: int | None
    idle_s: float | None
    is_following: bool

    @property
    def silence_s(self) -> float | None:
        """How long a silence ends it; None if none does."""
        if self.idle_s is not None:
            return self.idle_s
        return None if self.is_following else SILENCE_S


def check_no_group(mode: GroupMode | None, settle: SettleMode | None, visibility_timeout: timedelta | None) -> None:
    """Raise WrongUsage for what is about a group where none is named."""
    for flag, given in (("--mode", mode), ("--settle", settle), ("--visibility-timeout", visibility_timeout)):
        if given is not None:
            raise WrongUsage(f"{flag} needs --group")


def refuse_stream() -> None:
    """Raise WrongUsage: there are no stream groups yet."""
    raise WrongUsage("expected --mode queue: stream groups are not there yet")


def consume_queue(run: QueueRun, mode: GroupMode | None, url: str | None, output: OutputFormat) -> None:
    """Take messages until the limit, a silence, or Ctrl-C."""
    if mode is GroupMode.STREAM:
        refuse_stream()
    out = StandardOutput()
    write = _writer(out, output, with_tokens=run.settle is SettleMode.NONE)
    with connected(url) as client:
        now = client.ping().server_time
        if mode is None:
            _check_kind(client, run.group)
        if run.start is not None and run.start.is_offset and not _exists(client, run.group):
            check_new_group(client, run.group, [run.topic], run.start)
        start: Bound = "earliest" if run.start is None else run.start.resolve(now)
        if run.settle is SettleMode.NONE:
            count = _leave_leased(client, run, start, out, write)
        else:
            count = _acknowledge(client, run, start, out, write)
    if not count:
        raise NotFoundError(f"no message of {run.topic} is available to group {run.group}")


def _check_kind(client: Client, group: str) -> None:
    """Raise WrongUsage where the mode has to be said: a new group is a stream without it."""
    try:
        found = client.groups.describe(group)
    except UnknownGroupError:
        raise WrongUsage(
            f'expected --mode queue: there is no group "{group}", and a new one is a stream group without it, which is'
            " not there yet"
        ) from None
    if found.kind != GroupMode.QUEUE.value:
        refuse_stream()


def _exists(client: Client, group: str) -> bool:
    try:
        client.groups.describe(group)
    except UnknownGroupError:
        return False
    return True


def _acknowledge(
    client: Client, run: QueueRun, start: Bound, out: StandardOutput, write: Callable[[Sequence[QueueMessage]], None]
) -> int:
    count = 0
    ending: Exception | None = None
    with client.queue(run.topic, run.group, start=start, visibility_timeout=run.visibility_timeout) as queue:
        try:
            for messages in _received(queue, run, out):
                write(messages)
                out.flush()
                for message in messages:
                    message.ack()
                count += len(messages)
        except Exception as error:  # the messages did nothing wrong: leaving the block by it would count an attempt
            ending = error
    if ending is not None:
        raise ending
    return count


def _received(queue: Queue[QueueMessage], run: QueueRun, out: StandardOutput) -> Iterator[list[QueueMessage]]:
    """Yield messages until the limit or a silence: TimedOutError if that was asked for."""
    left, silent_s, most_s = run.limit, 0.0, run.silence_s
    if first := _there(queue, left):
        left = None if left is None else left - len(first)
        yield first
    while left is None or left > 0:
        wait_s = WATCH_S if most_s is None else min(WATCH_S, max(0.0, most_s - silent_s))
        messages = queue.receive(AT_ONCE if left is None else min(left, AT_ONCE), timeout=wait_s)
        if messages:
            silent_s = 0.0
            left = None if left is None else left - len(messages)
            yield messages
            continue
        silent_s += wait_s
        if _is_over(run, silent_s, out):
            return


def _there(queue: Queue[QueueMessage], left: int | None) -> list[QueueMessage]:
    """Return the first of what there is, once the broker has said so: joining takes its time, and is no silence."""
    most = AT_ONCE if left is None else min(left, AT_ONCE)
    items = queue.items_there(queue.now() + DEFAULT_TIMEOUT_S, most) if most else None
    return [] if items is None else [*islice(items, most)]


def _leave_leased(
    client: Client, run: QueueRun, start: Bound, out: StandardOutput, write: Callable[[Sequence[QueueMessage]], None]
) -> int:
    from ..blocking.leasing import Leasing

    session = client.open_session()
    leasing = Leasing(session, _plan(run, start, session.directory.namespace))
    try:
        return _lease(client, leasing, run, out, write)
    finally:
        leasing.leave(client.deadline(LAST_WORD_S))


def _lease(
    client: Client,
    leasing: Leasing,
    run: QueueRun,
    out: StandardOutput,
    write: Callable[[Sequence[QueueMessage]], None],
) -> int:
    from ..blocking.leasing import give_back
    from ..core.times import duration_us

    visibility_us = 0 if run.visibility_timeout is None else duration_us(run.visibility_timeout)
    count, left, silent_s, most_s = 0, run.limit, 0.0, run.silence_s
    while left is None or left > 0:
        wait_s = WATCH_S if most_s is None else min(WATCH_S, max(0.0, most_s - silent_s))
        messages = leasing.lease(
            AT_ONCE if left is None else min(left, AT_ONCE),
            visibility_us,
            round(wait_s * 1_000_000),
            client.deadline(DEFAULT_TIMEOUT_S),
        )
        if messages:
            try:
                write(messages)
                out.flush()
            except BaseException:
                give_back(client.open_session(), messages, client.deadline(LAST_WORD_S))
                raise
            silent_s = 0.0
            left = None if left is None else left - len(messages)
            count += len(messages)
            continue
        silent_s += wait_s
        if _is_over(run, silent_s, out):
            break
    return count


def _plan(run: QueueRun, start: Bound, namespace: str) -> QueuePlan:
    from ..core.queue_plan import queue_plan

    return queue_plan(
        run.topic,
        run.group,
        namespace=namespace,
        start=start,
        visibility_timeout=None,
        max_attempts=None,
        backoff=None,
        max_in_flight=None,
        auto_extend=False,
        max_lease=0.0,
        wait_for_topic=False,
        now_us=0,
    )


def _is_over(run: QueueRun, silent_s: float, out: StandardOutput) -> bool:
    """Whether a silence ends the command. Raises TimedOutError where a --timeout says so, OutputClosed."""
    if run.silence_s is not None and silent_s >= run.silence_s:
        if run.idle_s is None:
            return True
        raise TimedOutError(f"expected a message within {run.idle_s:g} s, found none")
    if out.reader_is_gone():
        raise OutputClosed
    return False


def _writer(
    out: StandardOutput, output: OutputFormat, *, with_tokens: bool
) -> Callable[[Sequence[QueueMessage]], None]:
    def as_json(messages: Sequence[QueueMessage]) -> None:
        for message in messages:
            out.json(leased_fields(message, with_token=with_tokens))

    def head(message: QueueMessage) -> str:
        return f"{message.lease_token}\t" if with_tokens else ""

    def escaped(messages: Sequence[QueueMessage]) -> None:
        for message in messages:
            out.text(head(message) + visible_bytes(message.value or b""))

    def raw(messages: Sequence[QueueMessage]) -> None:
        out.write(b"".join([b"%b%b\n" % (head(message).encode(), message.value or b"") for message in messages]))

    return as_json if output is OutputFormat.JSON else escaped if out.is_terminal else raw
