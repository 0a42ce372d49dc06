"""`tidelog outcome`: what became of a message with a dedup id."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from ...protocol.errors import NotFoundError
from .command import Command, example
from .escaping import visible_bytes
from .json_records import time_fields
from .options import Output, OutputFormat, Timeout, Topic, Url, parse_partition
from .output import StandardOutput
from .produce import parse_dedup_id
from .session import connected
from .times import format_time_us

if TYPE_CHECKING:
    from ..receipt import Receipt

DedupId = Annotated[
    str, typer.Option("--dedup-id", parser=parse_dedup_id, metavar="ID", help="The id the message was sent with.")
]
Key = Annotated[str | None, typer.Option("--key", metavar="K", help="The key it was sent with: asks one partition.")]
Partition = Annotated[
    int | None, typer.Option("--partition", parser=parse_partition, metavar="N", help="Ask this partition alone.")
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    shown = example("tidelog outcome orders --dedup-id order-7", "tidelog outcome orders --dedup-id o-7 --output json")
    app.command("outcome", cls=Command, epilog=shown)(outcome)


def outcome(
    topic: Topic,
    dedup_id: DedupId,
    key: Key = None,
    partition: Partition = None,
    url: Url = None,
    output: Output = OutputFormat.TABLE,
    timeout: Timeout = None,
) -> None:
    """Say where the message with a dedup id is stored.

    The exit code is 3 if none is stored at this moment: it never arrived, is still on its way, or its topic's
    dedup_window is over.
    """
    out = StandardOutput()
    data = os.fsencode(dedup_id)
    with connected(url, timeout) as client:
        found = client.outcome(topic, dedup_id=data, key=None if key is None else os.fsencode(key), partition=partition)
    if found is None:
        raise NotFoundError(f"no message with the dedup id {visible_bytes(data)} is stored in {topic} at this moment")
    if output is OutputFormat.JSON:
        out.json(_fields(found))
    else:
        out.facts([("id", found.id), ("appended", format_time_us(found.append_time_us))])
    out.flush()


def _fields(receipt: Receipt) -> dict[str, object]:
    fields: dict[str, object] = {
        "id": receipt.id,
        "topic": receipt.topic,
        "partition": receipt.partition,
        "offset": receipt.offset,
    }
    return fields | time_fields("append_time", receipt.append_time_us)
