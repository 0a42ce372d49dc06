"""A broker inside another program: a thread of its own with its event loop, and the ways in from other threads.

    new --start--> starting --serves--> running --close, the program's end--> closing --> closed
                       `-- cannot: the error is raised by `start`                            |
                            running --a bug ends it--> closed, and `close` raises why  ------'

Signals go to the program's main thread and never here, so Ctrl-C does not strike in the middle of a sync. The thread
does not keep the program alive: what is running at the end of the interpreter is closed by then.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from functools import partial
from typing import TypeVar, cast

import trio

from ..protocol.errors import TidelogError
from .app import Broker
from .clock import Clock
from .config import Config
from .rehearsal import Rehearsal
from .storage.files import Files, MemoryFiles

CLOSE_LOOK_S = 0.5
"""How often a thread that waits for the end looks up: Ctrl-C is noticed then at the latest."""

Found = TypeVar("Found")


class EmbeddedBroker:
    """One broker in one thread. `start` and `close` are for one thread at a time, everything else for any."""

    def __init__(
        self,
        files: Files,
        clock: Clock,
        config: Config,
        *,
        listen: bool = False,
        rehearsal: Rehearsal | None = None,
    ) -> None:
        self.broker = Broker(files, clock, config, rehearsal)
        self.clock = clock
        self._files = files
        self._listen = listen
        self._process = os.getpid()
        self._started: Future[trio.lowlevel.TrioToken] = Future()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="tidelog-broker", daemon=True)

    def __repr__(self) -> str:
        return f"<EmbeddedBroker {'running' if self.is_running else 'not running'}>"

    @property
    def is_running(self) -> bool:
        """Whether it serves, in this process."""
        return self._thread.is_alive() and self._process == os.getpid()

    def start(self) -> None:
        """Return once it serves. Raises DataDirLockedError, CannotListenError, or why the data cannot be opened."""
        self._thread.start()
        try:
            self._started.result()
        except BaseException:
            self.close(at_once=True)  # also where Ctrl-C struck while it started
            raise

    def connect(self) -> socket.socket:
        """Return one end of a socket pair whose other end is served. Raises ConnectionError once it is closed."""
        ours, theirs = socket.socketpair()
        try:
            self._soon(partial(self._attach, ours), ours.close)
        except ConnectionError:
            ours.close()
            theirs.close()
            raise
        theirs.setblocking(False)
        return theirs

    def call(self, work: Callable[[], Awaitable[Found]]) -> Found:
        """Have the loop run something, and return what it returns. Raises ConnectionError once the broker is closed."""
        future: Future[Found] = Future()

        async def run() -> None:
            try:
                future.set_result(await work())
            except Exception as error:
                future.set_exception(error)
            except BaseException:  # cancelled with the loop
                future.set_exception(ConnectionError("the broker is closed"))
                raise

        def refuse() -> None:
            future.set_exception(ConnectionError("the broker is closed"))

        self._soon(partial(trio.lowlevel.spawn_system_task, run), refuse)
        while True:
            try:
                return future.result(CLOSE_LOOK_S)
            except TimeoutError:
                if future.done():
                    raise
                if not self.is_running:  # the loop ended with the call still in its queue
                    raise ConnectionError("the broker is closed") from None

    def close(self, *, at_once: bool = False) -> None:
        """Stop cleanly, and return once everything is closed. Raises what ended a broker that had not been told to.

        Ctrl-C while it waits makes the stop not wait for requests in flight any more, and is raised afterwards.
        """
        if self._process != os.getpid():
            return  # a forked child has no such thread, and nothing of this is its own
        interrupt: KeyboardInterrupt | None = None
        self._stop(at_once=at_once)
        while self._thread.is_alive():
            try:
                self._thread.join(CLOSE_LOOK_S)
            except KeyboardInterrupt as error:
                interrupt = error
                self._stop(at_once=True)
        if isinstance(self._files, MemoryFiles):
            self._files.discard()
        if interrupt is not None:
            raise interrupt
        failure, self._failure = self._failure, None
        if failure is not None and self._started.done() and self._started.exception() is None:
            raise failure

    def stop(self) -> None:
        """Begin to stop, and return at once; from any thread, its own too."""
        if self._process == os.getpid():
            self._stop(at_once=True)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _stop(self, *, at_once: bool) -> None:
        try:
            self._soon(partial(self.broker.stop, at_once=at_once))
        except ConnectionError:
            return

    def _soon(self, action: Callable[[], object], refuse: Callable[[], object] | None = None) -> None:
        """Have the loop call `action`, or `refuse` where it is at its end and takes no task any more: what is raised
        there would be Trio's own failure."""

        def act() -> None:
            try:
                action()
            except RuntimeError:
                if refuse is None:
                    raise
                refuse()

        if self._process != os.getpid() or not self._started.done() or self._started.exception() is not None:
            raise ConnectionError("the broker does not run")
        try:
            self._started.result().run_sync_soon(act)
        except trio.RunFinishedError:
            raise ConnectionError("the broker is closed") from None

    def _attach(self, sock: socket.socket) -> None:
        self.broker.attach(sock)

    def _run(self) -> None:
        try:
            trio.run(self._serve)
        except BaseException as error:
            self._failure = refusal_in(error) or error
            if not self._started.done():
                self._started.set_exception(self._failure)

    async def _serve(self) -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(partial(self.broker.run, listen=self._listen))
            self._started.set_result(trio.lowlevel.current_trio_token())


def refusal_in(error: BaseException) -> TidelogError | None:
    """Return the error that says why a broker cannot run, when it is nothing worse."""
    if not isinstance(error, BaseExceptionGroup):
        return error if isinstance(error, TidelogError) else None
    refusals, others = cast("BaseExceptionGroup[BaseException]", error).split(TidelogError)
    while isinstance(refusals, BaseExceptionGroup):
        refusals = refusals.exceptions[0]
    return refusals if others is None and isinstance(refusals, TidelogError) else None
