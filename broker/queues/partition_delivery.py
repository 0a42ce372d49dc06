"""The delivery log of one partition through its life: not there yet, open, fenced, or impossible to open.

    NONE --first use, or a start that finds it--> OPEN --a sync fails--> fenced --reopen--> closed --> OPEN
      '--cannot be opened--> FAILED (messages are read all the same) --reopen--> OPEN

What may wait for the disk is done by `delivery_opening`, in a worker.
"""

from __future__ import annotations

from collections.abc import Callable

from ...protocol.errors import DiskFullError, LogFencedError, TidelogError
from ..deferred import Deferred
from ..errors import anew, kept
from ..group_commit import fenced_error
from ..services import Services
from ..storage.log import Log
from ..storage.retention import Expired
from .delivery_log import DELIVERY_FOLDER, DeliveryLog, delivery_log_id

PARTITIONS_FOLDER = "partitions"


class PartitionDelivery:
    """Where a partition's delivery log is in its life."""

    def __init__(self, services: Services, topic_id: int, index: int, messages: Callable[[], Log]) -> None:
        """`messages` returns the partition's log of messages as it is now."""
        self.topic_id = topic_id
        self.index = index
        self.messages = messages
        self.log: DeliveryLog | None = None
        self.is_opening = False
        self.degraded: dict[int, int] = {}
        """Group -> the generation of which not all that was recorded can be read."""
        self.on_change: Callable[[], None] = _nobody
        """Called when it was opened, opened anew, fenced, or cannot be opened."""
        self.reopen: Callable[[], Deferred[None]] = _cannot
        """Opens the log anew, in a worker; `problem` says afterwards what came of it."""
        self._services = services
        self._when_opened: Callable[[], None] | None = None
        self._failure: TidelogError | None = None

    def __repr__(self) -> str:
        return f"<PartitionDelivery {self.topic_id}/{self.index} {self._failure or self.log!r}>"

    @property
    def place(self) -> tuple[int, int]:
        """Of which partition of which topic it is."""
        return self.topic_id, self.index

    @property
    def folder(self) -> str:
        """Where it lies."""
        return f"{PARTITIONS_FOLDER}/{self.topic_id}-{self.index}/{DELIVERY_FOLDER}"

    @property
    def log_id(self) -> int:
        """Its id."""
        return delivery_log_id(self.topic_id, self.index)

    @property
    def title(self) -> str:
        """What errors call it."""
        return f"the delivery log of {self.messages().title}"

    def bound(self, epoch: int) -> int:
        """Return one past the last offset that something said in an epoch can be about."""
        return self.messages().epoch_end(epoch)

    def problem(self) -> TidelogError | None:
        """Return why nothing can be recorded now, or None; a log that is not there yet is no problem."""
        if self._failure is not None:
            return anew(self._failure)
        return fenced_error() if self.is_fenced else None

    @property
    def is_fenced(self) -> bool:
        """Whether a sync of it failed."""
        return self.log is not None and self.log.log.fenced

    @property
    def needs_reopening(self) -> bool:
        """Whether `topics reopen` has something to do."""
        return self.is_fenced or self._failure is not None

    @property
    def lacks_room(self) -> bool:
        """Whether it could not be opened, or made, as the disk was full."""
        return isinstance(self._failure, DiskFullError)

    # -- its life --------------------------------------------------------------------------------------------------

    def take(self, opened: DeliveryLog | TidelogError) -> None:
        """Go on with the log as it was opened, or with why it was not."""
        self.is_opening = False
        if isinstance(opened, TidelogError):
            self._failure = kept(opened)
        elif self._when_opened is not None:
            opened.log.close(clean=False)  # the topic was deleted meanwhile
        else:
            self._failure = None
            self.log = opened
            opened.log.raise_epoch(max(opened.log.epoch, self.messages().epoch))
            self.keep()
        if self._when_opened is not None:
            self._when_opened()
        else:
            self.on_change()

    def let_go(self) -> None:
        """Close the log, on which no thread works any more. Until it is opened anew nothing is known of it."""
        self.close(clean=False)
        self.log = None
        self._failure = LogFencedError("expected a delivery log that takes writes, found one that is being reopened")
        self.on_change()

    def keep(self) -> None:
        """Have the log synced and looked after."""
        if self.log is not None:
            self._services.commit.add(self.log.log, self._progressed)
            self._services.upkeep.touch(self.log.log)

    def _progressed(self) -> None:
        assert self.log is not None, "a log that progressed is open"
        self._services.upkeep.touch(self.log.log)
        if self.log.log.fenced:
            self._services.report("delivery log fenced", topic_id=self.topic_id, partition=self.index)
            self.on_change()

    def messages_replaced(self) -> None:
        """The log of messages was opened anew: what it lost is spoken of no more, and what follows is of its epoch."""
        if self.log is not None:
            messages = self.messages()
            self.log.log.raise_epoch(max(self.log.log.epoch, messages.epoch))
            self.log.fold.enter_epoch(self.log.log.epoch)
            self.log.keep_retries()
            self.on_change()

    def release(self, error: TidelogError, released: Callable[[], None]) -> None:
        """Let no thread work on the log any more, then call `released`; whoever waits for a sync gets `error`."""
        services = self._services
        if self.is_opening:
            self._when_opened = released
            return
        if self.log is None:
            released()
            return
        log = self.log.log
        services.commit.remove(log, error, lambda: services.upkeep.release(log, released))

    def end(self, error: TidelogError, ended: Callable[[], None]) -> None:
        """The topic was deleted: whoever waits gets `error`, `ended` is called when the files may be removed."""

        # Nothing leads back to the partition, which is gone with its last reader and not when the collector comes.
        messages = self.messages()
        self.messages = lambda: messages
        self.on_change, self.reopen = _nobody, _cannot

        def close() -> None:
            self.close(clean=False)
            ended()

        self.release(error, close)

    def close(self, *, clean: bool) -> None:
        """Let go of the files; blocks where it is clean."""
        if self.log is not None:
            self.log.log.close(clean=clean)

    def expire(self, now_us: int, *, age_allowed: bool) -> Expired | None:
        """Drop the segments that are older than what can be told of messages; the caller runs what comes back.

        Only those that both snapshots cover go: the states are known without them.
        """
        if self.log is None:
            return None
        self._services.upkeep.touch(self.log.log)
        return self.log.log.expire(now_us, age_allowed=age_allowed)


def _cannot() -> Deferred[None]:
    raise AssertionError("nothing is reopened before it was opened")


def _nobody() -> None:
    """Stand in until somebody serves groups."""
