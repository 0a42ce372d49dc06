"""`tidelog produce`: lines of text, or JSON objects, from files or standard input."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from ...protocol.errors import InvalidRequestError, UnknownTopicError
from ..retry import Backoff, Retry
from .command import Command, example
from .errors import WrongUsage
from .json_records import DEFAULT_PRIORITY, Pair, Record, encode_object, time_fields
from .options import Output, OutputFormat, Timeout, Topic, Url, parse_partition, parse_priority
from .output import StandardOutput, say
from .progress import Advance, progress
from .record_columns import Form, JsonLines, OneMessage, TextLines
from .record_input import Input, open_inputs
from .retry_text import FORM, parse_attempts, parse_backoff
from .sending import Sender
from .session import check_partition, connected

if TYPE_CHECKING:
    from ..blocking.client import Client
    from ..receipt import Receipt, ReceiptBatch


class InputForm(Enum):
    """What a line of the input is."""

    LINES = "lines"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class Header:
    """One `--header`."""

    name: str
    value: bytes


def parse_header(text: str) -> Header:
    """Read `name=value`; the value may be any bytes, the name is text."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"expected name=value, found {text!r}")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ValueError(f"expected a name that is UTF-8 text, found {name!r}") from None
    return Header(name, os.fsencode(value))


def parse_separator(text: str) -> str:
    """Read the separator, which may not be empty."""
    if not text:
        raise ValueError("expected at least one character, found none")
    return text


def parse_dedup_id(text: str) -> str:
    """Read a dedup id, which may not be empty."""
    if not text:
        raise ValueError("expected at least one character, found none")
    return text


Key = Annotated[str | None, typer.Option("--key", metavar="K", help="The key of every message.")]
Priority = Annotated[
    int | None, typer.Option("--priority", parser=parse_priority, metavar="P", help="0 to 9, 9 first [default: 4].")
]
HeaderOptions = Annotated[
    list[Header] | None,
    typer.Option("--header", parser=parse_header, metavar="k=v", help="A header of every message; may be repeated."),
]
Separator = Annotated[
    str | None,
    typer.Option(
        "--key-separator", parser=parse_separator, metavar="S", help="Every line is a key, this separator and a value."
    ),
]
Partition = Annotated[
    int | None,
    typer.Option("--partition", parser=parse_partition, metavar="N", help="Where to [default: by key]."),
]
InputOption = Annotated[
    InputForm, typer.Option("--input", metavar="lines|json", help="What a line is: a value, or a JSON object.")
]
KeepPartition = Annotated[
    bool, typer.Option("--keep-partition", help="With JSON: send each message to the partition it says it is from.")
]
Receipts = Annotated[bool, typer.Option("--receipts", help="Print where each message is stored.")]
DedupId = Annotated[
    str | None,
    typer.Option(
        "--dedup-id",
        parser=parse_dedup_id,
        metavar="ID",
        help="Store the one message once, however often this is repeated within the topic's dedup_window.",
    ),
]
MaxAttempts = Annotated[
    int | None,
    typer.Option(
        "--max-attempts",
        parser=parse_attempts,
        metavar="N",
        help="How often a queue group may try each message in all [default: as the group says].",
    ),
]
BackoffOption = Annotated[
    Backoff | None,
    typer.Option(
        "--backoff",
        parser=parse_backoff,
        metavar=FORM,
        help="How long each waits after a failed attempt: exponential:1s:10m, linear:5s, constant:30s"
        " [default: as the group says].",
    ),
]
Files = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FILE",
        help="What to read, one after the other; - is standard input [default: -].",
        show_default=False,
    ),
]


def produce(
    topic: Topic,
    files: Files = None,
    key: Key = None,
    priority: Priority = None,
    headers: HeaderOptions = None,
    key_separator: Separator = None,
    partition: Partition = None,
    dedup_id: DedupId = None,
    max_attempts: MaxAttempts = None,
    backoff: BackoffOption = None,
    form: InputOption = InputForm.LINES,
    keep_partition: KeepPartition = False,
    receipts: Receipts = False,
    url: Url = None,
    output: Output = OutputFormat.TABLE,
    timeout: Timeout = None,
) -> None:
    """Send each line of some files, or of standard input, as a message.

    A line is sent as soon as it is read, byte for byte without its newline. With --input json a line is an object as
    `tidelog consume --output json` prints it; flags stand in for the fields it leaves out, the fields that say where a
    message was are passed over, and `dedup_id` and `retry` may be added.

    A summary goes to standard error. When a line is refused, everything before it is stored, nothing after it, and
    the error names the line. Flags, files and the partition are looked at before the first line is read. When whoever
    reads the --receipts stops, nothing more is sent; if there was more, the exit code is 1. After Ctrl-C the summary
    counts all that is known to be stored, of which the last messages may lack their receipts.
    """
    template = Record(
        value=None,
        key=None if key is None else os.fsencode(key),
        headers=_pairs(headers or []),
        priority=DEFAULT_PRIORITY if priority is None else priority,
        partition=partition,
        dedup_id=None if dedup_id is None else os.fsencode(dedup_id),
        retry=None if max_attempts is None and backoff is None else Retry(max_attempts, backoff),
    )
    meaning = _form(form, template, key_separator, keep_partition)
    if dedup_id is not None:
        meaning = OneMessage(meaning)
    out = StandardOutput() if receipts else None
    with open_inputs(files or []) as sources, connected(url, timeout) as client:
        client.ping()  # so that nobody types lines for a broker that is not there
        if partition is not None:
            _check_partition(client, topic, partition)
        sender = Sender(client, topic, _ignore if out is None else _printer(out, output))
        try:
            with _progress(sources, shown=out is None or not out.is_terminal) as advance:
                for source in sources:
                    sender.send_all(replace(source, read=_watched(source.read, advance)), meaning)
        except KeyboardInterrupt:
            _summarise(topic, sender, output)
            raise
    _summarise(topic, sender, output)


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    lines = (
        "tidelog produce orders --key o-1 orders.txt",
        "tidelog consume orders --output json | tidelog produce copy --input json",
        "echo paid | tidelog produce orders --dedup-id payment-17 --receipts",
        "tidelog produce mails --max-attempts 10 --backoff exponential:5s:1h mails.txt",
    )
    app.command("produce", cls=Command, epilog=example(*lines))(produce)


def _pairs(headers: Sequence[Header]) -> tuple[Pair, ...]:
    """Return the headers as the client sends them. Raises WrongUsage before a line is read for what it refuses."""
    from ..core.record import to_pairs  # here, because it loads numpy, which --help can do without

    try:
        return tuple(to_pairs([(header.name, header.value) for header in headers]))
    except InvalidRequestError as error:
        raise WrongUsage(f"--header: {error.message.removeprefix('headers: ')}") from None


def _check_partition(client: Client, topic: str, partition: int) -> None:
    """Raise UnknownPartitionError for a partition that is not there."""
    try:
        partitions = client.topics.describe(topic).partitions
    except UnknownTopicError:
        return  # the first message makes the topic, or is told that there is none
    check_partition(partition, len(partitions), topic)


def _form(form: InputForm, template: Record, separator: str | None, keep_partition: bool) -> Form:
    if separator is not None and template.key is not None:
        raise WrongUsage("expected --key or --key-separator, found both")
    if keep_partition and template.partition is not None:
        raise WrongUsage("expected --partition or --keep-partition, found both")
    if form is InputForm.LINES:
        if keep_partition:
            raise WrongUsage("--keep-partition needs --input json: lines do not say where they are from")
        return TextLines(template, None if separator is None else os.fsencode(separator))
    if separator is not None:
        raise WrongUsage("--key-separator needs --input lines: JSON has a field for the key")
    return JsonLines(template, keep_partition)


def _progress(sources: Sequence[Input], *, shown: bool) -> AbstractContextManager[Advance]:
    """Return the bar for inputs whose sizes are all known: others have no end to be seen."""
    sizes = [source.size for source in sources if source.size is not None]
    name = sources[0].name if len(sources) == 1 else f"{len(sources)} files"
    return progress(name, sum(sizes), unit_bytes=True, shown=shown and len(sizes) == len(sources))


def _watched(read: Callable[[int], bytes], advance: Advance) -> Callable[[int], bytes]:
    def watched(size: int) -> bytes:
        data = read(size)
        advance(len(data))
        return data

    return watched


def _ignore(receipts: ReceiptBatch) -> None:
    """Be what happens to receipts that nobody asked for."""


def _printer(out: StandardOutput, output: OutputFormat) -> Callable[[ReceiptBatch], None]:
    def show(receipts: ReceiptBatch) -> None:
        for receipt in receipts:
            if output is OutputFormat.JSON:
                out.json(_receipt_fields(receipt))
            else:
                out.text(receipt.id)
        out.flush()

    return show


def _receipt_fields(receipt: Receipt) -> dict[str, object]:
    fields: dict[str, object] = {
        "id": receipt.id,
        "topic": receipt.topic,
        "partition": receipt.partition,
        "offset": receipt.offset,
    }
    fields |= time_fields("append_time", receipt.append_time_us)
    return fields | {"durability": receipt.durability, "duplicate": receipt.duplicate}


def _summarise(topic: str, sender: Sender, output: OutputFormat) -> None:
    """Say on standard error what was stored, so that standard output holds nothing but receipts."""
    if output is OutputFormat.JSON:
        counts = {"stored": sender.stored, "duplicates": sender.duplicates}
        say(encode_object({"topic": topic, **counts, "durability": sender.durability}))
        return
    count = "1 message" if sender.stored == 1 else f"{sender.stored} messages"
    again = f"; {sender.duplicates} stored before" if sender.duplicates else ""
    say(f"stored {count} in {topic}" + (f" ({sender.durability})" if sender.durability else "") + again)
