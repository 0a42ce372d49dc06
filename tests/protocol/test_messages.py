"""Control structs: what travels, and what is refused."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.protocol.api import Api
from tidelog.protocol.errors import (
    InvalidRequestError,
    OffsetOutOfRangeError,
    ProtocolError,
    TidelogError,
    UnsupportedError,
)
from tidelog.protocol.messages import (
    EXCHANGES,
    Fetch,
    FetchPosition,
    Hello,
    Metadata,
    Produce,
    api_of,
    decode_error,
    decode_reply,
    decode_request,
    encode,
    encode_error,
)


def test_a_request_travels_whole():
    """What is encoded decodes to an equal struct."""
    fetch = Fetch([FetchPosition(3, 0, 17, epoch=2)], max_wait_us=500, timestamps=(-5, 7))
    assert decode_request(api_of(fetch), memoryview(encode(fetch))) == fetch


def test_an_older_peer_ignores_later_fields():
    """A struct with more fields than this version knows is read by the fields it knows."""
    later = msgspec.msgpack.encode(["cli", "2.0", None, "a field of a later version"])
    assert decode_request(Api.HELLO, memoryview(later)) == Hello("cli", "2.0")


def test_missing_trailing_fields_take_their_defaults():
    """A struct of an older peer is filled in."""
    assert decode_request(Api.METADATA, memoryview(msgspec.msgpack.encode([["default/a"]]))) == Metadata(["default/a"])


@pytest.mark.parametrize(
    ("api", "fields"),
    [
        (Api.PRODUCE, [0, 0]),
        (Api.PRODUCE, [1, -1]),
        (Api.PRODUCE, [1, 0, 0, -1]),
        (Api.PRODUCE, ["1", 0]),
        (Api.FETCH, [[[1, 0, -1]]]),
        (Api.FETCH, [[[1, 0, 1 << 62]]]),
        (Api.HELLO, ["x" * 257, "1"]),
        (Api.HELLO, []),
        (Api.LIST_OFFSETS, [[[1, 0, 9]]]),
    ],
)
def test_fields_outside_their_range_are_refused(api: Api, fields: list[object]):
    """A number or name that no request may have is a typed error, naming the struct."""
    with pytest.raises(InvalidRequestError, match=f"{api.name}: the control struct does not decode"):
        decode_request(api, memoryview(msgspec.msgpack.encode(fields)))


def test_apis_of_later_versions_are_unsupported():
    """Every assigned number that does not act yet says so, and so does an unassigned one."""
    for api in set(Api) - set(EXCHANGES):
        with pytest.raises(UnsupportedError, match=f"{api.name} is of a later version"):
            decode_request(api, memoryview(b"\x90"))
    with pytest.raises(UnsupportedError, match="no api has the number 999"):
        decode_request(999, memoryview(b"\x90"))


def test_api_numbers_do_not_change():
    """Numbers on the wire are fixed for ever."""
    assert {api.name: api.value for api in list(Api)[:9]} == {
        "HELLO": 1,
        "METADATA": 2,
        "CREATE_TOPIC": 3,
        "ALTER_TOPIC": 4,
        "DELETE_TOPIC": 5,
        "INIT_PRODUCER": 6,
        "PRODUCE": 7,
        "FETCH": 8,
        "LIST_OFFSETS": 9,
    }


def test_an_error_travels_with_its_details():
    """The typed error comes out as it went in."""
    error = decode_error(memoryview(encode_error(OffsetOutOfRangeError("no", start=1, end=9))))
    assert type(error) is OffsetOutOfRangeError
    assert (error.message, error.details) == ("no", {"start": 1, "end": 9})


@given(st.sampled_from(sorted(EXCHANGES)), st.binary(max_size=48))
def test_any_control_bytes_are_a_struct_or_a_typed_error(api: Api, data: bytes):
    """No control struct, request, reply or error, makes a decoder fail in any other way."""
    try:
        assert isinstance(decode_request(api, memoryview(data)), EXCHANGES[api].request)
    except InvalidRequestError:
        pass
    try:
        assert isinstance(decode_reply(api, memoryview(data)), EXCHANGES[api].reply)
    except ProtocolError:
        pass
    try:
        assert isinstance(decode_error(memoryview(data)), TidelogError)
    except ProtocolError:
        pass


def test_every_request_has_an_api():
    """Each exchange is found again by its request's type."""
    assert api_of(Produce(1, 0)) is Api.PRODUCE
    groups = {Api.JOIN_GROUP, Api.LEAVE_GROUP, *(api for api in Api if Api.CREATE_GROUP <= api <= Api.GROUP_MESSAGES)}
    letters = {Api.DEAD_LETTERS, Api.REDRIVE, Api.PURGE, Api.ATTEMPTS}
    assert set(EXCHANGES) == {api for api in Api if api < Api.CLOCK or api >= Api.LIST_ARCHIVE} | groups | letters
