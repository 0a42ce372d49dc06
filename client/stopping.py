"""End loops when the process is told to end: SIGTERM and SIGINT become `stop()`."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Protocol, cast

Handler = Callable[[int, FrameType | None], object] | int | None

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stoppable(Protocol):
    """A consumer, a replay, or anything else with a `stop` that may be called from a signal handler."""

    def stop(self) -> object:
        """End the loop after what is in hand."""
        ...


class StopOnSignals:
    """What `stop_on_signals` returns. `received` is the first signal that came, None so far."""

    def __init__(self, stoppables: tuple[Stoppable, ...]) -> None:
        self.received: signal.Signals | None = None
        self._stoppables = stoppables
        self._before: dict[signal.Signals, Handler] = {}
        self._in_loop = False

    def __repr__(self) -> str:
        state = "nothing received" if self.received is None else f"received {self.received.name}"
        return f"<stop_on_signals of {len(self._stoppables)}, {state}>"

    def __enter__(self) -> StopOnSignals:
        found = threading.current_thread()
        if found is not threading.main_thread():
            raise RuntimeError(
                f"expected stop_on_signals in the main thread, where Python handles signals, found {found.name!r};"
                " there, call stop() from a handler of the main thread"
            )
        self._in_loop = _is_in_loop()
        try:
            for each in SIGNALS:
                self._before[each] = signal.signal(each, self._handle)
        except BaseException:  # Ctrl-C between the two
            self._restore()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore()

    def _restore(self) -> None:
        for each, handler in self._before.items():
            # None is a handler that was not set from Python: there is no way back to it.
            signal.signal(each, signal.SIG_DFL if handler is None else handler)
        self._before.clear()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.received is None:
            self.received = signal.Signals(number)
            for stoppable in self._stoppables:
                stoppable.stop()
            return
        before = self._before.get(signal.SIGINT)
        if self._in_loop and callable(before):  # an event loop's own: it knows where an exception may be raised
            before(signal.SIGINT, frame)
            return
        raise KeyboardInterrupt


def stop_on_signals(*stoppables: Stoppable) -> StopOnSignals:
    """Have SIGTERM and SIGINT call `stop()` of consumers and replays, and a second one raise KeyboardInterrupt.

        with client.consumer("orders") as consumer, stop_on_signals(consumer):
            for message in consumer:
                ...  # the message in hand is finished, then the loop ends

    For blocking and asynchronous ones alike. The handlers from before are back when the block ends. Only the main
    thread can use it; elsewhere it raises RuntimeError.
    """
    if not stoppables:
        raise TypeError("stop_on_signals: expected what is to be stopped, such as a consumer, found nothing")
    for stoppable in stoppables:
        if isinstance(stoppable, type):
            raise TypeError(f"stop_on_signals: expected an object with stop(), found the class {stoppable.__name__}")
        if not callable(getattr(cast("object", stoppable), "stop", None)):
            raise TypeError(f"stop_on_signals: expected an object with stop(), found {stoppable!r}")
    return StopOnSignals(stoppables)


def _is_in_loop() -> bool:
    """Whether an event loop runs here; without one that is loaded there is none, and none is loaded to find out."""
    lowlevel = sys.modules.get("anyio.lowlevel")
    if lowlevel is None:
        return False
    try:
        lowlevel.current_token()
    except RuntimeError:
        return False
    return True
