"""Which dead letters are meant: by key, headers, reason, error, group and time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from ...protocol.dead_letter_headers import Reason
from ...protocol.group_name import full_group_name
from ...protocol.topic_name import short_name
from ..archived import Age
from ..dead_letter import DeadLetter
from ..headers import HeadersInput, pairs_of
from .arguments import check_word
from .data import Data, to_bytes
from .times import duration_us, to_us

REASONS = tuple(reason.value for reason in Reason)


@dataclass(frozen=True, slots=True)
class LetterFilter:
    """What a dead letter must be; None and empty leave nothing out. `origin` is a topic's full name."""

    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    reason: str | None = None
    error: str | None = None
    group: str | None = None
    start_us: int | None = None
    end_us: int | None = None

    @property
    def is_all(self) -> bool:
        """Whether it leaves nothing out, so that nothing need be read."""
        return self == EVERYTHING

    def matches(self, letter: DeadLetter) -> bool:
        """Whether a dead letter is meant."""
        message = letter.message
        return (
            (self.key is None or letter.key == self.key)
            and (self.reason is None or letter.reason == self.reason)
            and (self.error is None or self.error in (letter.error or ""))
            and (self.group is None or letter.group == self.group)
            and (self.start_us is None or message.append_time_us >= self.start_us)
            and (self.end_us is None or message.append_time_us < self.end_us)
            and all(value in message.headers.getall(name) for name, value in self.headers)
        )


EVERYTHING = LetterFilter()


def letter_filter(
    *,
    key: Data,
    headers: HeadersInput | None,
    reason: str | None,
    error: str | None,
    group: str | None,
    start: Age | None,
    end: Age | None,
    namespace: str,
    now_us: int,
) -> LetterFilter:
    """Return the filter of what a caller gave. Raises TypeError or ValueError that names the argument."""
    check_word("reason", reason, (None, *REASONS), ", ".join(REASONS))
    if error is not None and not isinstance(error, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"error: expected text that an error contains, found {error!r}")
    return LetterFilter(
        to_bytes(key, "key"),
        () if headers is None else tuple(pairs_of(headers, "headers")),
        reason,
        error,
        None if group is None else short_name(full_group_name(group, namespace)),
        _moment(start, "start", now_us),
        _moment(end, "end", now_us),
    )


def _moment(given: Age | None, name: str, now_us: int) -> int | None:
    if given is None:
        return None
    return now_us - abs(duration_us(given)) if isinstance(given, timedelta) else to_us(given, name)
