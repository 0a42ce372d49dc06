"""Those who read in a benchmark: the callers of `consume`, the follower of `latency`; they compare after the clock."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ....protocol.errors import TidelogError
from .account import Account, Faults, Places
from .crew import Caller
from .load import open_reader
from .payload import Payloads
from .topic import BenchTopic

if TYPE_CHECKING:
    from ...blocking.client import Client
    from ...message import Message
    from ...message_batch import MessageBatch

FOLLOW_S = 0.2
"""How long a follower waits for a message before it looks whether it should end."""


@dataclass(slots=True)
class Reading:
    """Callers that each read the whole topic over a connection of their own, and keep what they got."""

    client: Client
    topic: BenchTopic
    batch: int
    timeout_s: float
    got: dict[int, list[list[Message] | MessageBatch]] = field(
        default_factory=dict[int, "list[list[Message] | MessageBatch]"]
    )

    def messages(self, caller: Caller) -> None:
        """Read by `receive`, message by message."""
        kept = self.got[caller.number] = []
        with open_reader(self.client, self.topic, is_bounded=True) as reader:
            while not caller.is_stopped:
                begun = time.perf_counter_ns()
                found = reader.receive(self.batch, timeout=self.timeout_s)
                if not found:
                    return
                caller.count(len(found), begun)
                kept.append(found)

    def batches(self, caller: Caller) -> None:
        """Read by `batches()`, whose columns are compared later."""
        kept = self.got[caller.number] = []
        with open_reader(self.client, self.topic, is_bounded=True) as reader:
            each = iter(reader.batches())
            while not caller.is_stopped:
                begun = time.perf_counter_ns()
                batch = next(each, None)
                if batch is None:
                    return
                caller.count(len(batch), begun)
                kept.append(batch)

    def compare(self, payloads: Payloads, places: Places) -> Faults:
        """Return what was wrong with what the callers got, of all of them together."""
        faults = Faults()
        for kept in self.got.values():
            account = Account(payloads, places)
            for messages in kept:
                for message in messages:
                    account.take(message.partition, message.offset, message.value)
            faults = faults + account.close()
        return faults


class Follower:
    """Reads what comes, in a thread of its own, and notes when each message came."""

    def __init__(self, client: Client, topic: BenchTopic) -> None:
        self.came: list[tuple[int, Message]] = []
        self.error: TidelogError | None = None
        self._reader = open_reader(client, topic, is_bounded=False)
        self._reader.receive(1, timeout=0)  # connected before anything is sent
        self._ended = threading.Event()
        self._wanted = -1
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def wait_for(self, count: int, timeout_s: float) -> None:
        """Return when so many messages have come, or none for as long as the timeout."""
        seen, since = -1, time.monotonic()
        while len(self.came) < count and self._thread.is_alive():
            if len(self.came) != seen:
                seen, since = len(self.came), time.monotonic()
            if time.monotonic() - since > timeout_s:
                break
            self._thread.join(FOLLOW_S if len(self.came) < count else 0)
        self.close()
        if self.error is not None:
            raise self.error

    def close(self) -> None:
        """End the thread."""
        self._reader.stop()
        self._thread.join(FOLLOW_S)
        self._reader.close()

    def _follow(self) -> None:
        try:
            while messages := self._reader.receive(1):
                self.came.append((time.perf_counter_ns(), messages[0]))
        except TidelogError as error:
            self.error = error
