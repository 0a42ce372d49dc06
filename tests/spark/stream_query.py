"""Spark's part in a stream: a log of offsets and the reader that goes on from it, with no JVM."""

from __future__ import annotations

import json
import pickle

from tidelog import Client
from tidelog.spark.options import StreamOptions
from tidelog.spark.schema import schema_of
from tidelog.spark.stream import TidelogStreamReader


class Query:
    """A checkpoint and the reader that goes on from it."""

    def __init__(self, url: str, topic: str | None, **options: str) -> None:
        self.given = {"url": url, "maxWaitMs": "0", **({} if topic is None else {"subscribe": topic}), **options}
        self.log: list[str] = []
        self.restart()

    def restart(self, **options: str) -> None:
        """Go on as a new process does, perhaps with other options."""
        self.given |= options
        parsed = StreamOptions.parse(self.given)
        self.reader = TidelogStreamReader(parsed, schema_of(None, ["offset", "partition"]))

    def step(self) -> list[tuple[int, int]] | None:
        """Log the next batch and return its rows as (partition, offset); None if there is no batch."""
        start = json.loads(self.log[-1]) if self.log else self.reader.initialOffset()
        end = json.dumps(self.reader.latestOffset(start, self.reader.getDefaultReadLimit()))
        if end == json.dumps(start):
            return None
        self.log.append(end)
        return self.again()

    def again(self) -> list[tuple[int, int]]:
        """Return the rows of the last batch that was logged."""
        start = json.loads(self.log[-2]) if len(self.log) > 1 else self.reader.initialOffset()
        reader = pickle.loads(pickle.dumps(self.reader.partitions(start, json.loads(self.log[-1]))))
        rows: list[tuple[int, int]] = []
        for partition in reader:
            for batch in self.reader.read(partition):
                offsets, places = batch.column(0).to_pylist(), batch.column(1).to_pylist()
                rows += [(int(place or 0), int(offset or 0)) for place, offset in zip(places, offsets, strict=True)]
        return rows


def fill(client: Client, topic: str, count: int, partition: int = 0) -> None:
    """Send some records."""
    client.produce_many(topic, [b"%d" % at for at in range(count)], partition=partition)
