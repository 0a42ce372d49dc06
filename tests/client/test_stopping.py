"""`stop_on_signals`, in processes of their own that get real signals."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.client.fake_broker import FakeBroker
from tests.client.flavours import FLAVOURS, World, store
from tidelog import Consumer, stop_on_signals
from tidelog.protocol.messages import Fetch

BLOCKING = """
import signal, sys, tidelog
with tidelog.Client(sys.argv[1]) as client, client.consumer("t") as first, client.consumer("t") as second:
    print([message.offset for message in second.receive(3)], flush=True)
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    try:
        with tidelog.stop_on_signals(first, second) as stopping:
            for message in first:
                print(message.offset, flush=True)
                if sys.argv[2] == "busy" and message.offset == 2:
                    sys.stdin.readline()
        print("ended by", stopping.received.name, second.receive())
    except KeyboardInterrupt:
        print("interrupted after", stopping.received.name)
    print((signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before)
"""

LOOPS = """
import signal, sys, anyio, tidelog
async def main():
    async with tidelog.AsyncClient(sys.argv[1]) as client, client.consumer("t") as first, client.consumer("t") as second:
        print([message.offset for message in await second.receive(3)], flush=True)
        before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
        try:
            with tidelog.stop_on_signals(first, second) as stopping:
                async for message in first:
                    print(message.offset, flush=True)
                    if sys.argv[2] == "busy" and message.offset == 2:
                        while True:
                            await anyio.sleep(0.01)
            print("ended by", stopping.received.name, await second.receive())
        finally:
            print((signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before, flush=True)
try:
    anyio.run(main, backend=sys.argv[3])
except KeyboardInterrupt:
    print("interrupted")
"""


@contextmanager
def consuming(flavour: str, how: str) -> Generator[tuple[subprocess.Popen[str], FakeBroker]]:
    """Run a process that has read three messages, in a loop that waits or that is busy with the last of them."""
    with FakeBroker() as broker:
        store(World("blocking", broker), "t", 3)
        script = BLOCKING if flavour == "blocking" else LOOPS
        command = [sys.executable, "-c", script, broker.url, how, flavour]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            try:
                assert process.stdout.readline() == "[0, 1, 2]\n"
                assert [process.stdout.readline() for _ in range(3)] == ["0\n", "1\n", "2\n"]
                yield process, broker
            finally:
                if process.poll() is None:
                    process.kill()


@pytest.mark.process
@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_every_loop(flavour: str, number: signal.Signals) -> None:
    """The loop that waits ends, so do all that were named, and the handlers from before are back."""
    with consuming(flavour, "idle") as (process, broker):
        broker.wait_for(Fetch, 4)  # both wait in the broker
        process.send_signal(number)
        out, _ = process.communicate(timeout=20)
        assert out == f"ended by {number.name} []\nTrue\n"
        assert process.returncode == 0


@pytest.mark.process
@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_the_message_in_hand_is_finished(second: signal.Signals) -> None:
    """After one signal the loop's body goes on to its end; a second one interrupts it."""
    with consuming("blocking", "busy") as (process, _):
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate("\n", timeout=20)
        assert out == "ended by SIGTERM []\nTrue\n"
    with consuming("blocking", "busy") as (process, _):
        process.send_signal(signal.SIGINT)
        interrupt(process, second)
        out, _ = process.communicate(timeout=20)
        assert out == "interrupted after SIGINT\nTrue\n"


@pytest.mark.process
@pytest.mark.parametrize("flavour", FLAVOURS[1:])
def test_a_second_signal_interrupts_an_event_loop_its_own_way(flavour: str) -> None:
    """The task is cancelled or KeyboardInterrupt raised in it, as the loop does for Ctrl-C, and `run` raises it."""
    with consuming(flavour, "busy") as (process, _):
        process.send_signal(signal.SIGTERM)
        interrupt(process, signal.SIGTERM)
        out, _ = process.communicate(timeout=20)
        assert out == "True\ninterrupted\n"


def interrupt(process: subprocess.Popen[str], number: signal.Signals) -> None:
    """Send a signal until the process has ended: two of one kind that are pending count as one."""
    for _ in range(200):
        process.send_signal(number)
        try:
            process.wait(0.1)
        except subprocess.TimeoutExpired:
            continue
        return


def test_only_the_main_thread_can_have_it() -> None:
    """Elsewhere Python has no handlers: the error says so and what to do, and nothing is changed."""
    raised: list[BaseException] = []

    def enter() -> None:
        try:
            with stop_on_signals(Stopped()):
                raise AssertionError("entered")
        except RuntimeError as error:
            raised.append(error)

    thread = threading.Thread(target=enter, name="worker")
    thread.start()
    thread.join()
    assert str(raised[0]).startswith("expected stop_on_signals in the main thread, where Python handles signals, found")
    assert "'worker'" in str(raised[0])


class Stopped:
    """Counts how often it was stopped."""

    def __init__(self) -> None:
        self.stops = 0

    def stop(self) -> None:
        """Count."""
        self.stops += 1


def test_what_can_be_stopped() -> None:
    """Anything with `stop`, several at once, nested too; what has none is refused by name."""
    outer, inner = Stopped(), Stopped()
    before = signal.getsignal(signal.SIGTERM)
    with stop_on_signals(outer) as around:
        with stop_on_signals(inner, Stopped()) as within:
            signal.raise_signal(signal.SIGTERM)
            assert repr(within) == "<stop_on_signals of 2, received SIGTERM>"
        assert (outer.stops, inner.stops, around.received) == (0, 1, None)
        signal.raise_signal(signal.SIGINT)
        assert (outer.stops, around.received) == (1, signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before
    wrong: Any = 5
    with pytest.raises(TypeError, match=r"expected an object with stop\(\), found 5"):
        stop_on_signals(wrong)
    with pytest.raises(TypeError, match="found nothing"):
        stop_on_signals()


def test_a_class_has_nothing_to_stop() -> None:
    """Its `stop` needs an object, which a signal would find out too late."""
    with pytest.raises(TypeError, match=r"expected an object with stop\(\), found the class Consumer"):
        stop_on_signals(Consumer)  # type: ignore[arg-type]
