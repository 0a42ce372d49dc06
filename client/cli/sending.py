"""Sends the messages of an input in order, and when one is refused, says which line it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...protocol.errors import InvalidRequestError, MessageTooLargeError, TidelogError
from .errors import FileError, InputError, OutputClosed
from .line_input import LineTooLongError, read_lines
from .record_columns import BadLineError, Columns, Form
from .record_input import Input

if TYPE_CHECKING:
    from ..blocking.client import Client
    from ..receipt import ReceiptBatch


class Sender:
    """Produces inputs to one topic. `stored` counts the messages that the broker has acknowledged, `duplicates` those
    that it had already, by their dedup id."""

    def __init__(self, client: Client, topic: str, receive: Callable[[ReceiptBatch], None]) -> None:
        self.stored = 0
        self.duplicates = 0
        self.durability: str | None = None
        self._client = client
        self._topic = topic
        self._receive = receive
        self._is_heard = True

    def send_all(self, source: Input, form: Form) -> None:
        """Send every message of an input as its line arrives.

        Raises InputError or MessageTooLargeError that names the line; what stood before it is stored. When `receive`
        raises OutputClosed, nothing more is sent: FileError if more comes. Any error says how many messages are stored.
        """
        done = 0
        try:
            for lines in read_lines(source.read, form.max_line_bytes):
                for columns in form.columns(lines, done + 1):
                    self._send(columns, source.name)
                done += len(lines)
        except BadLineError as bad:
            raise self._with_count(InputError(f"line {bad.number} of {source.name}: {bad.reason}")) from None
        except LineTooLongError as long:
            message = f"line {long.number} of {source.name}: expected at most {long.max_bytes} bytes, found more"
            raise self._with_count(MessageTooLargeError(message)) from None
        except TidelogError as error:
            raise self._with_count(error) from None

    def _send(self, columns: Columns, name: str) -> None:
        """Send messages; when one of them may not be sent, send those before it and raise for its line.

        The client checks all messages of a call before it sends the first, so a refused call stored nothing and may
        be halved until the refusal is about one line.
        """
        if not self._is_heard:
            where = f"stopped before line {columns.lines[0]} of {name}"
            raise FileError(f"cannot write standard output: whoever read it has gone; {where}")
        try:
            receipts = self._produce(columns)
        except (MessageTooLargeError, InvalidRequestError, ValueError) as refusal:
            if isinstance(refusal, TidelogError) and refusal.details.get("acknowledged"):
                raise
            if len(columns) == 1:
                raise _at_line(refusal, columns.lines[0], name) from None
            half = len(columns) // 2
            self._send(columns.part(0, half), name)
            self._send(columns.part(half, len(columns)), name)
        else:
            duplicates = int(receipts.duplicates.sum())
            self.stored += len(receipts) - duplicates
            self.duplicates += duplicates
            self.durability = receipts.durability
            try:
                self._receive(receipts)
            except OutputClosed:  # no failure if that was all
                self._is_heard = False

    def _produce(self, columns: Columns) -> ReceiptBatch:
        try:
            return self._client.produce_many(
                self._topic,
                columns.values,
                keys=columns.keys,
                headers=columns.headers,
                priority=columns.priorities,
                partition=columns.partitions,
                timestamps=columns.timestamps,
                dedup_ids=columns.dedup_ids,
                retry=columns.retries,
            )
        except TidelogError as error:
            acknowledged = error.details.get("acknowledged")
            self.stored += acknowledged if isinstance(acknowledged, int) else 0
            raise

    def _with_count(self, error: TidelogError) -> TidelogError:
        count = "1 message was" if self.stored == 1 else f"{self.stored} messages were"
        return type(error)(f"{error.message} ({count} stored)", **error.details)


def _at_line(refusal: TidelogError | ValueError, line: int, name: str) -> TidelogError:
    if isinstance(refusal, TidelogError):
        return type(refusal)(f"line {line} of {name}: {refusal.message}", **refusal.details)
    return InputError(f"line {line} of {name}: {refusal}")
