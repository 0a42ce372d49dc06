"""Those who take messages of a queue group in a benchmark, and acknowledge each; they compare after the clock."""

from __future__ import annotations

import secrets
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ....protocol.errors import TidelogError
from ..errors import VerificationError
from .account import Account, Faults, Places
from .crew import Caller
from .payload import Payloads
from .topic import LAST_WORD_S, PREFIX, BenchTopic

if TYPE_CHECKING:
    from ...blocking.client import Client
    from ...blocking.queue_message import QueueMessage

LOOK_S = 0.1
"""How long a consumer waits for messages before it looks whether the others have the rest."""


@contextmanager
def bench_group(client: Client, topic: BenchTopic) -> Generator[str]:
    """Give a new group that begins at the topic's end, and delete it."""
    name = PREFIX + secrets.token_hex(4)
    client.groups.create(name, topic.name, start="latest")
    try:
        yield name
    except BaseException:
        with suppress(TidelogError):
            client.groups.delete(name, timeout=LAST_WORD_S)
        raise
    client.groups.delete(name)


@dataclass(slots=True)
class Queueing:
    """Callers that share the messages of a group, and keep what they got."""

    client: Client
    topic: BenchTopic
    group: str
    messages: int
    batch: int
    timeout_s: float
    got: dict[int, list[list[QueueMessage]]] = field(default_factory=dict[int, "list[list[QueueMessage]]"])
    spans: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])

    @property
    def seconds(self) -> float:
        """From the first message in hand until the last is settled."""
        return max(end for _, end in self.spans) - min(begin for begin, _ in self.spans)

    def each(self, caller: Caller) -> None:
        """Acknowledge each message by a call of its own, without waiting for it."""
        kept = self.got[caller.number] = []
        begun, silent_s = 0.0, 0.0
        with self.client.queue(self.topic.name, self.group) as queue:
            while not caller.is_stopped and self._done() < self.messages and silent_s < self.timeout_s:
                called_ns = time.perf_counter_ns()
                found = queue.receive(self.batch, timeout=LOOK_S)
                if not found:
                    silent_s += LOOK_S
                    continue
                begun, silent_s = begun or time.perf_counter(), 0.0
                for message in found:
                    message.ack()
                caller.count(len(found), called_ns)
                kept.append(found)
            queue.flush()
            if begun:
                self.spans.append((begun, time.perf_counter()))

    def lone(self, caller: Caller) -> None:
        """Acknowledge one message after the other, each when the one before is durable."""
        kept = self.got[caller.number] = []
        with self.client.queue(self.topic.name, self.group) as queue:
            for message in queue.messages(self.messages, self.timeout_s):
                if caller.is_stopped:
                    return
                begun_ns = time.perf_counter_ns()
                message.ack(wait=True)
                caller.count(1, begun_ns)
                kept.append([message])

    def _done(self) -> int:
        return sum(len(found) for kept in [*self.got.values()] for found in [*kept])

    def compare(self, payloads: Payloads, places: Places) -> Faults:
        """Return what was wrong with what all callers got together. A group promises no order."""
        account = Account(payloads, places)
        for kept in self.got.values():
            for messages in kept:
                for message in messages:
                    account.take(message.partition, message.offset, message.value)
        return replace(account.close(), reordered=0)

    def check_settled(self) -> None:
        """Raise VerificationError unless the broker says too that nothing is left in the group."""
        backlog = self.client.groups.describe(self.group).backlog
        if backlog:
            raise VerificationError(f"expected everything to be settled, found {backlog} messages that are not")
