"""Answers: at once, or later by whoever comes to know them.

A handler returns `Reply`, or `Deferred` when something must happen first (a sync, a message, a fact). Nobody awaits
a deferred: the one who knows calls `resolve` or `fail`, and the one who asked is called back.

    PENDING --resolve--> RESOLVED
            --fail-----> FAILED
            --withdraw-> WITHDRAWN      nobody wants the answer any more; a later resolve or fail does nothing
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeAlias, TypeVar, cast

from ..protocol.errors import TidelogError
from ..protocol.messages import Message
from .errors import anew, kept
from .storage.files import Buffer
from .storage.reader import FileSlice

__all__ = ["Bulk", "Deferred", "FileSlice", "Reply", "State", "failed", "resolved"]

T = TypeVar("T")
U = TypeVar("U")


Bulk: TypeAlias = "Buffer | FileSlice"


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer: the control struct, and the pieces of its bulk in order.

    `undelivered` is called when it is certain that not all of it reached the peer: what it gave can be taken back.
    """

    message: Message
    bulk: Sequence[Bulk] = ()
    undelivered: Callable[[], None] | None = None


class State(Enum):
    """Where a deferred is in its life."""

    PENDING = "pending"
    RESOLVED = "resolved"
    FAILED = "failed"
    WITHDRAWN = "withdrawn"


class Deferred(Generic[T]):
    """A value that comes once, or an error instead of it."""

    __slots__ = ("_callbacks", "_error", "_on_withdraw", "_value", "state")

    def __init__(self, on_withdraw: Callable[[], None] | None = None) -> None:
        """`on_withdraw` lets whoever would resolve this forget about it."""
        self.state = State.PENDING
        self._on_withdraw = on_withdraw
        self._callbacks: list[Callable[[Deferred[T]], None]] = []
        self._value: T | None = None
        self._error: TidelogError | None = None

    def __repr__(self) -> str:
        return f"<Deferred {self.state.value} {self._error or self._value or ''}>"

    @property
    def is_pending(self) -> bool:
        """Whether the answer is still to come."""
        return self.state is State.PENDING

    @property
    def error(self) -> TidelogError | None:
        """The error, once failed."""
        return self._error

    def result(self) -> T:
        """Return the value. Raises the error of a failed one; asking before it is resolved is a bug."""
        if self._error is not None:
            raise anew(self._error)
        assert self.state is State.RESOLVED, f"result of a deferred that is {self.state.value}"
        return cast("T", self._value)

    def resolve(self, value: T) -> bool:
        """Give the value; returns False when it was withdrawn and nobody wants it."""
        if self._ends(State.RESOLVED):
            self._value = value
            self._call_back()
        return self.state is State.RESOLVED

    def fail(self, error: TidelogError) -> bool:
        """Give an error instead; returns False when it was withdrawn."""
        if self._ends(State.FAILED):
            self._error = kept(error)
            self._call_back()
        return self.state is State.FAILED

    def follow(self, found: T | Deferred[T]) -> None:
        """Take the answer from elsewhere: what it is, or what it will be."""
        if isinstance(found, Deferred):
            cast("Deferred[T]", found).on_done(self._take_from)
        else:
            self.resolve(found)

    def _take_from(self, other: Deferred[T]) -> None:
        if other.error is not None:
            self.fail(other.error)
        else:
            self.resolve(other.result())

    def withdraw(self) -> bool:
        """Say that the answer is not wanted any more; returns False when it came already. No callback is called."""
        if self.state is not State.PENDING:
            return False
        self.state = State.WITHDRAWN
        self._callbacks.clear()
        on_withdraw, self._on_withdraw = self._on_withdraw, None
        if on_withdraw is not None:
            on_withdraw()
        return True

    def on_done(self, callback: Callable[[Deferred[T]], None]) -> None:
        """Call `callback(self)` when resolved or failed: at once when it is already. Callbacks must not raise."""
        if self.state is State.PENDING:
            self._callbacks.append(callback)
        elif self.state is not State.WITHDRAWN:
            callback(self)

    def then(self, change: Callable[[T], U]) -> Deferred[U]:
        """Return a deferred of the changed value; a TidelogError that `change` raises fails it.

        Withdrawing the returned one withdraws this one.
        """
        changed: Deferred[U] = Deferred(self.withdraw_quietly)

        def pass_on(source: Deferred[T]) -> None:
            if source.error is not None:
                changed.fail(source.error)
                return
            try:
                value = change(source.result())
            except TidelogError as error:
                changed.fail(error)
            else:
                changed.resolve(value)

        self.on_done(pass_on)
        return changed

    def withdraw_quietly(self) -> None:
        """Withdraw if it is still pending."""
        self.withdraw()

    def _ends(self, state: State) -> bool:
        assert self.state in (State.PENDING, State.WITHDRAWN), f"a second answer to a deferred that is {self.state}"
        if self.state is State.WITHDRAWN:
            return False
        self.state = state
        self._on_withdraw = None  # it refers to who asked, who may refer to this one
        return True

    def _call_back(self) -> None:
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)


def end(deferred: Deferred[None], error: TidelogError | None) -> None:
    """Let something that is waited for be done, or have failed."""
    if error is None:
        deferred.resolve(None)
    else:
        deferred.fail(error)


def resolved(value: T) -> Deferred[T]:
    """Return a deferred that has its value already."""
    deferred: Deferred[T] = Deferred()
    deferred.resolve(value)
    return deferred


def failed(error: TidelogError) -> Deferred[T]:  # pyright: ignore[reportInvalidTypeVarUse]
    """Return a deferred that has failed already."""
    deferred: Deferred[T] = Deferred()
    deferred.fail(error)
    return deferred
