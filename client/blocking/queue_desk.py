# Generated from client/aio/queue_desk.py by client/generate.py: change that, then run it.
"""Where what is done to leased messages is taken: from any thread, at once, and waited for where that is asked."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from ...protocol.errors import ClosedError, ForkedError, LeaseLostError
from ..core.arguments import check_flag
from ..core.deadline import Deadline
from ..core.held_lease import HeldLease
from ..core.settles import Entry, How, lost_error
from ..core.times import Timeout, timeout_seconds
from ..queue_statistics import LostLease
from . import runtime
from .connection import copy_of
from .link import Link
from .settle_sender import SettleSender, nothing

MAX_REPORTED = 1_000
"""Leases that are remembered as lost, so that the log says it once of each."""

log = logging.getLogger("tidelog")


class QueueDesk(SettleSender):
    """The settling side of a queue, as its messages and the queue see it."""

    def __init__(
        self,
        link: Link,
        member: int,
        timeout: float | None,
        on_lease_lost: Callable[[LostLease], object] | None,
    ) -> None:
        super().__init__(link, member)
        self._timeout = timeout
        self._on_lease_lost = on_lease_lost
        self._reported: set[object] = set()
        """Leases that the log said to be lost."""

    # -- what the user says ----------------------------------------------------------------------------------------

    def attend(self) -> None:
        """Something was acknowledged, and nothing is on its way that it could share. From any thread."""
        if runtime.is_forked(self.home):
            raise ForkedError("this message was leased before a fork; settle it in the parent, or by its lease_token")
        if runtime.is_here(self.home):
            self.seen_at = self.time.now()
            self._attend_here()
        else:
            runtime.call_soon(self.home, self._attend_here)

    def _attend_here(self) -> None:
        self.pump()
        self.on_use()  # the user's code may say nothing more for long: somebody is to take the answer in
        self._tell_late()

    def close(self, error: ClosedError) -> None:
        """Send nothing any more; what is not answered is lost, and what is said from here on."""
        super().close(error)
        self._tell_late()
        self.on_progress = self.on_use = self.on_work = nothing  # what they belong to refers to this

    def _tell_late(self) -> None:
        """Tell what was said after the queue was left, and changed nothing: nobody else is there to do it."""
        if self.closed is None or not self.book.reports:
            return
        try:
            runtime.background("tidelog queue, lost leases", self.tell)
        except RuntimeError:  # the event loop is at its end, and takes nothing more: the log hears of it all the same
            while (report := self._next_report()) is not None:
                self._log(report)

    def _next_report(self) -> LostLease | None:
        """Take the next one: the user's thread and the background both tell."""
        with self.lock:
            return self.book.reports.pop(0) if self.book.reports else None

    def _log(self, report: LostLease) -> None:
        """Say once of a lease that it was lost."""
        lease = report.error.details.get("lease")
        if lease not in self._reported:
            self._reported = {*[*self._reported][-MAX_REPORTED:], lease}
            log.warning("%s", report.error)

    def settle(self, lease: HeldLease, offset: int, how: How, wait: bool, timeout: Timeout) -> runtime.Settled:
        """Take what the user said of one message."""
        return self._settle(lease, [offset], how, wait, timeout, is_batch=False)

    def settle_all(
        self, lease: HeldLease, offsets: list[int], how: How, wait: bool, timeout: Timeout
    ) -> runtime.Settled:
        """Take what the user said of a batch: of what is not settled of it."""
        return self._settle(lease, offsets, how, wait, timeout, is_batch=True)

    def _settle(
        self, lease: HeldLease, offsets: list[int], how: How, wait: bool, timeout: Timeout, *, is_batch: bool
    ) -> runtime.Settled:
        if wait is not False:
            wait = check_flag("wait", wait)
        timeout_seconds(timeout, self._timeout)
        if runtime.is_forked(self.home):
            raise ForkedError("this message was leased before a fork; settle it in the parent, or by its lease_token")
        if wait:
            runtime.check_home(self.home, "queue")
        elif not runtime.is_here(self.home):  # another thread than the loop's
            runtime.call_soon(self.home, partial(self._take_later, lease, offsets, how, is_batch))
            return runtime.SETTLED
        entry, conflicts, serial = self._take(lease, offsets, how, is_batch=is_batch, is_awaited=wait)
        if not wait:
            return runtime.SETTLED
        return self._settled(lease, offsets, entry, conflicts, serial, timeout)

    def _take_later(self, lease: HeldLease, offsets: list[int], how: How, is_batch: bool) -> None:
        self._take(lease, offsets, how, is_batch=is_batch)

    def _take(
        self, lease: HeldLease, offsets: list[int], how: How, *, is_batch: bool, is_awaited: bool = False
    ) -> tuple[Entry | None, int, int]:
        with self.lock:
            self.look()
            entry, conflicts = self.book.settle(lease, offsets, how, is_batch=is_batch, is_awaited=is_awaited)
            serial = self.book.settles.last_serial
        if self.is_attentive:  # else it shares the next request: one for each nack would cost 0.3 ms
            self.attend()
        return entry, conflicts, serial

    def _settled(
        self,
        lease: HeldLease,
        offsets: list[int],
        entry: Entry | None,
        conflicts: int,
        serial: int,
        timeout: Timeout,
    ) -> None:
        """Return when an entry is durable; without one, when what was said of the messages before is."""
        deadline = Deadline.after(timeout_seconds(timeout, self._timeout), self.time.now())
        is_told = False
        try:
            self.wait_for(serial if entry is None else entry.serial, deadline)
            is_told = True
        finally:
            with self.lock:
                self.book.no_longer_awaited(entry, is_told=is_told)
                was_lost = is_told and self.book.told_lost(lease, offsets)
        self.tell()
        if entry is not None and entry.error is not None:
            raise copy_of(entry.error)
        if conflicts or was_lost or (entry is None and lease.is_lost):
            raise lost_error(lease)

    def flush(self, deadline: Deadline) -> None:
        """Return when everything settled so far is durable. Raises LeaseLostError for what was lost and not raised by
        another call, TimedOutError."""
        with self.lock:
            self.look()
            self.book.gather()
            serial = self.book.settles.last_serial
        self.pump()
        self.wait_for(serial, deadline)
        self.tell()
        with self.lock:
            lost, self.book.untold = self.book.untold, 0
        if lost:
            raise LeaseLostError(
                f"expected leases on all that was settled, found {lost} messages whose lease had ended, or that were"
                " settled otherwise: nothing was changed there",
                lost=lost,
            )

    def tell(self) -> None:
        """Tell the user of leases that were lost; outside of every lock."""
        while (report := self._next_report()) is not None:
            self._log(report)
            if self._on_lease_lost is not None:
                try:
                    runtime.notify(self._on_lease_lost, report)
                except Exception:
                    log.exception("on_lease_lost failed")

    def give_back_all(self, handed: How) -> None:
        """Give back what is not settled: what was handed out in one way, the rest uncounted. What was lost before was
        told when it was."""
        with self.lock:
            self.look()
            self.book.gather()
            self.book.untold = 0
            for lease in self.book:
                self.book.give_back(lease, handed)
        self.pump()
