"""The work of a benchmark's callers: sending messages in one of several ways, and reading them back."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter_ns
from typing import TYPE_CHECKING, cast

import numpy as np

from ....protocol.durability import Durability
from ..errors import VerificationError
from ..progress import Advance
from .account import Account, Faults, Places
from .crew import Caller
from .payload import Payloads
from .topic import BenchTopic

if TYPE_CHECKING:
    from ...blocking.client import Client
    from ...blocking.consumer import Consumer
    from ...core.words import DurabilityWord
    from ...delivery import DeliveryReport

READ_MESSAGES = 10_000
"""Messages of one `receive` when they are only compared."""

SEND_MESSAGES = 1_000
"""Messages sent before a caller looks whether the work was given up: the look costs as much as a send."""


def shares_of(messages: int, callers: int) -> list[int]:
    """Return how many messages each caller sends: all of them together, as evenly as it goes."""
    return [messages // callers + (number < messages % callers) for number in range(callers)]


@dataclass(slots=True)
class Sending:
    """Sends the messages of one run, which were made before the clock began, and notes where each is."""

    client: Client
    topic: BenchTopic
    payloads: Payloads
    shares: Sequence[int]
    batch: int
    durability: DurabilityWord | None
    places: Places
    values: list[list[bytes]]
    promised: str = ""

    @classmethod
    def of(
        cls,
        client: Client,
        topic: BenchTopic,
        payloads: Payloads,
        shares: Sequence[int],
        batch: int,
        durability: str | None,
    ) -> Sending:
        """Make every message."""
        values = [[payloads.make(caller, number) for number in range(share)] for caller, share in enumerate(shares)]
        word = cast("DurabilityWord | None", durability)
        return cls(client, topic, payloads, shares, batch, word, Places(shares), values)

    def many(self, caller: Caller) -> None:
        """Send a caller's messages by `produce_many`, a batch a call."""
        values = self.values[caller.number]
        for first in range(0, len(values), self.batch):
            if caller.is_stopped:
                return
            part = values[first : first + self.batch]
            begun = perf_counter_ns()
            receipts = self.client.produce_many(self.topic.name, part, durability=self.durability)
            caller.count(len(part), begun)
            if len(receipts) != len(part):
                raise VerificationError(f"expected {len(part)} receipts, found {len(receipts)}")
            self._check(receipts.durability)
            self.places.tell(caller.number, first, receipts.offsets, receipts.partitions)

    def single(self, caller: Caller) -> None:
        """Send a caller's messages by `produce`, one after the other."""
        for number, value in enumerate(self.values[caller.number]):
            if caller.is_stopped:
                return
            begun = perf_counter_ns()
            receipt = self.client.produce(self.topic.name, value, durability=self.durability)
            caller.count(1, begun)
            self._check(receipt.durability)
            assert receipt.offset is not None
            offset, partition = np.array([receipt.offset], np.int64), np.array([receipt.partition], np.int32)
            self.places.tell(caller.number, number, offset, partition)

    def send(self, caller: Caller) -> None:
        """Send a caller's messages by a producer of its own; what a call takes ends with the report of its delivery."""
        begun = array("q", bytes(8 * len(self.values[caller.number])))
        begun_ns = np.frombuffer(begun, np.int64)  # the same numbers: one of them is cheap to set, the other to read
        promised = set[str]()

        def report(delivered: DeliveryReport) -> None:
            receipts = delivered.receipts
            if receipts is None:
                return  # leaving the block raises what failed
            promised.add(receipts.durability)
            numbers = np.array(delivered.tags, np.int64)
            self.places.offsets[caller.number][numbers] = receipts.offsets
            self.places.partitions[caller.number][numbers] = receipts.partitions
            caller.count_each(perf_counter_ns() - begun_ns[numbers])

        with self.client.producer(durability=self.durability, on_delivery=report) as producer:
            send, name, values = producer.send, self.topic.name, self.values[caller.number]
            for first in range(0, len(values), SEND_MESSAGES):
                if caller.is_stopped:
                    return
                for number, value in enumerate(values[first : first + SEND_MESSAGES], first):
                    begun[number] = perf_counter_ns()
                    send(name, value, tag=number)
        for each in promised:
            self._check(each)

    def _check(self, promised: str) -> None:
        """Raise VerificationError for a promise that is weaker than what was asked for."""
        self.promised = promised
        if self.durability is not None and Durability.from_word(promised) < Durability.from_word(self.durability):
            raise VerificationError(f"expected {self.durability} receipts, found {promised}")


def open_reader(client: Client, topic: BenchTopic, *, is_bounded: bool) -> Consumer:
    """Return a reader of what a topic got since the benchmark began; a bounded one ends at the end there is now."""
    reader = client.consumer(topic.name, end="latest" if is_bounded else None)
    for partition, offset in enumerate(topic.ends):
        reader.seek(topic.name, partition, offset=offset)
    return reader


def read_back(client: Client, topic: BenchTopic, sending: Sending, timeout_s: float, advance: Advance) -> Faults:
    """Read everything that was sent, and compare; what does not come within the timeout is lost."""
    account = Account(sending.payloads, sending.places)
    wanted = {partition: sending.places.end_of(partition) for partition in range(len(topic.ends))}
    with open_reader(client, topic, is_bounded=False) as reader:
        left = {partition for partition, end in wanted.items() if end > topic.ends[partition]}
        while left:
            messages = reader.receive(READ_MESSAGES, timeout=timeout_s)
            for message in messages:
                account.take(message.partition, message.offset, message.value)
            advance(len(messages))
            left = {each for each in left if reader.position(topic.name, each) < wanted[each]}
            if not messages:
                break
        read = {partition: reader.position(topic.name, partition) for partition in wanted}
    with open_reader(client, topic, is_bounded=True) as rest:  # a copy behind the last receipt would be one too many
        for partition, offset in read.items():
            rest.seek(topic.name, partition, offset=offset)
        while messages := rest.receive(READ_MESSAGES, timeout=timeout_s):
            for message in messages:
                account.take(message.partition, message.offset, message.value)
    return account.close()
