"""Handlers under `queue.run` that end their process, or fail: what becomes of messages, and what leaves the call."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.client.flavours import FLAVOURS, run
from tests.client.queues import Stage, queue_broker, staged  # noqa: F401
from tests.helpers.broker_process import broker_process
from tidelog import Backoff, Client, LeaseLostError, UnknownTopicIdError

pytestmark = pytest.mark.process


async def states(client: Any, stage: Stage) -> dict[int, tuple[str, int]]:
    """Return state and attempts of every message of the group that is not settled."""
    return {
        int(each.id.rpartition("@")[2]): (each.state, each.attempts)
        async for each in client.groups.messages(stage.group)
    }


@staged
async def test_a_handler_that_exits_leaves_its_message_suspect(stage: Stage) -> None:
    """SystemExit leaves `run` with its code, in no group; the message in hand is suspect, all others are as before."""
    async with stage.client() as client:
        await stage.fill(client, 6)

        def handle(message: Any) -> None:
            if message.offset == 1:
                raise SystemExit(7)

        with pytest.raises(SystemExit) as left:
            async with stage.queue(client, max_in_flight=6) as queue:
                await queue.run(handle)
        assert left.value.code == 7
        assert await states(client, stage) == {1: ("suspect", 0)} | dict.fromkeys(range(2, 6), ("available", 0))


@staged
async def test_an_exit_after_stop_blames_no_message(stage: Stage) -> None:
    """Who was told to stop and then exits had nothing done to him by the message: it comes back as it was."""
    async with stage.client() as client:
        await stage.fill(client, 3)
        queue = stage.queue(client, max_in_flight=3)

        def handle(message: Any) -> None:
            queue.stop()
            raise SystemExit("told to")

        with pytest.raises(SystemExit) as left:
            async with queue:
                await queue.run(handle)
        assert left.value.code == "told to"
        assert await states(client, stage) == dict.fromkeys(range(3), ("available", 0))


@staged
async def test_only_the_handler_that_exits_has_its_message_blamed(stage: Stage) -> None:
    """Those that run beside it are finished and acknowledged, or, if they can be cancelled, given back uncounted."""
    async with stage.client() as client:
        await stage.fill(client, 3)
        begun, exits = threading.Barrier(3, timeout=20), threading.Event()

        def handle(message: Any) -> None:
            begun.wait()
            if message.offset == 1:
                exits.set()
                raise SystemExit(3)
            assert exits.wait(20)

        with pytest.raises(SystemExit) as left:
            async with stage.queue(client, max_in_flight=3) as queue:
                await queue.run(handle, concurrency=3)
        assert left.value.code == 3
        assert await states(client, stage) == {1: ("suspect", 0)}


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_tasks_beside_one_that_exits_are_cancelled(loop: str, queue_broker: Any) -> None:  # noqa: F811
    """An async handler's SystemExit goes past no event loop: the others are cancelled, and their messages given back
    uncounted before it leaves."""

    async def body(world: Any) -> None:
        stage = Stage(world, queue_broker)
        async with stage.client() as client:
            await stage.fill(client, 4)
            begun: list[int] = []

            async def handle(message: Any) -> None:
                begun.append(message.offset)
                while len(begun) < 3:
                    await anyio.sleep(0.001)
                if message.offset == 1:
                    raise SystemExit(9)
                await anyio.sleep(60)

            with pytest.raises(SystemExit) as left:
                async with stage.queue(client, max_in_flight=4) as queue:
                    await queue.run(handle, concurrency=3)
            assert left.value.code == 9
            others = dict.fromkeys((0, 2, 3), ("available", 0))
            assert await states(client, stage) == {1: ("suspect", 0)} | others

    run(loop, body)


@staged
async def test_what_ends_the_taking_leaves_run_as_it_is(stage: Stage) -> None:
    """A topic that is deleted meanwhile is a plain UnknownTopicIdError, as in a loop, also where handlers are tasks."""
    async with stage.client() as client:
        await stage.fill(client, 1)
        begun = threading.Event()

        def handle(message: Any) -> None:
            begun.set()

        def delete() -> None:
            assert begun.wait(20)
            with Client(stage.broker.url) as other:
                other.topics.delete(stage.topic)

        deleting = threading.Thread(target=delete)
        deleting.start()
        with pytest.raises(UnknownTopicIdError):
            async with stage.queue(client, max_in_flight=1) as queue:
                await queue.run(handle)
        deleting.join(20)


@staged
async def test_concurrency_is_kept(stage: Stage) -> None:
    """With concurrency=2 a second handler always runs beside the first: 300 pairs that wait for each other all meet."""
    async with stage.client() as client:
        await stage.fill(client, 600)
        queue = stage.queue(client, max_in_flight=600)
        pair, seen = threading.Barrier(2, timeout=20), []

        def handle(message: Any) -> None:
            pair.wait()
            seen.append(message.offset)
            if len(seen) == 600:
                queue.stop()

        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            async with queue:
                await queue.run(handle, concurrency=2)
        finally:
            sys.setswitchinterval(interval)
        assert sorted(seen) == list(range(600))


@staged
async def test_those_that_run_are_finished_when_the_taking_fails(stage: Stage) -> None:
    """A handler that is at it while the topic is deleted comes to its end, and is not cancelled."""
    async with stage.client() as client:
        await stage.fill(client, 1)
        begun, gone = threading.Event(), threading.Event()
        ended: list[int] = []

        async def handle_here(message: Any) -> None:
            begun.set()
            while not gone.is_set():
                await anyio.sleep(0.01)
            await anyio.sleep(0.3)
            ended.append(message.offset)

        def handle(message: Any) -> None:
            begun.set()
            assert gone.wait(20)
            time.sleep(0.3)
            ended.append(message.offset)

        def delete() -> None:
            assert begun.wait(20)
            with Client(stage.broker.url) as other:
                other.topics.delete(stage.topic)
            gone.set()

        deleting = threading.Thread(target=delete)
        deleting.start()
        queue = stage.queue(client)
        with pytest.raises(UnknownTopicIdError):
            await queue.run(handle if stage.world.flavour == "blocking" else handle_here, concurrency=2)
        assert ended == [0]
        deleting.join(20)
        with suppress(LeaseLostError):
            await queue.close()


@staged
async def test_no_more_is_fetched_ahead_than_handlers_finish(stage: Stage) -> None:
    """Sixteen handlers that have not finished anything hold sixteen messages of 500; another member gets others."""
    async with stage.client() as client:
        await stage.fill(client, 500)
        begun, go_on = threading.Semaphore(0), threading.Event()
        queue = stage.queue(client)
        seen: list[tuple[int, int]] = []

        def handle(message: Any) -> None:
            begun.release()
            assert go_on.wait(20)

        def look() -> None:
            for _ in range(16):
                assert begun.acquire(timeout=20)
            found = queue.statistics()
            with Client(stage.broker.url) as other, other.queue(stage.topic, stage.group) as second:
                seen.append((found.received, len(second.receive(100, timeout=10))))
            queue.stop()
            go_on.set()

        looking = threading.Thread(target=look)
        looking.start()
        async with queue:
            await queue.run(handle, concurrency=16)
        looking.join(20)
        assert seen == [(16, 100)]


class _AsyncCall:
    async def __call__(self, message: Any) -> None:
        raise AssertionError("expected not to be called")


class _Yields:
    def __call__(self, message: Any) -> Any:
        yield message


def test_async_handlers_are_refused_by_the_blocking_client(queue_broker: Any) -> None:  # noqa: F811
    """Whatever kind of async it is: a TypeError, and the message is as it was, never acknowledged."""

    async def later(_message: Any) -> None:
        raise AssertionError("expected not to be awaited")

    async def body(world: Any) -> None:
        stage = Stage(world, queue_broker)
        async with stage.client() as client:
            await stage.fill(client, 2)
            async with stage.queue(client) as queue:
                for handler in (later, partial(later), _AsyncCall(), partial(_AsyncCall()), _AsyncCall().__call__):
                    with pytest.raises(TypeError, match="expected a plain function, found an async one"):
                        await queue.run(handler)
                with pytest.raises(TypeError, match="found one that returns coroutine, which is to be awaited"):
                    await queue.run(lambda message: later(message))
            assert await states(client, stage) == {0: ("available", 0), 1: ("available", 0)}

    run("blocking", body)


@staged
async def test_handlers_that_yield_are_refused(stage: Stage) -> None:
    """Of a generator nothing would run: a TypeError on every client, and the message is as it was."""

    def yields(message: Any) -> Any:
        yield message

    async def yields_later(message: Any) -> Any:
        yield message

    async with stage.client() as client:
        await stage.fill(client, 1)
        async with stage.queue(client) as queue:
            for handler in (yields, yields_later, partial(yields), _Yields()):
                with pytest.raises(TypeError, match="found one that yields"):
                    await queue.run(handler)
            with pytest.raises(TypeError, match="found one that yields"):
                await queue.run(lambda message: yields(message))
        assert await states(client, stage) == {0: ("available", 0)}


@pytest.mark.parametrize("flavour", ["blocking", "asyncio"])
def test_a_cancellation_of_a_handlers_own_is_a_failure(flavour: str, queue_broker: Any) -> None:  # noqa: F811
    """A handler that awaits a task which it cancelled fails its message, as by any exception; the others are handled,
    and `run` goes on until it is stopped."""

    async def body(world: Any) -> None:
        stage = Stage(world, queue_broker)
        async with stage.client() as client:
            await stage.fill(client, 3)
            queue = stage.queue(client, max_attempts=9, backoff=Backoff("constant", initial=60))
            seen: list[int] = []

            async def leak(message: Any) -> None:
                seen.append(message.offset)
                if message.offset == 2:
                    queue.stop()
                if message.offset == 0:
                    task = asyncio.ensure_future(asyncio.sleep(9))
                    await asyncio.sleep(0)
                    task.cancel()
                    await task

            def leak_in_a_loop(message: Any) -> None:
                asyncio.run(leak(message))

            async with queue:
                await queue.run(leak if flavour == "asyncio" else leak_in_a_loop)
            assert seen == [0, 1, 2]
            assert await states(client, stage) == {0: ("waiting", 1)}

    run(flavour, body)


EXITS = """
import sys, threading, anyio, tidelog

def note(message):
    sys.stdout.write(f"{message.offset} {message.attempt}\\n")  # in one piece, from whichever thread
    sys.stdout.flush()
    if message.offset == 2:
        sys.exit(7)

OPTIONS = {"max_attempts": 3, "max_in_flight": 10, "backoff": tidelog.Backoff("constant", initial=0.01)}

def soon(queue):
    timer = threading.Timer(3, queue.stop)
    timer.daemon = True
    timer.start()

async def in_tasks(handler):
    async with tidelog.AsyncClient(sys.argv[1]) as client, client.queue("jobs", "g", **OPTIONS) as queue:
        soon(queue)
        await queue.run(handler, concurrency=2)

async def note_later(message):
    await anyio.sleep(0)
    note(message)

if sys.argv[2] == "blocking":
    with tidelog.Client(sys.argv[1]) as client, client.queue("jobs", "g", **OPTIONS) as queue:
        soon(queue)
        queue.run(note, concurrency=2)
else:
    anyio.run(in_tasks, note_later, backend=sys.argv[2])
"""


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_message_whose_handler_exits_is_given_up_alone(flavour: str, tmp_path: Path) -> None:
    """A worker that exits by one of ten messages and is started again, until it ends by itself: that message is given
    up after its three attempts, and each other one is acknowledged."""
    with broker_process(tmp_path) as broker, Client(broker.url) as client:
        client.topics.create("jobs", partitions=1)
        client.produce_many("jobs", [b"%d" % at for at in range(10)])
        codes: list[int] = []
        handed: list[tuple[int, int]] = []
        while 0 not in codes and len(codes) < 10:
            command = [sys.executable, "-c", EXITS, broker.url, flavour]
            ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=40)
            codes.append(ended.returncode)
            handed += [(int(at), int(attempt)) for at, attempt in map(str.split, ended.stdout.splitlines())]
        assert codes == [7, 7, 7, 7, 0]
        assert [each for each in handed if each[0] == 2] == [(2, 1), (2, 1), (2, 2), (2, 3)]
        assert {each for each in handed if each[0] != 2} == {(at, 1) for at in range(10) if at != 2}
        found = {each.id: (each.state, each.attempts) for each in client.groups.messages("g", states=["dead-lettered"])}
        assert found == {"jobs/0@2": ("dead-lettered", 3)}
        assert [*client.groups.messages("g")] == []
