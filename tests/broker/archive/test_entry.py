"""The entry of an archived segment: its form on disk, and that nothing else is taken for one."""

from __future__ import annotations

import pytest

from tidelog.broker.archive.entry import Entry, Place, base_of, decode_entry, encode_entry, is_entry, place_of
from tidelog.protocol.errors import CorruptError

PLACE = Place("00112233445566aa", "shop/orders", 7, 2)

ENTRY = Entry(
    broker="00112233445566aa",
    topic="shop/orders",
    topic_id=7,
    partition=2,
    base_offset=42,
    end_offset=45,
    first_append_us=1_700_000_000_000_000,
    last_append_us=1_700_000_000_000_001,
    min_timestamp_us=-5,
    max_timestamp_us=6,
    records=3,
    batches=1,
    bytes=4_400,
    checksum="xxh3_128:0123456789abcdef0123456789abcdef",
    seed=99,
    object="00112233445566aa/shop/orders/7/2/00000000000000000042-0123456789abcdef0123456789abcdef.log",
    damaged=[(43, 44)],
)

WRITTEN = (
    b'{"format":1,"broker":"00112233445566aa","topic":"shop/orders","topic_id":7,"partition":2,"base_offset":42,'
    b'"end_offset":45,"first_append_us":1700000000000000,"last_append_us":1700000000000001,"min_timestamp_us":-5,'
    b'"max_timestamp_us":6,"records":3,"batches":1,"bytes":4400,"checksum":"xxh3_128:0123456789abcdef0123456789abcdef",'
    b'"seed":99,"object":"00112233445566aa/shop/orders/7/2/00000000000000000042-0123456789abcdef0123456789abcdef.log",'
    b'"damaged":[[43,44]],"entry_checksum":"xxh3_64:dbbd623c778ae5cd"}'
)


def test_an_entry_is_written_as_ever() -> None:
    """These are the bytes of an entry of format 1; what earlier versions wrote must stay readable."""
    data = encode_entry(ENTRY)
    assert data == WRITTEN
    assert encode_entry(decode_entry(data, "e")) == data


def test_names_are_those_of_the_layout() -> None:
    """An entry and its object lie in the folder of their broker, topic, id and partition, by base offset."""
    folder = "00112233445566aa/shop/orders/7/2"
    assert PLACE.entry_name(42) == f"{folder}/00000000000000000042.json"
    assert PLACE.segment_name(42, ENTRY.checksum) == ENTRY.object
    assert place_of(ENTRY.object) == PLACE
    assert (base_of(ENTRY.object), base_of(PLACE.entry_name(42))) == (42, 42)
    assert (is_entry(PLACE.entry_name(42)), is_entry(ENTRY.object)) == (True, False)
    assert [place_of(name) for name in ("x", "a/b/c/d/e/f", "a/b/c/1/2/3/4")] == [None, None, None]
    assert [base_of(name) for name in ("a/readme.json", "a/1.json")] == [None, None]


def test_every_changed_byte_of_an_entry_is_noticed() -> None:
    """Whatever bit of an entry flips, it is refused, and never read as another range."""
    data = encode_entry(ENTRY)
    for position in range(len(data)):
        for bit in (1, 16):
            changed = bytearray(data)
            changed[position] ^= bit
            try:
                found = decode_entry(bytes(changed), "e")
            except CorruptError:
                continue
            assert found == decode_entry(data, "e"), position


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "found bytes that are none"),
        (b"{}", "missing required field"),
        (b"\xff\xfe", "found bytes that are none"),
        (WRITTEN.replace(b'"format":1', b'"format":2'), "expected an entry of format 1 in name, found format 2"),
        (WRITTEN.replace(b"dbbd623c778ae5cd", b"0" * 16), "expected checksum xxh3_64:0000000000000000 of name"),
    ],
)
def test_what_is_no_entry_is_refused(data: bytes, message: str) -> None:
    """Other bytes, another format and a wrong checksum are each said as such, with the name."""
    with pytest.raises(CorruptError, match=message):
        decode_entry(data, "name")
