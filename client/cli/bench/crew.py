"""The callers of a benchmark: threads that begin together, and what each call took."""

from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ..progress import Advance

LOOK_S = 0.1
"""How often the progress is shown."""

PARTING_S = 2.0
"""How long callers may take to notice that the work was given up; they never keep the process alive."""


class Caller:
    """One caller's own clock."""

    def __init__(self, number: int, stopped: threading.Event) -> None:
        self.number = number
        self.begun_ns = array("q")
        self.took_ns = array("q")
        self.done = 0
        self._stopped = stopped

    @property
    def is_stopped(self) -> bool:
        """Whether somebody gave the work up: no further call is worth making."""
        return self._stopped.is_set()

    def count(self, messages: int, begun_ns: int) -> None:
        """Take in that a call about so many messages, begun at a time of `perf_counter_ns`, has ended now."""
        self.took_ns.append(time.perf_counter_ns() - begun_ns)
        self.begun_ns.append(begun_ns)
        self.done += messages

    def count_each(self, took_ns: npt.NDArray[np.int64]) -> None:
        """Take in what calls about one message each took, which did not wait for one another."""
        self.took_ns.frombytes(took_ns.tobytes())
        self.done += len(took_ns)


Work = Callable[[Caller], None]


class Crew:
    """Some callers that do the same. `seconds` is from their common beginning until the last is done."""

    def __init__(self, size: int) -> None:
        self.seconds = 0.0
        self._stopped = threading.Event()
        self._gate = threading.Event()
        self._callers = [Caller(number, self._stopped) for number in range(size)]
        self._errors: list[BaseException] = []

    @property
    def took_ns(self) -> array[int]:
        """What each call took, of all callers."""
        taken = array("q")
        for caller in self._callers:
            taken.extend(caller.took_ns)
        return taken

    def begun_ns(self, caller: int, call: int) -> int:
        """Return when a caller's call began."""
        return self._callers[caller].begun_ns[call]

    def run(self, work: Work, advance: Advance) -> None:
        """Have all callers do the work at the same time; raises what the first one failed with, and stops at Ctrl-C."""
        threads = [threading.Thread(target=self._one, args=(work, each), daemon=True) for each in self._callers]
        for thread in threads:
            thread.start()
        begun = time.perf_counter()
        self._gate.set()
        shown = 0
        try:
            for thread in threads:
                while thread.is_alive():
                    thread.join(LOOK_S)
                    done = sum(caller.done for caller in self._callers)
                    advance(done - shown)
                    shown = done
        except BaseException:
            self._stop(threads)
            raise
        self.seconds = time.perf_counter() - begun
        if self._errors:
            raise self._errors[0]

    def _one(self, work: Work, caller: Caller) -> None:
        self._gate.wait()
        try:
            work(caller)
        except BaseException as error:
            self._errors.append(error)
            self._stopped.set()

    def _stop(self, threads: list[threading.Thread]) -> None:
        self._stopped.set()
        until = time.monotonic() + PARTING_S
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))
