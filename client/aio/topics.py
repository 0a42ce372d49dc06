"""Administration of topics."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from ..core.times import DEFAULT, Timeout
from ..topic import Topic

SettingInput = str | int | float | timedelta | None


class AsyncTopics:
    """`client.topics`. Settings are keywords: retention="7d" (or a timedelta, or seconds), retention_bytes="10GiB" (or
    bytes), segment_bytes, segment_age, max_message_bytes, durability="written"; None means no limit."""

    async def create(
        self,
        name: str,
        *,
        partitions: int | None = None,
        exist_ok: bool = False,
        timeout: Timeout = DEFAULT,
        **settings: SettingInput,
    ) -> Topic:
        """Create a topic; with `exist_ok` return an existing one as it is. Raises TopicExistsError, InvalidTopicError."""
        raise NotImplementedError

    async def list(self, *, timeout: Timeout = DEFAULT) -> list[Topic]:
        """Return all topics but the broker's own, by name."""
        raise NotImplementedError

    async def describe(self, name: str, *, timeout: Timeout = DEFAULT) -> Topic:
        """Return one topic. Raises UnknownTopicError that suggests the nearest name."""
        raise NotImplementedError

    async def set(
        self,
        name: str,
        *,
        partitions: int | None = None,
        reset: Iterable[str] = (),
        timeout: Timeout = DEFAULT,
        **settings: SettingInput,
    ) -> Topic:
        """Change settings and raise the number of partitions; keys in `reset` follow the broker's default again."""
        raise NotImplementedError

    async def reopen(self, name: str, *, timeout: Timeout = DEFAULT) -> list[int]:
        """Let fenced partitions take writes again, once their disk is repaired; return which they were."""
        raise NotImplementedError

    async def delete(self, name: str, *, missing_ok: bool = False, timeout: Timeout = DEFAULT) -> None:
        """Delete a topic with all its records, finally. Raises UnknownTopicError unless `missing_ok`."""
        raise NotImplementedError
