# Generated from client/aio/consumer.py by client/generate.py: change that, then run it.
"""A reader of topics that keeps its own position."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from types import TracebackType
from typing import Generic, cast

from ...protocol.errors import InvalidRequestError
from ...protocol.topic_name import full_name
from ..codec import Decoder
from ..core.arguments import check_count
from ..core.bounds import Moment, parse_bound
from ..core.hand import Hand
from ..core.position import Position
from ..core.record import to_partition
from ..core.times import Duration, seconds
from ..message import AnyMessage
from ..message_batch import MessageBatch
from . import runtime
from .reader import Reader
from .resolving import find_ends, seek_all


class Consumer(Generic[AnyMessage]):
    """Iterate it for messages, or `batches()` for columns; one thread iterates, any may call `stop()`.

    It reads over a connection of its own, which comes back by itself when it is lost. All ways of reading share one
    position: a message is handed out once, whichever way it is asked for.
    """

    def __init__(self, reader: Reader, namespace: str, decoder: Decoder[object] | None = None) -> None:
        self._reader = reader
        self._namespace = namespace
        self._decoder = decoder
        self._hand: Hand[AnyMessage] = Hand()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._reader!r}>"

    def __enter__(self) -> Consumer[AnyMessage]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- reading ---------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[AnyMessage]:
        return runtime.flatten(self._next_items)

    def batches(self, idle_timeout: Duration | None = None) -> Iterator[MessageBatch[AnyMessage]]:
        """Iterate over batches until `stop()` or the end, or until none came for `idle_timeout` seconds: `is_finished`
        tells whether it was the end."""
        idle = math.inf if idle_timeout is None else seconds("idle_timeout", idle_timeout)
        return runtime.each(partial(self._next_batch, idle))

    def messages(self, limit: int | None = None, idle_timeout: Duration | None = None) -> Iterator[AnyMessage]:
        """Iterate over at most `limit` messages, ending also when none came for `idle_timeout` seconds."""
        idle = math.inf if idle_timeout is None else seconds("idle_timeout", idle_timeout)
        most = None if limit is None else check_count("limit", limit, 0)
        return runtime.flatten(partial(self._next_items, idle), most)

    def receive(self, max_messages: int = 1, timeout: Duration | None = None) -> list[AnyMessage]:
        """Return 1 to `max_messages` messages, or none when `timeout` passed, `stop()` was called or the end is
        reached."""
        most = check_count("max_messages", max_messages, 1)
        until = math.inf if timeout is None else self._reader.time.now() + seconds("timeout", timeout)
        received: list[AnyMessage] = []
        items = self._items_until(until)
        while items is not None:
            received += islice(items, most - len(received))
            if len(received) == most:
                break
            # Whoever has messages waits for no more, and what would raise is left for the next call.
            items = self._items_at_hand() if received else self._items_until(until)
        return received

    # -- where it is -----------------------------------------------------------------------------------------------

    @property
    def is_finished(self) -> bool:
        """Whether everything up to the `end` is handed out; never without an end, and not before the first read."""
        return self._reader.is_finished and not self._hand

    def lag(self) -> dict[tuple[str, int], int]:
        """Return how many offsets each (topic, partition) is behind its end at this moment, or behind `end=`."""
        hand, ends = self._hand, find_ends(self._reader.inquiry())
        return {
            (place.topic.shown, place.partition): max(0, end - hand.next_offset(place)) for place, end in ends.items()
        }

    def seek(self, topic: str, partition: int, *, offset: int) -> None:
        """Go on at an offset: the next message of that partition is the one sought."""
        point = parse_bound(offset, "offset", 0)
        if not isinstance(point, int):
            raise TypeError(f"offset: expected a whole number, found {offset!r}; see also seek_to_time")
        position = self._position(topic, partition)
        if self._hand.is_of(position):
            self._hand.drop()
        position.seek(point)
        self._reader.notify()

    def seek_to_time(self, moment: datetime | timedelta) -> None:
        """Go on, in every partition, at the first message appended at or after a time."""
        point = parse_bound(moment, "moment", self._reader.time.wall_us())
        if not isinstance(point, Moment):
            raise TypeError(f"moment: expected a datetime or a timedelta, found {moment!r}")
        seek_all(self._reader.inquiry(), point)
        self._hand.drop()
        self._reader.notify()

    def assignment(self) -> list[tuple[str, int]]:
        """Return the (topic, partition) pairs that are read."""
        return [(place.topic.shown, place.partition) for place in self._reader.open()]

    def position(self, topic: str, partition: int) -> int:
        """Return the offset after the last message that was handed out."""
        return self._hand.next_offset(self._position(topic, partition))

    def pause(self, topic: str | None = None, partition: int | None = None) -> None:
        """Hand out nothing of these partitions (all that match) until `resume`. Raises InvalidRequestError if it reads
        none that was named."""
        for position in self._matching(topic, partition):
            position.is_paused = True
            if self._hand and self._hand.is_of(position):
                position.seek(self._hand.next_offset(position))  # what is left of the batch is fetched again
                self._hand.drop()

    def resume(self, topic: str | None = None, partition: int | None = None) -> None:
        """Undo `pause` of these partitions (all that match). Raises what that raises."""
        for position in self._matching(topic, partition):
            position.is_paused = False
        self._reader.notify()

    # -- ending ----------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """End the loop after the message in hand; from any thread or a signal handler, any number of times."""
        self._reader.stop()
        self._hand.keep_back()

    def close(self) -> None:
        """Stop and close the connection."""
        self._reader.close()
        self._hand.drop()

    # -- inside ----------------------------------------------------------------------------------------------------

    def _next_batch(self, idle_s: float) -> MessageBatch[AnyMessage] | None:
        batch, left = self._hand.batch, len(self._hand)
        if batch is not None and left:  # the rest of one that was begun message by message
            self._hand.drop()
            return batch[len(batch) - left :]
        return self._batch_until(self._reader.time.now() + idle_s)

    def _next_items(self, idle_s: float = math.inf) -> Iterator[AnyMessage] | None:
        return self._items_until(self._reader.time.now() + idle_s)

    def _items_until(self, until: float) -> Iterator[AnyMessage] | None:
        if self._hand:
            self._reader.check()
            return self._hand.items
        return self._picked_up(self._batch_until(until))

    def _items_at_hand(self) -> Iterator[AnyMessage] | None:
        return self._hand.items if self._hand else self._picked_up(self._typed(self._reader.batch_at_hand()))

    def _picked_up(self, batch: MessageBatch[AnyMessage] | None) -> Iterator[AnyMessage] | None:
        if batch is None:
            return None
        self._hand = hand = Hand(batch)
        if self._reader.is_stopped:  # since the batch was there: nobody has told this hand
            hand.keep_back()
        return hand.items

    def _batch_until(self, until: float) -> MessageBatch[AnyMessage] | None:
        return self._typed(self._reader.next_batch(until))

    def _typed(self, batch: MessageBatch | None) -> MessageBatch[AnyMessage] | None:
        if batch is not None and self._decoder is not None:
            return cast("MessageBatch[AnyMessage]", batch.with_codec(self._decoder))
        return cast("MessageBatch[AnyMessage] | None", batch)

    def _position(self, topic: str, partition: int) -> Position:
        return (self._matching(full_name(topic, self._namespace), to_partition(partition)))[0]

    def _matching(self, topic: str | None, partition: int | None) -> list[Position]:
        """Return the partitions of a topic (None: all) with a number (None: any). Raises InvalidRequestError if there
        are none, unless nothing was named."""
        name = None if topic is None else full_name(topic, self._namespace)
        number = None if partition is None else to_partition(partition)
        found = (self._reader.open()).matching(name, number)
        if not found and not (topic is None and partition is None):
            asked = f"{'*' if topic is None else topic}/{'*' if number is None else number}"
            raise InvalidRequestError(f"expected a partition that this consumer reads, found {asked}")
        return found
