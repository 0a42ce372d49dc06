"""Facts: their bytes, and what an unknown one does."""

from __future__ import annotations

import pytest

from tidelog.broker.meta.facts import (
    FACTS,
    Begin,
    DamageRemoved,
    DeliveryDegraded,
    DeliveryMade,
    EpochRaised,
    Fact,
    GroupAltered,
    GroupCreated,
    GroupDeleted,
    GroupReset,
    GroupStarted,
    GroupTopicsJoined,
    PartitionsMade,
    ProducerIdsReserved,
    ProducerNamed,
    RangeQuarantined,
    TopicAltered,
    TopicCreated,
    TopicDeleted,
    TopicRemoved,
    decode_fact,
    encode_fact,
)
from tidelog.protocol.errors import UnsupportedError
from tidelog.protocol.messages import BackoffInfo, GroupSettings, GroupStart

EXAMPLES: list[tuple[Fact, str]] = [
    (EpochRaised(7), "01019107"),
    (
        TopicCreated(3, "default/orders", 2, 6, {"retention": None}, 5),
        "02019603ae64656661756c742f6f726465727302" + "0681a9726574656e74696f6ec005",
    ),
    (TopicAltered(3, 8, {"durability": "written"}), "030193030881aa6475726162696c697479a77772697474656e"),
    (TopicDeleted(3), "04019103"),
    (TopicRemoved(3), "05019103"),
    (PartitionsMade(3, 6), "0601920306"),
    (ProducerIdsReserved(8192), "070191cd2000"),
    (ProducerNamed("ingest", 1 << 62 | 1, 4), "080193a6696e67657374cf400000000000000104"),
    (RangeQuarantined(3 << 32 | 1, 10, 20, 7), "090194cf00000003000000010a1407"),
    (DamageRemoved(3 << 32 | 1, 20), "0a0192cf000000030000000114"),
    (
        GroupCreated(
            1,
            "default/g",
            "queue",
            GroupStart("time", 7),
            GroupSettings(30_000_000, 4, BackoffInfo("linear", 1, 2, 3000, 5), 6, False, "a/b"),
            {3: {0: Begin(9, 2, 7)}},
            5,
        ),
        "0b019701a964656661756c742f67a5717565756592a474696d650796ce01c9c38004"
        + "95a66c696e6561720102cd0bb80506c2a3612f6281038100940902070105",
    ),
    (GroupTopicsJoined(1, {3: {0: Begin(9, 2)}}), "0c019201810381009409020001"),
    (GroupAltered(1, GroupSettings()), "0d01920196c0c0c0c0c0c0"),
    (GroupReset(1, 2, {3: {0: Begin(0, 2, generation=2)}}), "0e01930102810381009400020002"),
    (GroupDeleted(1), "0f019101"),
    (GroupStarted(1, 3, 0, Begin(10, 2)), "100194010300940a020001"),
    (DeliveryMade(3, 2), "1101920302"),
    (DeliveryDegraded(3, 2, {1: 4}), "120193030281" + "0104"),
]


@pytest.mark.parametrize(("fact", "stored"), EXAMPLES, ids=lambda value: type(value).__name__)
def test_the_bytes_of_every_fact_are_settled(fact: Fact, stored: str) -> None:
    """A fact is kind, version and a MessagePack array, byte for byte, and reads back as it was."""
    assert encode_fact(fact).hex() == stored
    assert decode_fact(bytes.fromhex(stored)) == fact


def test_every_kind_has_an_example() -> None:
    """No kind of fact is left out above, and no two share a number."""
    assert sorted(FACTS) == sorted({fact.KIND for fact, _stored in EXAMPLES})
    assert len(FACTS) == len(Fact.__subclasses__())


@pytest.mark.parametrize(
    "value", [b"", b"\x01", b"\x00\x01\x90", b"\x63\x01\x90", b"\x01\x02\x91\x07", b"\x01\x01\xc1"]
)
def test_an_unknown_fact_refuses_the_open(value: bytes) -> None:
    """What a later broker recorded, or nobody could have, is never left out in silence."""
    with pytest.raises(UnsupportedError):
        decode_fact(value)


def test_a_group_that_was_recorded_before_there_were_dead_letters_is_read() -> None:
    """What its settings did not have follows the default."""
    assert decode_fact(bytes.fromhex("0d01920195c0c0c0c0c0")) == GroupAltered(1, GroupSettings())
