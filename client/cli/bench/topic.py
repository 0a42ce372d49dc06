"""The topic of a benchmark: made for it and deleted again, unless it was there before or is to be kept."""

from __future__ import annotations

import secrets
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ....protocol.errors import TidelogError, TopicExistsError
from ..errors import WrongUsage

if TYPE_CHECKING:
    from ...blocking.client import Client

PREFIX = "tidelog-bench-"
"""What the name of a topic begins with that nobody named: a leftover says what it is."""

LAST_WORD_S = 5.0
"""How long deleting may take when something else has failed already."""


@dataclass(frozen=True, slots=True)
class BenchTopic:
    """Where to send, and where each partition ended before."""

    name: str
    ends: tuple[int, ...]


@contextmanager
def bench_topic(client: Client, name: str | None, partitions: int | None, keep: bool) -> Generator[BenchTopic]:
    """Give a topic, made if it is missing. What was made here is deleted at the end; what was there before never is."""
    chosen = name or PREFIX + secrets.token_hex(4)
    try:
        topic = client.topics.create(chosen, partitions=partitions or 1)
        is_mine = True
    except TopicExistsError:
        topic = client.topics.describe(chosen)
        is_mine = False
        if partitions is not None and partitions != len(topic.partitions):
            raise WrongUsage(f"expected no --partitions: {chosen} exists with {len(topic.partitions)}") from None
    try:
        yield BenchTopic(chosen, tuple(each.end_offset for each in topic.partitions))
    except BaseException:
        if is_mine and not keep:
            with suppress(TidelogError):
                client.topics.delete(chosen, timeout=LAST_WORD_S)
        raise
    if is_mine and not keep:
        client.topics.delete(chosen)
