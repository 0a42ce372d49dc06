"""Several answers that make one reply."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar, cast

from ...protocol.errors import TidelogError
from ..deferred import Deferred, Reply
from .context import Answer, Context

T = TypeVar("T")
Q = TypeVar("Q")

PER_TURN = 256
"""So many lookups at once; then the loop runs before the next."""


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


def ask_in_turns(
    context: Context,
    questions: Sequence[Q],
    ask: Callable[[Q], T | TidelogError | Deferred[T]],
    make_reply: Callable[[list[T | TidelogError]], Reply],
) -> Answer:
    """As `when_all` of what `ask` says to each question, with a pause after so many that others would notice."""
    parts = [ask(question) for question in questions[:PER_TURN]]
    if len(questions) <= PER_TURN:
        return when_all(parts, make_reply)
    answer: Deferred[Reply] = Deferred()
    context.offload(_nothing, partial(_ask_on, context, questions, ask, make_reply, parts, answer))
    return answer


def _ask_on(
    context: Context,
    questions: Sequence[Q],
    ask: Callable[[Q], T | TidelogError | Deferred[T]],
    make_reply: Callable[[list[T | TidelogError]], Reply],
    parts: list[T | TidelogError | Deferred[T]],
    answer: Deferred[Reply],
) -> None:
    parts.extend(ask(question) for question in questions[len(parts) : len(parts) + PER_TURN])
    if len(parts) < len(questions):
        context.offload(_nothing, partial(_ask_on, context, questions, ask, make_reply, parts, answer))
        return
    whole = when_all(parts, make_reply)
    if isinstance(whole, Reply):
        answer.resolve(whole)
    else:
        whole.on_done(partial(_pass_on, answer))


def _nothing() -> None:
    """Be the work of a worker that is only waited for."""


def _pass_on(answer: Deferred[Reply], whole: Deferred[Reply]) -> None:
    answer.resolve(whole.result())
