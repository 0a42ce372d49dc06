"""Several answers that make one reply."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar, cast

from ...protocol.errors import TidelogError
from ..deferred import Deferred, Reply
from .context import Answer

T = TypeVar("T")


def when_all(
    parts: Sequence[T | TidelogError | Deferred[T]], make_reply: Callable[[list[T | TidelogError]], Reply]
) -> Answer:
    """Return the reply made of all parts, at once if they are there; a part that failed is given as its error."""
    pending = [(place, cast("Deferred[T]", part)) for place, part in enumerate(parts) if isinstance(part, Deferred)]
    values = cast("list[T | TidelogError]", list(parts))
    if not pending:
        return make_reply(values)

    def withdraw() -> None:
        for _, part in pending:
            part.withdraw()

    answer: Deferred[Reply] = Deferred(withdraw)
    missing = len(pending)

    def arrived(place: int, part: Deferred[T]) -> None:
        nonlocal missing
        values[place] = part.error or part.result()
        missing -= 1
        if not missing:
            answer.resolve(make_reply(values))

    for place, part in pending:
        part.on_done(partial(arrived, place))
    return answer
