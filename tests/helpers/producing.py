"""A producing process with a record of its own: `python -m tests.helpers.producing URL RECORD TOPIC PRODUCER SEED`.

It sends unique payloads through the blocking client, one batch after the other, writes down each one before
it is sent and what it was told afterwards, and ends after SIGTERM once the batch in hand is answered. The
broker may die under it as often as it likes.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType

from tidelog.client.blocking.client import Client
from tidelog.client.errors import OutcomeUnknownError, TidelogError

from .history import AnyEvent, Durability, Fail, Invoke, Ok, Recorder, Unknown
from .payloads import payload

PARTITIONS = 2
ANSWER_TIMEOUT_S = 60.0
_DURABILITIES: tuple[Durability, ...] = ("synced", "written")


class Producing:
    """What the process does."""

    def __init__(self, client: Client, recorder: Recorder, topic: str, producer: str, seed: int) -> None:
        self._client = client
        self._recorder = recorder
        self._topic = topic
        self._producer = producer
        self._rng = random.Random(seed)
        self._next = 0
        self._operations = 0
        self.stopping = False

    def run(self) -> None:
        """Send until somebody sets `stopping`."""
        while not self.stopping:
            self.produce_one_batch()

    def produce_one_batch(self) -> None:
        """Send one batch, recorded before and after."""
        rng = self._rng
        count = rng.choice((1, 1, 3, 20))
        size = rng.choice((20, 200, 3000))
        key = rng.choice((None, "k0", "k1", "k2"))
        first, self._next = self._next, self._next + count
        invoke = Invoke(
            operation=f"{self._producer}-{self._operations}",
            producer=self._producer,
            first=first,
            count=count,
            key=key,
            priority=rng.choice((1, 4, 9)),
            durability=rng.choice(_DURABILITIES),
        )
        self._operations += 1
        values = [payload(self._producer, first + index, size) for index in range(count)]
        self._recorder.add(invoke)
        self._recorder.add(self._send(invoke, values, rng.randrange(PARTITIONS) if key is None else None))

    def _send(self, invoke: Invoke, values: list[bytes], partition: int | None) -> AnyEvent:
        try:
            receipts = self._client.produce_many(
                self._topic,
                values,
                keys=None if invoke.key is None else [invoke.key] * len(values),
                priority=invoke.priority,
                partition=partition,
                durability=invoke.durability,
            )
        except OutcomeUnknownError as error:
            return Unknown(operation=invoke.operation, reason=str(error))
        except TidelogError as error:
            kind = Fail if error.details.get("stored") is False else Unknown
            return kind(operation=invoke.operation, reason=f"{error.code}: {error}")
        (where,) = {receipt.partition for receipt in receipts}
        partition_name = f"{self._topic}/{where}"
        return Ok(operation=invoke.operation, partition=partition_name, offsets=receipts.offsets.tolist())


class ProducingProcess:
    """Starts the process, and ends it by its own id."""

    def __init__(self, url: str, record: Path, topic: str, producer: str, seed: int) -> None:
        self.record = record
        command = [sys.executable, "-m", "tests.helpers.producing", url, str(record), topic, producer, str(seed)]
        root = Path(__file__).parents[2]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=root)

    def __enter__(self) -> ProducingProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(30)
        if self._process.stderr is not None:
            self._process.stderr.close()

    def recorded_bytes(self) -> int:
        """How much the process wrote down so far: it grows while messages are acknowledged."""
        return self.record.stat().st_size if self.record.exists() else 0

    def finish(self) -> None:
        """Let it end with the batch in hand; fails when it ends in any other way."""
        self._process.send_signal(signal.SIGTERM)
        _output, errors = self._process.communicate(timeout=ANSWER_TIMEOUT_S + 10)
        assert self._process.returncode == 0, errors


def main() -> None:
    """Run as a process."""
    url, record, topic, producer, seed = sys.argv[1:]
    with Client(url, timeout=ANSWER_TIMEOUT_S, client_name=producer) as client:
        producing = Producing(client, Recorder(Path(record)), topic, producer, int(seed))
        signal.signal(signal.SIGTERM, lambda _number, _frame: setattr(producing, "stopping", True))
        producing.run()


if __name__ == "__main__":
    main()
