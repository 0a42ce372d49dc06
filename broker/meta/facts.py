"""Facts: what is recorded in the broker's own log, one fact a record.

    value:  u8 kind | u8 version | body: MessagePack array of the fact's fields

A fact's body evolves by trailing fields with defaults; a change that an older broker must not overlook gets a new
version. An unknown kind or version refuses the open: what it said cannot be left out of the state.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from ...protocol.errors import UnsupportedError
from ...protocol.messages import GroupSettings, GroupStart
from ...protocol.topic_settings import SettingValue


class Fact(msgspec.Struct, array_like=True, gc=False):
    """Base of all facts; nobody changes one after making it."""

    KIND: ClassVar[int] = 0
    VERSION: ClassVar[int] = 1


class EpochRaised(Fact):
    """The broker began a new epoch: a start, or a fenced log reopened."""

    KIND = 1
    epoch: int


class TopicCreated(Fact):
    """A topic exists from here on; `count` is how often its name was made, this time included."""

    KIND = 2
    topic_id: int
    name: str
    count: int
    partitions: int
    settings: dict[str, SettingValue]
    created_us: int


class TopicAltered(Fact):
    """A topic has these settings (all that are given) and this many partitions from here on."""

    KIND = 3
    topic_id: int
    partitions: int
    settings: dict[str, SettingValue]


class TopicDeleted(Fact):
    """The tombstone: a topic is gone, its folders may be removed."""

    KIND = 4
    topic_id: int


class TopicRemoved(Fact):
    """A deleted topic's folders are gone too; its tombstone is needed no more."""

    KIND = 5
    topic_id: int


class PartitionsMade(Fact):
    """The folders of the first `partitions` partitions are on disk: one that is missing later was lost."""

    KIND = 6
    topic_id: int
    partitions: int


class ProducerIdsReserved(Fact):
    """Producer ids below `upto` may have been given out."""

    KIND = 7
    upto: int


class ProducerNamed(Fact):
    """A producer name has this id, and this epoch is its latest session."""

    KIND = 8
    name: str
    producer_id: int
    epoch: int


class RangeQuarantined(Fact):
    """Offsets `start` to `end` (exclusive) of a log were found damaged in this broker epoch."""

    KIND = 9
    log_id: int
    start: int
    end: int
    epoch: int


class DamageRemoved(Fact):
    """Nothing below `before` is left of a log: what was found damaged there is gone."""

    KIND = 10
    log_id: int
    before: int


class Begin(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Where a group begins in a partition: nothing below `offset` concerns it.

    Said in broker epoch `epoch`: where the partition lost records since, the group begins where that epoch ended.
    `not_before_us`: nor does what was appended before this time (0: all do); it is a start at a time that no record
    had reached. `generation`: what is recorded of deliveries under a lower one is void.
    """

    offset: int
    epoch: int
    not_before_us: int = 0
    generation: int = 1


Begins = dict[int, dict[int, Begin]]
"""Topic id -> partition -> where a group begins. A partition that is not there is younger, and begun at 0."""


class GroupCreated(Fact):
    """A group exists from here on. `start` is the rule that gave the begins, and gives those of topics that join."""

    KIND = 11
    group_id: int
    name: str
    group_kind: str
    start: GroupStart
    settings: GroupSettings
    begins: Begins
    created_us: int


class GroupTopicsJoined(Fact):
    """A group reads these topics too."""

    KIND = 12
    group_id: int
    begins: Begins


class GroupAltered(Fact):
    """A group has these settings (all that are given) from here on."""

    KIND = 13
    group_id: int
    settings: GroupSettings


class GroupReset(Fact):
    """A group goes on from other offsets: its members are fenced, what it knew of these partitions is void."""

    KIND = 14
    group_id: int
    generation: int
    begins: Begins


class GroupDeleted(Fact):
    """A group is gone; its id is never used again."""

    KIND = 15
    group_id: int


class GroupStarted(Fact):
    """A record has reached the time at which a group begins in a partition: it begins at this offset."""

    KIND = 16
    group_id: int
    topic_id: int
    partition: int
    begin: Begin


class DeliveryMade(Fact):
    """A partition has a delivery log: one that is missing later was lost."""

    KIND = 17
    topic_id: int
    partition: int


class DeliveryDegraded(Fact):
    """Not all that was recorded of these groups in a partition is left, each in this generation of it."""

    KIND = 18
    topic_id: int
    partition: int
    groups: dict[int, int]


FACTS: dict[int, type[Fact]] = {kind.KIND: kind for kind in Fact.__subclasses__()}
"""Every kind of fact by its number; a number is never used twice."""

_encoder = msgspec.msgpack.Encoder()
_decoders = {number: msgspec.msgpack.Decoder(kind) for number, kind in FACTS.items()}


def encode_fact(fact: Fact) -> bytes:
    """Return the value of the record that holds a fact."""
    return bytes((fact.KIND, fact.VERSION)) + _encoder.encode(fact)


def decode_fact(value: bytes) -> Fact:
    """Read a record's value. Raises UnsupportedError for a kind or version this broker does not know."""
    kind, version = (value[0], value[1]) if len(value) >= 2 else (0, 0)
    known = FACTS.get(kind)
    if known is None or version != known.VERSION:
        raise UnsupportedError(
            f"expected facts of kinds 1 to {max(FACTS)}, version 1, found kind {kind}, version {version}:"
            " a later broker wrote this data directory",
            kind=kind,
            version=version,
        )
    try:
        return _decoders[kind].decode(value[2:])
    except msgspec.DecodeError as error:
        raise UnsupportedError(f"expected a {known.__name__}, found a body that does not decode: {error}") from None
