# Generated from client/aio/queue_message.py by client/generate.py: change that, then run it.
"""A leased message: what a Message is, and what settles it.

Measured (idle machine, `bench/micro`): making one by `map`, handing it out and `ack()` together take some 300 ns. So
nothing is made for each message beyond itself: what belongs to the lease is looked up there when it is asked for, and
an acknowledgement is an append to a list of the lease.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Generic, cast

import msgspec

from ...protocol.errors import DecodeError
from ..core.held_lease import HeldLease
from ..core.settles import How
from ..core.times import DEFAULT, Timeout, from_us
from ..message import UNDECODED, Located, Message, TypedMessage
from ..message_state import Failure
from ..settled_elsewhere import LeaseData, from_elsewhere
from . import runtime
from .settleable import ACCEPTED, Settleable

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from .queue_desk import QueueDesk

    Value = TypeVar("Value", default=object)
else:
    from typing import TypeVar

    Value = TypeVar("Value")


class Leased(Settleable, Located):
    """What every leased message can be asked and told, with a codec or without."""

    __slots__ = ()

    _lease: HeldLease | LeaseData

    def ack(self, *, wait: bool = False, timeout: Timeout = DEFAULT) -> runtime.Settled:
        """The message is done with: the group never gets it again."""
        if wait is not False or timeout is not DEFAULT:
            return self._settle(ACCEPTED, wait, timeout)
        lease: HeldLease = self._lease  # pyright: ignore[reportAssignmentType]  # `cast` is a call, of 70 ns a message
        lease.acked.append(self.offset)
        if lease.is_clean:
            lease.is_clean = False
            lease.desk.dirty.append(lease)
        if lease.desk.is_attentive:
            _desk(lease).attend()
        return runtime.SETTLED

    @property
    def attempt(self) -> int:
        """How often the message was handed out, this time included: 1 at first."""
        earlier = self._lease.earlier(self.offset)
        return 1 if earlier is None else earlier.count + 1

    @property
    def last_attempt(self) -> bool:
        """Whether `max_attempts`, the message's own or else the group's, are used up with this one: a nack gives the
        message up."""
        limit = self._lease.limit_of(self.offset)
        return limit > 0 and self.attempt >= limit

    @property
    def previous_error(self) -> Failure | None:
        """Why the attempt before failed, where somebody said so."""
        earlier = self._lease.earlier(self.offset)
        return (
            None
            if earlier is None or earlier.error is None
            else Failure(earlier.error.kind, earlier.error.text, earlier.error.traceback)
        )

    @property
    def lease_expires_at(self) -> datetime:
        """When the lease ends unless it is renewed, in UTC by this machine's clock."""
        return from_us(self._lease.expires_us)

    @property
    def lease_token(self) -> str:
        """What settles the message from another process: `client.settle(token, "ack")`."""
        return self._lease.token(self.offset).text()

    def settle_rest(self, how: How) -> None:
        """The handler is done: this becomes of the message, unless it settled it itself."""
        lease = cast("HeldLease", self._lease)
        _desk(lease).settle_all(lease, [self.offset], how, wait=False, timeout=DEFAULT)

    def _settle(self, how: How, wait: bool, timeout: Timeout) -> runtime.Settled:
        return _desk(cast("HeldLease", self._lease)).settle(
            cast("HeldLease", self._lease), self.offset, how, wait, timeout
        )


def _desk(lease: HeldLease) -> QueueDesk:
    return cast("QueueDesk", lease.desk)


class QueueMessage(Leased, Message, frozen=True, gc=False, eq=False):
    """A message of a queue: what a Message is, and what settles it. It pickles as data, with its lease token."""

    _lease: HeldLease | LeaseData = msgspec.field(default_factory=LeaseData)

    def __repr__(self) -> str:
        return self._shown("value", self.value)

    def __reduce__(self) -> tuple[Callable[..., QueueMessage], tuple[object, ...]]:
        fields = [getattr(self, name) for name in self.__struct_fields__[:-1]]
        return QueueMessage, (*fields, from_elsewhere(self._lease, self.offset))


class TypedQueueMessage(Leased, TypedMessage[Value], Generic[Value], frozen=True, eq=False):
    """A message of a queue that is read with a codec: what a TypedMessage is, and what settles it."""

    _lease: HeldLease | LeaseData = msgspec.field(default_factory=LeaseData)

    def __repr__(self) -> str:
        return self._shown("raw", self.raw)

    def __reduce__(self) -> tuple[Callable[..., TypedQueueMessage[object]], tuple[object, ...]]:
        codec: DecodeError | None = None
        decoded: object = UNDECODED
        try:
            decoded = self.value
        except DecodeError as error:
            codec = error
        head, tail = self._stored()[:7], self._stored()[7:]
        elsewhere = from_elsewhere(self._lease, self.offset)
        return TypedQueueMessage[object], (*head, codec, *tail, decoded, elsewhere)


if TYPE_CHECKING:
    AnyQueueMessage = TypeVar("AnyQueueMessage", bound=Leased, default=QueueMessage)
else:
    AnyQueueMessage = TypeVar("AnyQueueMessage")
