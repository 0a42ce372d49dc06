"""The options of reads, streams and writes, parsed once on the driver into plain values that pickle.

Nothing here does I/O, and nothing after it looks at a text again. Options travel to the executors with each task.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ..client.core.url import target
from .bounds import Bounds, Edge, parse_assign, parse_ending, parse_starting
from .errors import OptionError
from .given import Given
from .option_table import PATH, Use, check_names
from .places import Place
from .schema import DEFAULT_COLUMNS, HEADERS, TOPICS_TABLE, check_columns

BATCH_ROWS = 65_536
BATCH_BYTES = 16 << 20
"""What stored batches are joined to: the reader in the JVM has a cost for each, and its memory holds a few of them."""

MAX_BATCH_BYTES = 1 << 30
"""Arrow counts the bytes of a column in 31 bits."""

FETCH_TIMEOUT_S = 60.0
"""A restart of a broker with much to recover takes less; Spark tries a failed task again after it."""

MAX_WAIT_S = 0.2
"""How long a stream waits in the broker for something new: idle queries ask five times a second."""

LONGEST_WAIT_S = 60.0
"""What a broker takes; a new topic that a pattern matches is noticed only after such a wait."""

LINGER_ROWS = 10_000
DELIVERY_TIMEOUT_S = 120.0

OF_TABLES = {"url", "bootstrap.servers", "kafka.bootstrap.servers", "table"}
"""All that a read of a table takes."""

NOT_YET = "is not available in this version: tasks that Spark repeats may write rows twice; use at_least_once"


@dataclass(frozen=True, slots=True)
class Selection:
    """Which partitions are read: topics by name, by a pattern for whole names, or partitions one by one."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    places: tuple[Place, ...] = ()

    @classmethod
    def parse(cls, given: Given) -> Selection:
        """Read subscribe, subscribePattern or assign. Raises OptionError unless it is exactly one."""
        names = ("subscribe", "subscribePattern", "assign", PATH)
        found = [name for name in names if given.text(name) is not None]
        if len(found) != 1:
            shown = ["load()" if name == PATH else name for name in found]
            raise OptionError(
                f"expected one of subscribe, subscribePattern and assign, found {' and '.join(shown) or 'none'}"
            )
        text = given.text(found[0]) or ""
        if found[0] == "assign":
            return cls(places=parse_assign(text))
        if found[0] == "subscribePattern":
            try:
                re.compile(text)
            except re.error as error:
                raise OptionError(f"subscribePattern: expected a regular expression, found {text!r}: {error}") from None
            return cls(pattern=text)
        return cls(topics=given.names(found[0]))


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Of a batch read; a stream has them too."""

    url: str
    selection: Selection
    starting: Bounds
    ending: Bounds
    by_timestamp: bool
    """Whether bounds by time go by the producers' timestamps, and not by the time of appending."""
    columns: tuple[str, ...]
    """Those that were named; empty where none was."""
    includes_headers: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    max_bytes_per_partition: int | None
    batch_rows: int
    batch_bytes: int
    fails_on_data_loss: bool
    fetch_timeout_s: float
    segment_dir: str | None
    pushes_down: bool
    """Whether filters are taken in a session that has not switched that on."""
    table: str | None = None
    includes_archived: bool = False
    """Whether what retention removed is read from the broker's archive."""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ReadOptions:
        """Read the options of a batch read. Raises OptionError."""
        return cls.of(Given(options), Use.BATCH_READ)

    @classmethod
    def of(cls, given: Given, use: Use) -> ReadOptions:
        """Read the options of a read. Raises OptionError."""
        check_names(given.options, use)
        table = cls.table_of(given.options)
        cls.columns_of(given.options)
        if table and (others := given.options.keys() - OF_TABLES):
            raise OptionError(f"table: expected only url and table, found {', '.join(sorted(others))} too")
        is_batch = use is Use.BATCH_READ
        batch_bytes = given.size("batchBytes", BATCH_BYTES) or BATCH_BYTES
        if batch_bytes > MAX_BATCH_BYTES:
            raise OptionError(f"batchBytes: expected at most {MAX_BATCH_BYTES} bytes, found {batch_bytes}")
        return cls(
            url=url_of(given),
            selection=Selection() if table else Selection.parse(given),
            starting=parse_starting(given.options, Edge.EARLIEST if is_batch else Edge.LATEST, is_batch=is_batch),
            ending=parse_ending(given.options),
            by_timestamp=given.word("by", ("append_time", "timestamp")) == "timestamp",
            columns=given.names("columns"),
            includes_headers=given.flag("includeHeaders", False),
            min_partitions=given.count("minPartitions", None),
            max_records_per_partition=given.count("maxRecordsPerPartition", None),
            max_bytes_per_partition=given.size("maxBytesPerPartition", None),
            batch_rows=given.count("batchRows", BATCH_ROWS) or BATCH_ROWS,
            batch_bytes=batch_bytes,
            fails_on_data_loss=given.flag("failOnDataLoss", True),
            fetch_timeout_s=given.seconds("fetchTimeoutMs", FETCH_TIMEOUT_S) or FETCH_TIMEOUT_S,
            segment_dir=given.text("segmentDir"),
            pushes_down=given.flag("pushdown", False),
            table=table,
            includes_archived=given.flag("includeArchived", False),
        )

    @staticmethod
    def table_of(options: Mapping[str, str]) -> str | None:
        """Return which of the broker's tables is read; None for the records of topics."""
        found = Given(options).text("table")
        if found not in (None, TOPICS_TABLE):
            raise OptionError(f"table: expected {TOPICS_TABLE}, found {found!r}")
        return found

    @staticmethod
    def columns_of(options: Mapping[str, str]) -> tuple[str, ...]:
        """Return the columns that are read, in their order. Raises OptionError that names the nearest."""
        given = Given(options)
        columns, has_headers = given.names("columns", may_repeat=False), given.flag("includeHeaders", False)
        check_columns(columns)
        if not columns:
            return (*DEFAULT_COLUMNS, HEADERS) if has_headers else DEFAULT_COLUMNS
        return (*columns, HEADERS) if has_headers and HEADERS not in columns else columns


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """Of a streaming read."""

    read: ReadOptions
    max_offsets_per_trigger: int | None
    max_bytes_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_s: float
    max_wait_s: float

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> StreamOptions:
        """Read the options of a stream. Raises OptionError."""
        given = Given(options)
        read = ReadOptions.of(given, Use.STREAM_READ)
        most, least = given.count("maxOffsetsPerTrigger", None), given.count("minOffsetsPerTrigger", None)
        most_bytes = given.size("maxBytesPerTrigger", None)
        if most is not None and most_bytes is not None:
            raise OptionError("expected maxOffsetsPerTrigger or maxBytesPerTrigger, found both")
        if most is not None and least is not None and least > most:
            raise OptionError(f"minOffsetsPerTrigger: expected at most maxOffsetsPerTrigger, {most}, found {least}")
        max_wait_s = given.seconds("maxWaitMs", MAX_WAIT_S, may_be_zero=True) or 0.0
        if max_wait_s > LONGEST_WAIT_S:
            raise OptionError(f"maxWaitMs: expected at most {LONGEST_WAIT_S * 1000:.0f}, found {max_wait_s * 1000:.0f}")
        if given.text("groupId") is not None:
            raise OptionError(
                "groupId: a stream's progress is in Spark's checkpoint only in this version, leave it out"
            )
        return cls(
            read=read,
            max_offsets_per_trigger=most,
            max_bytes_per_trigger=most_bytes,
            min_offsets_per_trigger=least,
            max_trigger_delay_s=given.seconds("maxTriggerDelay", 900.0) or 900.0,
            max_wait_s=max_wait_s,
        )


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Of a batch or a streaming write."""

    url: str
    topic: str | None
    """For all rows; without it each row names its topic in a column."""
    partitioner: str
    compression: str | None
    durability: str | None
    linger_rows: int
    delivery_timeout_s: float

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> WriteOptions:
        """Read the options of a write. Raises OptionError."""
        given = Given(options)
        check_names(given.options, Use.WRITE)
        topic, path = given.text("topic"), given.text(PATH)
        if topic is not None and path is not None and topic != path:
            raise OptionError(f"expected one topic, found topic {topic!r} and save() {path!r}")
        if given.word("deliveryGuarantee", ("at_least_once", "exactly_once")) == "exactly_once":
            raise OptionError(f"deliveryGuarantee: exactly_once {NOT_YET}")
        if given.text("transactionTimeoutMs") is not None:
            raise OptionError("transactionTimeoutMs: is for deliveryGuarantee=exactly_once, which " + NOT_YET)
        if given.text("sinkId") is not None:
            raise OptionError("sinkId: is for deliveryGuarantee=exactly_once, which " + NOT_YET)
        compression = given.word("compression", ("none", "zstd"))
        durability = given.word("durability", ("topic", "received", "written", "synced"))
        return cls(
            url=url_of(given),
            topic=topic or path,
            partitioner=given.word("partitioner", ("key", "source")),
            compression=None if compression == "none" else compression,
            durability=None if durability == "topic" else durability,
            linger_rows=given.count("lingerRows", LINGER_ROWS) or LINGER_ROWS,
            delivery_timeout_s=given.seconds("deliveryTimeoutMs", DELIVERY_TIMEOUT_S) or DELIVERY_TIMEOUT_S,
        )


def url_of(given: Given) -> str:
    """Return where the broker is. Raises OptionError for none, for two that differ, and for what is no address."""
    names = ("url", "bootstrap.servers", "kafka.bootstrap.servers")
    found = {name: text for name in names if (text := given.text(name)) is not None}
    if len(set(found.values())) > 1:
        raise OptionError(f"expected one broker, found {' and '.join(f'{name}={url}' for name, url in found.items())}")
    if not found:
        raise OptionError('expected the broker as option("url", "tidelog://host:9440"), found none')
    name, url = next(iter(found.items()))
    try:
        target(url, from_environment=None)
    except ValueError as error:
        raise OptionError(f"{name}: {error}") from None
    if not _hosts_of(url):  # a client takes this for its own machine, which executors do not share
        raise OptionError(f"{name}: expected a host, as in tidelog://host:9440, found {url!r}")
    return url


def _hosts_of(url: str) -> str:
    return url.rpartition("://")[2].partition("/")[0].rpartition("@")[2].strip()
