"""`tidelog dlq`: dead letters listed, explained, brought back, or given up for good."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from ...protocol.dead_letter_headers import MAX_REDRIVES
from ...protocol.errors import (
    InvalidRequestError,
    InvalidTopicError,
    NotFoundError,
    TidelogError,
    UnknownGroupError,
    UnknownPartitionError,
    UnknownTopicError,
    UnknownTopicIdError,
)
from ...protocol.topic_name import MessageId, full_name
from .command import Command, Group, example
from .completion import complete_topic
from .confirm import confirm
from .dead_letter_filters import Filters, read_conditions
from .dead_letter_rendering import (
    LIST_HEADS,
    counted_letters,
    letter_fields,
    letter_row,
    purged_text,
    redriven_fields,
    redriven_text,
    show_json,
    show_tables,
)
from .errors import WrongUsage
from .get import parse_message_id
from .options import Output, OutputFormat, Timeout, Topic, Url, Yes, parse_limit, parse_whole
from .output import StandardOutput, say
from .progress import Advance, progress
from .pytest_file import written_test
from .session import connected

if TYPE_CHECKING:
    from ..blocking.client import Client
    from ..dead_letter import AttemptHistory, DeadLetter

_GONE = (NotFoundError, UnknownGroupError, UnknownTopicError, UnknownTopicIdError, UnknownPartitionError)
"""Why nothing is known any more of what became of a message; anything else may pass."""

_RATE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)(?:/s)?", re.ASCII)


def parse_topic_or_id(text: str) -> str:
    """Check a topic's name or a message id and return it as typed. Raises ValueError that shows the form."""
    try:
        if "@" in text:
            MessageId.parse(text)
        else:
            full_name(text)
    except (InvalidRequestError, InvalidTopicError) as error:
        raise ValueError(error.message) from None
    return text


def parse_rate(text: str) -> float:
    """Read how many a second, `100/s` or `100`."""
    match = _RATE.fullmatch(text)
    if match is None or not float(match[1]):
        raise ValueError(f"expected how many a second, such as 100/s, found {text!r}")
    return float(match[1])


def parse_redrives(text: str) -> int:
    """Read how often a message may have been redriven already."""
    return parse_whole(text, 0, 1_000_000)


Which = Annotated[
    str,
    typer.Argument(
        metavar="TOPIC|ID",
        parser=parse_topic_or_id,
        autocompletion=complete_topic,
        help="A topic: the dead letters of its messages; a dead-letter topic: all that are in it; or one id.",
    ),
]
Id = Annotated[
    str,
    typer.Argument(
        metavar="ID", parser=parse_message_id, help="Of a dead letter, such as orders.dlq/2@7, or of its message."
    ),
]
Limit = Annotated[
    int | None, typer.Option("--limit", parser=parse_limit, metavar="N", help="Stop after so many dead letters.")
]
Rate = Annotated[
    float | None,
    typer.Option("--rate", parser=parse_rate, metavar="N/s", help="At most so many a second [default: no limit]."),
]
AsNew = Annotated[
    bool, typer.Option("--as-new", help="Publish the copies to their topic, for all of its groups and readers.")
]
MaxRedrives = Annotated[
    int | None,
    typer.Option(
        "--max-redrives",
        parser=parse_redrives,
        metavar="N",
        help=f"Refuse what was redriven so often already [default: {MAX_REDRIVES}].",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say how many there are.")]
AsTest = Annotated[
    bool, typer.Option("--as-test", help="Write a pytest file that gives the message to its handler again.")
]


def list_letters(
    topic: Topic,
    filters: Filters = None,
    limit: Limit = None,
    url: Url = None,
    output: Output = OutputFormat.TABLE,
    timeout: Timeout = None,
) -> None:
    """List pending dead letters of a topic, oldest first in each partition; the exit code is 3 if there are none.

    Pending are those that were neither redriven nor purged. What --output json writes is read by produce --input json:
    the message, with the headers that its producer sent.
    """
    conditions = read_conditions(filters or [], datetime.now(UTC))
    out = StandardOutput()
    with connected(url, timeout) as client:
        found = client.dead_letters.list(topic, limit=limit, **conditions)
        count = out.listing(found, LIST_HEADS, letter_row, letter_fields if output is OutputFormat.JSON else None)
    out.flush()
    if not count:
        raise _nothing_found(topic, filtered=bool(conditions))


def _nothing_found(which: str, *, filtered: bool) -> NotFoundError:
    such = " that match" if filtered else ""
    return NotFoundError(f"expected dead letters of {which}{such}, found none that are pending")


def show(
    letter_id: Id,
    as_test: AsTest = False,
    url: Url = None,
    output: Output = OutputFormat.TABLE,
    timeout: Timeout = None,
) -> None:
    """Show one dead letter: its message, why it was given up, and every attempt at it with its error.

    With --as-test it is written as a pytest file that makes the message anew on a broker of its own, with its earlier
    attempts, and gives it to the handler: fill in the import, and run it. The exit code is 3 if there is no such dead
    letter.
    """
    if as_test and output is OutputFormat.JSON:
        raise WrongUsage("expected --as-test or --output json, found both: the test is written in Python")
    out = StandardOutput()
    with connected(url, timeout) as client:
        letter = client.dead_letters.get(letter_id)
        if letter.original_id is None:
            raise NotFoundError(f"expected a dead letter, found {letter.id}, a message that nobody gave up on")
        history = _history(client, letter)
        if as_test:
            out.write(_test_of(client, letter, history).encode())
        elif output is OutputFormat.JSON:
            show_json(out, letter, history)
        else:
            show_tables(out, letter, history)
    out.flush()


def _history(client: Client, letter: DeadLetter) -> AttemptHistory | None:
    """Return every attempt, None where the group or the topic is gone, or where it cannot be read: the dead letter
    itself is there to be shown."""
    try:
        return client.dead_letters.attempts(letter)
    except _GONE as error:
        say(f"tidelog: what became of it is not known any more: {error.message}")
    except TidelogError as error:
        say(f"tidelog: what became of it cannot be read now: {error.code}: {error.message}")
    return None


def _test_of(client: Client, letter: DeadLetter, history: AttemptHistory | None) -> str:
    settings = None
    if letter.group is not None:
        try:
            settings = client.groups.describe(letter.group).settings
        except UnknownGroupError:
            say(f"tidelog: group {letter.group} is gone: the test has the defaults of a new one")
    return written_test(letter, history, settings)


@contextmanager
def _counted(what: str) -> Generator[Advance]:
    """Show progress, and where Ctrl-C or an error cuts it off say how far it came: done is done."""
    total = 0

    with progress(what, None) as advance:

        def count(amount: int) -> None:
            nonlocal total
            total += amount
            advance(amount)

        try:
            yield count
        except (KeyboardInterrupt, TidelogError):
            if total:
                say(f"tidelog: stopped after {counted_letters(total)}; the same command goes on with the rest")
            raise


def redrive(
    which: Which,
    filters: Filters = None,
    as_new: AsNew = False,
    limit: Limit = None,
    rate: Rate = None,
    max_redrives: MaxRedrives = None,
    dry_run: DryRun = False,
    url: Url = None,
    output: Output = OutputFormat.TABLE,
    timeout: Timeout = None,
) -> None:
    """Bring dead letters back: each message is available again to the one group that gave up on it, with all of its
    attempts before it; no other group sees anything.

    A message that is not retained any more, and with --as-new every one, is published to its topic instead, for all of
    its groups. What was redriven so often that it must be the message is refused (--max-redrives). A redrive that was
    cut off, whatever by, is finished by the same command. The exit code is 3 if there are none, 1 if some were refused.
    """
    conditions = read_conditions(filters or [], datetime.now(UTC))
    out = StandardOutput()
    with connected(url, timeout) as client, _counted("redriving") as counted:
        done = client.dead_letters.redrive(
            which,
            as_new=as_new,
            limit=limit,
            rate=rate,
            max_redrives=MAX_REDRIVES if max_redrives is None else max_redrives,
            dry_run=dry_run,
            on_progress=counted,
            **conditions,
        )
    if not done.matched:
        raise _nothing_found(which, filtered=bool(conditions))
    out.done = redriven_text(done, is_trial=dry_run)
    if output is OutputFormat.JSON:
        out.json(redriven_fields(done))
    else:
        out.text(out.done)
    out.flush()
    if done.refused_count:
        first = done.refused[0]
        count = done.refused_count - 1
        others = f", and {count} other{'s' if count > 1 else ''}" if count else ""
        raise type(first.error)(f"{first.id}{others}: {first.error.message}", **first.error.details)


def purge(
    which: Which,
    filters: Filters = None,
    limit: Limit = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    url: Url = None,
    output: Output = OutputFormat.TABLE,
    timeout: Timeout = None,
) -> None:
    """Give dead letters up for good: they are pending no more, and nothing brings them back. It asks on a terminal;
    elsewhere --yes is needed.

    The records stay in the dead-letter topic until its retention removes them. The exit code is 3 if there are none.
    """
    conditions = read_conditions(filters or [], datetime.now(UTC))
    out = StandardOutput()
    if not dry_run:
        all_of = (
            "the dead letter" if "@" in which else "the dead letters that match" if conditions else "all dead letters"
        )
        confirm(f"Purge {all_of} of {which}?", yes)
    with connected(url, timeout) as client, _counted("purging") as counted:
        done = client.dead_letters.purge(which, limit=limit, dry_run=dry_run, on_progress=counted, **conditions)
    if not done.matched:
        raise _nothing_found(which, filtered=bool(conditions))
    out.done = purged_text(done, is_trial=dry_run)
    if output is OutputFormat.JSON:
        out.json({"matched": done.matched, "purged": done.purged, "passed": done.passed})
    else:
        out.text(out.done)
    out.flush()


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    dlq = typer.Typer(
        cls=Group, help="Look at, redrive and purge messages that groups gave up on.", rich_markup_mode=None
    )
    lines = ("tidelog dlq list orders", "tidelog dlq list orders --filter reason=rejected --filter header:source=web")
    dlq.command("list", cls=Command, epilog=example(*lines))(list_letters)
    lines = ("tidelog dlq show orders.dlq/2@7", "tidelog dlq show orders.dlq/2@7 --as-test")
    dlq.command("show", cls=Command, epilog=example(*lines))(show)
    lines = (
        "tidelog dlq redrive orders.dlq/2@7",
        "tidelog dlq redrive orders --filter error=Timeout --filter from=-1h --rate 100/s",
    )
    dlq.command("redrive", cls=Command, epilog=example(*lines))(redrive)
    lines = ("tidelog dlq purge orders.dlq/2@5 --yes", "tidelog dlq purge orders --filter to=-7d --yes")
    dlq.command("purge", cls=Command, epilog=example(*lines))(purge)
    app.add_typer(dlq, name="dlq")
