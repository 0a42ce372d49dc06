"""Several answers that make one reply."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar, cast

from ...protocol.errors import InternalError, TidelogError
from ..deferred import Deferred, Reply
from ..errors import kept
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


def _one(_question: object) -> int:
    return 1


def ask_in_turns(
    context: Context,
    questions: Sequence[Q],
    ask: Callable[[Q], T | TidelogError | Deferred[T]],
    make_reply: Callable[[list[T | TidelogError]], Reply],
    weigh: Callable[[Q], int] = _one,
) -> Answer:
    """As `when_all` of what `ask` says to each question, with a pause after so many that others would notice.

    `weigh` returns how many lookups a question is. What may have changed in the pause is for `ask` to look at; an error
    that it raises is the answer to its question.
    """
    parts: list[T | TidelogError | Deferred[T]] = []

    def go_on() -> bool:
        room = PER_TURN
        while room > 0 and len(parts) < len(questions):
            question = questions[len(parts)]
            room -= weigh(question)
            try:
                parts.append(ask(question))
            except TidelogError as error:
                parts.append(kept(error))
        return len(parts) == len(questions)

    if go_on():
        return when_all(parts, make_reply)
    answer: Deferred[Reply] = Deferred()

    def again() -> None:
        try:
            if go_on():
                _follow(answer, when_all(parts, make_reply))
                return
        except Exception as bug:  # nobody else would answer
            answer.fail(InternalError("expected an answer, found a bug in the broker; its log has more"))
            raise bug
        context.offload(_nothing, again)

    context.offload(_nothing, again)
    return answer


def _follow(answer: Deferred[Reply], whole: Answer) -> None:
    if isinstance(whole, Reply):
        answer.resolve(whole)
    else:
        whole.on_done(partial(_pass_on, answer))


def _nothing() -> None:
    """Be the work of a worker that is only waited for."""


def _pass_on(answer: Deferred[Reply], whole: Deferred[Reply]) -> None:
    answer.resolve(whole.result())
