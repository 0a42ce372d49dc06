"""Messages with a retry policy of their own: what the `retry` column of their batch says, over the group's policy.

What is leased is looked up when it is leased, and again at a start; it is kept until it is leased no more, since the
column may lie cold when a lease ends. Of the column no more is read than lies between the first and the last of a
lease: to read all of it cost 18 ms for one message of a batch of 20,000.

    block 3: {16 bytes of the column: {3072, 3074}, others: {3073}}     blocks of 1,024 offsets, each offset once
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache

import numpy as np

from ...protocol.batch import HEADER_BYTES, Attributes, BatchHeader, routing_place
from ...protocol.columns import RETRY
from ...protocol.errors import CorruptError, InvalidBatchError, TidelogError, UnsupportedError
from ...protocol.retries import NO_JITTER, NO_RETRY, BackoffCode, check_retries
from ..delivery.acquiring import Choice
from ..delivery.backoff import Backoff, BackoffKind, RetryPolicy
from ..delivery.offset_set import OffsetSet, array_of, below, by_block, set_of, set_of_array
from ..errors import storage_error
from ..storage.log import Log
from .leased_batches import LeasedBatch, find_batches

MILLISECOND_US = 1_000

ALL_BYTES = 1 << 62

FEW_WORDS = 8
"""Up to so many different ones of a batch are taken out by arrays, more one by one."""

MAX_MERGED = 1_024
"""Policies that are remembered as merged with the group's."""

MAX_FAILURES = 1_000
"""Lookups that fail before a start reads no more of them: each may wait for a disk that is broken."""

_BLOCK_BITS = 10


class OwnRetries:
    """Of what a group has leased in a partition: which messages say something, and what, as 16 bytes of the column."""

    def __init__(self) -> None:
        self._blocks: dict[int, dict[bytes, OffsetSet]] = {}
        self._merged: dict[tuple[bytes, RetryPolicy], RetryPolicy] = {}
        self.offsets = OffsetSet()
        """Those that say something."""

    def __len__(self) -> int:
        return len(self.offsets)

    def __repr__(self) -> str:
        return f"<OwnRetries of {len(self)} messages in {len(self._blocks)} blocks>"

    def note(self, batch: LeasedBatch, offsets: OffsetSet) -> None:
        """Read what those messages of a batch say that are among these."""
        for word, said in read_retries(batch, offsets):
            self.offsets |= said
            for block, part in by_block(said, _BLOCK_BITS):
                words = self._blocks.setdefault(block, {})
                words[word] = words[word] | part if word in words else part

    def load(self, log: Log, leased: OffsetSet) -> None:
        """Read what these messages say; may wait for the disk. What cannot be read says nothing, the others are read
        all the same."""
        failures = 0
        while leased and failures < MAX_FAILURES:
            try:
                found = find_batches(
                    log, Choice(leased), max_bytes=ALL_BYTES, upto=log.end_offset, may_wait=True
                ).batches
            except TidelogError:
                failures += 1
                leased = leased - below(leased, _end_of_damage(log, leased.min()))
                continue
            if not found:
                return
            for batch in found:
                if batch.has_retries:
                    with suppress(TidelogError):
                        self.note(batch, leased)
            leased = leased - below(leased, found[-1].end_offset)

    def drop(self, offsets: OffsetSet) -> None:
        """Keep nothing of these: they are not leased any more."""
        if not self.offsets or self.offsets.isdisjoint(offsets):
            return
        for block, part in by_block(self.offsets & offsets, _BLOCK_BITS):
            left = {word: rest for word, said in self._blocks[block].items() if (rest := said - part)}
            if left:
                self._blocks[block] = left
            else:
                del self._blocks[block]
        self.offsets -= offsets

    def keep(self, offsets: OffsetSet) -> None:
        """Keep nothing of others than these."""
        self.drop(self.offsets - offsets)

    def parts(self, offsets: OffsetSet, group: RetryPolicy) -> list[tuple[OffsetSet, RetryPolicy]]:
        """Return the policies of some messages, as parts that cover them."""
        own = self.offsets & offsets if self.offsets else self.offsets
        if not own:
            return [(offsets, group)]
        found: dict[bytes, OffsetSet] = {}
        for block, part in by_block(own, _BLOCK_BITS):
            for word, said in self._blocks[block].items():
                if inside := said & part:
                    found[word] = found[word] | inside if word in found else inside
        parts = [(said, self._merge(word, group)) for word, said in found.items()]
        plain = offsets - own
        return [(plain, group), *parts] if plain else parts

    def _merge(self, word: bytes, group: RetryPolicy) -> RetryPolicy:
        key = (word, group)
        merged = self._merged.get(key)
        if merged is None:
            if len(self._merged) == MAX_MERGED:
                self._merged.clear()
            merged = self._merged[key] = merge(word, group)
        return merged


def _end_of_damage(log: Log, offset: int) -> int:
    """Return behind what one goes on where a message cannot be read: behind the damage, else behind the message."""
    return max((gone.end for gone in log.damaged if gone.start <= offset < gone.end), default=offset + 1)


def read_retries(batch: LeasedBatch, offsets: OffsetSet) -> Iterator[tuple[bytes, OffsetSet]]:
    """Yield what messages of a batch say, with those of these that say it; those that say nothing are left out.

    Raises StorageError, and CorruptError for what no group could act on: the broker takes in no such batch.
    """
    try:
        yield from _read_retries(batch, offsets)
    except OSError as error:
        raise storage_error(error, "reading retry policies of messages") from None
    except (InvalidBatchError, UnsupportedError) as error:
        raise CorruptError(f"expected retry policies in the batch at {batch.base_offset}: {error.message}") from None


def _read_retries(batch: LeasedBatch, offsets: OffsetSet) -> Iterator[tuple[bytes, OffsetSet]]:
    mine = set_of(((batch.base_offset, batch.end_offset),)) & offsets
    if not mine:
        return
    first, last = mine.min(), mine.max()
    header = BatchHeader.read(batch.file.read_at(batch.position, HEADER_BYTES))
    place = batch.position + routing_place(header, Attributes.RETRY)
    size = RETRY.itemsize
    rows = batch.file.read_at(place + size * (first - batch.base_offset), size * (last - first + 1))
    if len(rows) != size * (last - first + 1):
        raise InvalidBatchError(f"expected {size * (last - first + 1)} bytes of the column, found {len(rows)}")
    words = np.frombuffer(rows, np.uint64).reshape(-1, 2)
    numbers = array_of(mine)
    if len(numbers) < len(words):
        words = words[numbers - first]
    for _ in range(FEW_WORDS):
        if not len(words):
            return
        is_same = (words == words[0]).all(axis=1)
        word = words[0].tobytes()
        if word != NO_RETRY:
            _check(word)
            yield word, mine if np.count_nonzero(is_same) == len(mine) else set_of_array(numbers[is_same])
        words, numbers = words[~is_same], numbers[~is_same]
    left = words.tobytes()
    check_retries(np.frombuffer(left, RETRY))
    yield from _one_by_one(left, numbers.tolist())


@lru_cache(MAX_MERGED)
def _check(word: bytes) -> None:
    check_retries(np.frombuffer(word, RETRY))


def _one_by_one(words: bytes, numbers: list[int]) -> Iterator[tuple[bytes, OffsetSet]]:
    """Yield the same where nearly every message says something else."""
    found: dict[bytes, list[int]] = {}
    for place, number in enumerate(numbers):
        found.setdefault(words[place * RETRY.itemsize : (place + 1) * RETRY.itemsize], []).append(number)
    found.pop(NO_RETRY, None)
    for word, said in found.items():
        yield word, OffsetSet(said)


def merge(given: bytes, group: RetryPolicy) -> RetryPolicy:
    """Return what a message says, with the group's word where it says nothing."""
    (row,) = np.frombuffer(given, RETRY)
    backoff = group.backoff
    if row["backoff_kind"]:
        jitter = int(row["jitter_percent"])
        backoff = Backoff(
            BackoffKind(BackoffCode(int(row["backoff_kind"])).word),
            int(row["initial_ms"]) * MILLISECOND_US or backoff.initial_us,
            int(row["max_ms"]) * MILLISECOND_US or backoff.max_us,
            int(row["multiplier_thousandths"]) / 1_000 or backoff.multiplier,
            backoff.jitter if not jitter else 0.0 if jitter == NO_JITTER else jitter / 100,
        )
    return RetryPolicy(int(row["max_attempts"]) or group.max_attempts, backoff)
