"""A working process of a queue group, with a record of its own.

It takes messages through `client.queue()`, blocking or under asyncio or trio, writes down each one that its code is
handed, what it asks for before it asks, and what it was told; and ends after SIGTERM by `queue.stop()`. A message of
the producer `killer` ends the process in the middle of its handler, as a crash does. What is settled without waiting is
known to be done once a `flush` returned, unless its lease was reported lost.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any

import anyio

from tidelog import AsyncClient, Client
from tidelog.client.core.lease_token import LeaseToken
from tidelog.client.errors import LeaseLostError, TidelogError

from .history import Recorder
from .queue_history import Asked, Handed, How, Told, WorkerEvent, message_of

KILLER = "killer"
DIED = 3
"""Exit code of a process that a message killed."""

FLUSH_EVERY = 40
"""Messages between two flushes, after each of which what was settled is known."""


@dataclass
class Job:
    """What a worker is to do; shares are of 1."""

    url: str
    record: str
    topic: str
    group: str
    name: str
    seed: int = 0
    flavour: str = "blocking"
    visibility_timeout: float = 10.0
    nacks: float = 0.1
    rejects: float = 0.01
    waits: float = 0.1
    """Settled by the waiting form."""
    extends: float = 0.02
    handling: float = 0.002
    """Seconds in the handler, at most."""
    delay: float = 0.2
    """Of a nack."""
    max_in_flight: int | None = None
    syncs: bool = False
    """Whether its record is to outlive the machine too; what a process wrote outlives the process, which is enough here,
    and is a hundred times as much."""


class Work:
    """What a worker does with each message, and what it writes down."""

    def __init__(self, job: Job, recorder: Recorder) -> None:
        self.job = job
        self.recorder = recorder
        self.rng = random.Random(job.seed)
        self.open: dict[str, tuple[Asked, tuple[str, int, int]]] = {}
        """What was asked without waiting, and is not known to be done; and which message that is about."""
        self._asks = count()

    def handed(self, message: Any) -> Handed:
        """Write down that this code was handed a message; die of one that kills."""
        until_ns = time.monotonic_ns() + int((message.lease_expires_at.timestamp() - time.time()) * 1e9)
        event = Handed(
            group=self.job.group,
            worker=self.job.name,
            message=message_of(message.value),
            partition=f"{message.topic}/{message.partition}",
            offset=message.offset,
            lease=LeaseToken.parse(message.lease_token).lease,
            attempt=message.attempt,
            priority=message.priority,
            since_ns=until_ns - int(self.job.visibility_timeout * 1e9),
            until_ns=until_ns,
        )
        self.recorder.add(event)
        if event.message.startswith(KILLER):
            self.recorder.add(WorkerEvent(worker=self.job.name, did="died"))
            os._exit(DIED)
        return event

    def ask(self, message: Any, handed: Handed, what: Any, delay: float | None) -> Asked:
        """Write down what is asked for."""
        asked = Asked(
            ask=f"{self.job.name}-{next(self._asks)}",
            group=handed.group,
            worker=handed.worker,
            what=what,
            lease=handed.lease,
            messages=[handed.message],
            delay_us=None if delay is None else int(delay * 1e6),
        )
        self.recorder.add(asked)
        self.open[asked.ask] = (asked, (message.topic, message.partition, message.offset))
        return asked

    def told(self, asked: Asked, how: How) -> None:
        """Write down the answer, the first one."""
        if self.open.pop(asked.ask, None) is not None:
            self.recorder.add(Told(ask=asked.ask, how=how))

    def on_lease_lost(self, lost: Any) -> None:
        """Write down what changed nothing."""
        lease = lost.error.details.get("lease")
        for asked, (topic, partition, offset) in [*self.open.values()]:
            if (topic, partition, lease) == (lost.topic, lost.partition, asked.lease) and offset in lost.offsets:
                self.told(asked, "lost")

    def flushed(self, upto: list[str]) -> None:
        """All of these are answered, and those that were not lost are done."""
        for ask in upto:
            if ask in self.open:
                self.told(self.open[ask][0], "ok")

    def decide(self) -> tuple[str, float | None, bool]:
        """Return what becomes of a message: how, the delay of a nack, and whether to wait for it."""
        job, chance = self.job, self.rng.random()
        waits = self.rng.random() < job.waits
        if chance < job.nacks:
            return "nack", self.rng.choice((None, 0, job.delay)), waits
        return ("reject" if chance < job.nacks + job.rejects else "ack"), None, waits


def arguments(what: str, delay: float | None, waits: bool) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of the call that settles."""
    if what == "nack":
        return ("no luck",), {"delay": delay, **({"wait": True} if waits else {})}
    if what == "reject":
        return (ValueError("refused"),), ({"wait": True} if waits else {})
    return (), ({"wait": True} if waits else {})


def options(job: Job, work: Work) -> dict[str, Any]:
    """Return the arguments of `client.queue`."""
    return {
        "group": job.group,
        "visibility_timeout": job.visibility_timeout,
        "max_in_flight": job.max_in_flight,
        "on_lease_lost": work.on_lease_lost,
    }


def run_blocking(job: Job, work: Work) -> None:
    """Work with the blocking client."""
    with Client(job.url, client_name=job.name) as client, client.queue(job.topic, **options(job, work)) as queue:
        signal.signal(signal.SIGTERM, lambda _number, _frame: queue.stop())
        work.recorder.add(WorkerEvent(worker=job.name, did="started"))
        for number, message in enumerate(queue):
            handed = work.handed(message)
            time.sleep(work.rng.random() * job.handling)
            if work.rng.random() < job.extends:
                message.extend(job.visibility_timeout)
            what, delay, waits = work.decide()
            asked = work.ask(message, handed, what, delay)
            given, named = arguments(what, delay, waits)
            try:
                getattr(message, what)(*given, **named)
            except LeaseLostError:
                work.told(asked, "lost")
            except TidelogError:
                work.open.pop(asked.ask, None)
            else:
                if waits:
                    work.told(asked, "ok")
            if number % FLUSH_EVERY == FLUSH_EVERY - 1:
                flush(queue, work)
        flush(queue, work)
    work.recorder.add(WorkerEvent(worker=job.name, did="ended"))


def flush(queue: Any, work: Work) -> None:
    """Let all that was settled be known; `on_lease_lost` has told of what was lost before it raises."""
    before = [*work.open]
    with suppress(LeaseLostError):
        queue.flush(timeout=60)
    work.flushed(before)


async def flush_async(queue: Any, work: Work) -> None:
    """The same with the asynchronous client."""
    before = [*work.open]
    with suppress(LeaseLostError):
        await queue.flush(timeout=60)
    work.flushed(before)


async def run_async(job: Job, work: Work) -> None:
    """Work with the asynchronous client."""
    async with (
        AsyncClient(job.url, client_name=job.name) as client,
        client.queue(job.topic, **options(job, work)) as queue,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(_stop_on_signal, queue.stop)
        work.recorder.add(WorkerEvent(worker=job.name, did="started"))
        number = 0
        async for message in queue:
            handed = work.handed(message)
            await anyio.sleep(work.rng.random() * job.handling)
            what, delay, waits = work.decide()
            asked = work.ask(message, handed, what, delay)
            given, named = arguments(what, delay, waits)
            try:
                answer = getattr(message, what)(*given, **named)
                if isinstance(answer, Awaitable):
                    await answer
            except LeaseLostError:
                work.told(asked, "lost")
            except TidelogError:
                work.open.pop(asked.ask, None)
            else:
                if waits:
                    work.told(asked, "ok")
            number += 1
            if number % FLUSH_EVERY == 0:
                await flush_async(queue, work)
        await flush_async(queue, work)
        tasks.cancel_scope.cancel()
    work.recorder.add(WorkerEvent(worker=job.name, did="ended"))


async def _stop_on_signal(stop: Callable[[], object]) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM) as signals:
        async for _number in signals:
            stop()


class WorkerProcess:
    """Starts a worker, and ends it by its own id; what was done to it goes into a record beside its own.

    Workers are forked off a server that has imported everything, so that one is there in some milliseconds.
    """

    def __init__(self, job: Job, fates: Recorder) -> None:
        self.job = job
        self.record = Path(job.record)
        self._fates = fates
        forking = multiprocessing.get_context("forkserver")
        forking.set_forkserver_preload([__name__])
        self.process = forking.Process(target=work, args=(job,), name=job.name, daemon=True)
        self.process.start()

    def __enter__(self) -> WorkerProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.is_alive():
            self.process.kill()
        self.process.join(30)

    def recorded_bytes(self) -> int:
        """How much the process wrote down so far: it grows while messages are handed out."""
        return self.record.stat().st_size if self.record.exists() else 0

    def has_ended(self) -> bool:
        """Whether it is gone."""
        return not self.process.is_alive()

    def kill(self) -> None:
        """Kill -9, and wait until it is gone."""
        self.process.kill()
        self.process.join(30)
        self._fate("killed")

    def pause(self) -> None:
        """Stop it in its tracks."""
        self._fate("paused")
        self._send(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self._send(signal.SIGCONT)
        self._fate("resumed")

    def finish(self, timeout_s: float = 60) -> None:
        """Let it stop; fails when it ends in any other way."""
        self.process.terminate()
        self.process.join(timeout_s)
        assert self.process.exitcode == 0, f"{self.job.name} ended with {self.process.exitcode}"

    def _send(self, number: int) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def _fate(self, did: Any) -> None:
        self._fates.add(WorkerEvent(worker=self.job.name, did=did))


def work(job: Job) -> None:
    """Be the process."""
    what = Work(job, Recorder(Path(job.record), sync=job.syncs))
    if job.flavour == "blocking":
        run_blocking(job, what)
    else:
        anyio.run(run_async, job, what, backend=job.flavour)
