"""Several answers that make one reply."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic, TypeVar, cast

from ...protocol.errors import TidelogError
from ..deferred import Deferred, Reply
from ..errors import bug_answer, kept
from ..turns import PER_TURN, pause
from .context import Answer, Context

T = TypeVar("T")
Q = TypeVar("Q")


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
    turns = _Turns(context, questions, ask, make_reply, weigh)
    if turns.go_on():
        return turns.whole()
    turns.pause()
    return turns.answer


class _Turns(Generic[Q, T]):
    """A long list of questions on its way. Only the work that is out refers to it, so its answer leaves no cycle."""

    def __init__(
        self,
        context: Context,
        questions: Sequence[Q],
        ask: Callable[[Q], T | TidelogError | Deferred[T]],
        make_reply: Callable[[list[T | TidelogError]], Reply],
        weigh: Callable[[Q], int],
    ) -> None:
        self.answer: Deferred[Reply] = Deferred()
        self._context = context
        self._questions = questions
        self._ask = ask
        self._make_reply = make_reply
        self._weigh = weigh
        self._parts: list[T | TidelogError | Deferred[T]] = []

    def go_on(self) -> bool:
        """Ask for one turn; return whether that was all."""
        room, parts, questions = PER_TURN, self._parts, self._questions
        while room > 0 and len(parts) < len(questions):
            question = questions[len(parts)]
            room -= self._weigh(question)
            try:
                parts.append(self._ask(question))
            except TidelogError as error:
                parts.append(kept(error))
        return len(parts) == len(questions)

    def whole(self) -> Answer:
        """Return the reply made of all parts."""
        return when_all(self._parts, self._make_reply)

    def pause(self) -> None:
        """Let others run before the next turn."""
        pause(self._context.offload).on_done(self._again)

    def _again(self, _over: Deferred[None]) -> None:
        try:
            if self.go_on():
                _follow(self.answer, self.whole())
                return
        except Exception as bug:  # nobody else would answer
            self.answer.fail(bug_answer())
            raise bug
        self.pause()


def _follow(answer: Deferred[Reply], whole: Answer) -> None:
    if isinstance(whole, Reply):
        answer.resolve(whole)
    else:
        whole.on_done(partial(_pass_on, answer))


def _pass_on(answer: Deferred[Reply], whole: Deferred[Reply]) -> None:
    answer.resolve(whole.result())
