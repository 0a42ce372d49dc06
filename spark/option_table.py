"""Every option of the data source: its name as documented, and what it is for."""

from __future__ import annotations

from enum import Flag, auto
from typing import NamedTuple

from .errors import OptionError
from .suggestion import suggestion


class Use(Flag):
    """What an option is for."""

    BATCH_READ = auto()
    STREAM_READ = auto()
    WRITE = auto()

    @property
    def shown(self) -> str:
        """Return it in words."""
        if self is Use.WRITE:
            return "writing"
        return {Use.BATCH_READ: "batch reads", Use.STREAM_READ: "streams"}.get(self, "reading")


READ = Use.BATCH_READ | Use.STREAM_READ
ALL = READ | Use.WRITE


class Option(NamedTuple):
    """One option."""

    name: str
    use: Use
    alias_of: str = ""


OPTIONS = (
    Option("url", ALL),
    Option("bootstrap.servers", ALL, "url"),
    Option("kafka.bootstrap.servers", ALL, "url"),
    Option("subscribe", READ),
    Option("subscribePattern", READ),
    Option("assign", READ),
    Option("startingOffsets", READ),
    Option("startingTimestamp", READ),
    Option("startingOffsetsByTimestamp", READ),
    Option("startingOffsetsByTimestampStrategy", READ),
    Option("endingOffsets", Use.BATCH_READ),
    Option("endingTimestamp", Use.BATCH_READ),
    Option("endingOffsetsByTimestamp", Use.BATCH_READ),
    Option("by", READ),
    Option("columns", READ),
    Option("includeHeaders", READ),
    Option("includeArchived", Use.BATCH_READ),
    Option("minPartitions", READ),
    Option("maxRecordsPerPartition", READ),
    Option("maxBytesPerPartition", READ),
    Option("batchRows", READ),
    Option("batchBytes", READ),
    Option("failOnDataLoss", READ),
    Option("fetchTimeoutMs", READ),
    Option("segmentDir", READ),
    Option("pushdown", Use.BATCH_READ),
    Option("table", Use.BATCH_READ),
    Option("maxOffsetsPerTrigger", Use.STREAM_READ),
    Option("maxBytesPerTrigger", Use.STREAM_READ),
    Option("minOffsetsPerTrigger", Use.STREAM_READ),
    Option("maxTriggerDelay", Use.STREAM_READ),
    Option("maxWaitMs", Use.STREAM_READ),
    Option("groupId", Use.STREAM_READ),
    Option("topic", Use.WRITE),
    Option("partitioner", Use.WRITE),
    Option("deliveryGuarantee", Use.WRITE),
    Option("sinkId", Use.WRITE),
    Option("transactionTimeoutMs", Use.WRITE),
    Option("compression", Use.WRITE),
    Option("durability", Use.WRITE),
    Option("lingerRows", Use.WRITE),
    Option("deliveryTimeoutMs", Use.WRITE),
)

PATH = "path"
"""What Spark makes of the argument of load(), save() and start(): the topic."""

OF_SPARK = frozenset({"checkpointlocation", "queryname"})
"""What Spark keeps among the options of a stream that is written, for itself."""

_BY_LOWER_NAME = {option.name.lower(): option for option in OPTIONS}


def check_names(given: dict[str, str], use: Use) -> None:
    """Raise OptionError for a name that is not known, with the nearest, or that means nothing to this use."""
    for name in given:
        if name == PATH or (name in OF_SPARK and use is Use.WRITE):
            continue
        option = _BY_LOWER_NAME.get(name)
        if option is None:
            fitting = {lower: each.name for lower, each in _BY_LOWER_NAME.items() if use in each.use}
            raise OptionError(f"unknown option {name!r}{suggestion(name, fitting)}")
        if use not in option.use:
            raise OptionError(f"option {option.name} is for {option.use.shown}, found it when {_doing(use)}")


def _doing(use: Use) -> str:
    return {Use.BATCH_READ: "reading a batch", Use.STREAM_READ: "reading a stream"}.get(use, "writing")
