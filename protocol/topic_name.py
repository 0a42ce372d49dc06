"""Names of topics and ids of messages: how they are written, checked and read.

A topic is `name` or `namespace/name`; without one the namespace is `default`. A message id is
`namespace/topic/partition@offset`, the namespace left out where it is `default`. A topic made again under its name
carries its count: `orders~2/0@5` (no name holds `~`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .errors import InvalidRequestError, InvalidTopicError

DEFAULT_NAMESPACE = "default"
INTERNAL_PREFIX = "__"
MAX_PART_LENGTH = 116
"""Leaves room for `.dlq` and the count within a file name's 120 characters."""

_PART = re.compile(rf"[A-Za-z0-9._-]{{1,{MAX_PART_LENGTH}}}(?:\.dlq)?", re.ASCII)
_MESSAGE_ID = re.compile(
    r"(?P<topic>[^~@]+)(?:~(?P<count>[0-9]{1,9}))?/(?P<partition>[0-9]{1,9})@(?P<offset>[0-9]{1,18})",
    re.ASCII,
)


def full_name(name: str, namespace: str = DEFAULT_NAMESPACE) -> str:
    """Return `namespace/name` of a topic as the user wrote it. Raises InvalidTopicError that states the rule.

    The dead-letter topic of one with the longest name may be named too.
    """
    parts = name.split("/") if isinstance(name, str) else []  # pyright: ignore[reportUnnecessaryIsInstance]
    if len(parts) == 1:
        parts = [namespace, *parts]
    if len(parts) != 2 or not all(_PART.fullmatch(part) and part not in (".", "..") for part in parts):
        raise InvalidTopicError(
            f"expected a topic name of 1 to {MAX_PART_LENGTH} of A-Z a-z 0-9 . _ - (not . or ..), "
            f"optionally after a namespace and a slash, found {name!r}"
        )
    return "/".join(parts)


def short_name(name: str) -> str:
    """Return a full name as it is shown: without the namespace where it is `default`."""
    return name.removeprefix(f"{DEFAULT_NAMESPACE}/")


def is_internal(name: str) -> bool:
    """Whether a full name is the broker's own."""
    return name.split("/")[-1].startswith(INTERNAL_PREFIX)


@dataclass(frozen=True, slots=True)
class MessageId:
    """Where one record is: full topic name, how often that name was made (1 first), partition, offset."""

    topic: str
    count: int
    partition: int
    offset: int

    def __str__(self) -> str:
        count = f"~{self.count}" if self.count > 1 else ""
        return f"{short_name(self.topic)}{count}/{self.partition}@{self.offset}"

    @classmethod
    def parse(cls, text: str, namespace: str = DEFAULT_NAMESPACE) -> MessageId:
        """Read an id, from the right. Raises InvalidRequestError that shows the form."""
        match = _MESSAGE_ID.fullmatch(text)
        if match is None:
            raise InvalidRequestError(f"expected a message id such as orders/2@45678, found {text!r}")
        try:
            topic = full_name(match["topic"], namespace)
        except InvalidTopicError as error:
            raise InvalidRequestError(
                f"expected a message id such as orders/2@45678, found {text!r}: {error}"
            ) from None
        return cls(topic, int(match["count"] or 1), int(match["partition"]), int(match["offset"]))
