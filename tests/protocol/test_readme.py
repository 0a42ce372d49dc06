"""The specification says what the code does: every number, field and bit."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args, get_type_hints

import msgspec
import pytest
from tests.golden import cases

from tidelog import protocol
from tidelog.broker.batch_check import MAX_BATCHES
from tidelog.protocol import limits
from tidelog.protocol.api import Api
from tidelog.protocol.batch import Attributes
from tidelog.protocol.batch_check import NOT_YET
from tidelog.protocol.errors import ERRORS
from tidelog.protocol.messages import EXCHANGES, ErrorInfo
from tidelog.protocol.topic_settings import KEYS

FOLDER = Path(protocol.__file__ or "").parent
TEXT = (FOLDER / "README.md").read_text(encoding="utf-8")
UNTRAVELLED = 100
"""From this number on, errors are the client's own."""


def table(heading: str) -> list[list[str]]:
    """Return the cells of all table rows below a heading, up to the next one of its rank, heads and rules left out."""
    rank = heading.index(" ")
    body = TEXT.partition(f"\n{heading}\n")[2]
    assert body, f"no heading {heading!r}"
    rows = re.split(rf"\n#{{1,{rank}}} ", body)[0].splitlines()
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows if row.startswith("|")]
    return [row for at, row in enumerate(cells) if "---" not in row[0] and "---" not in cells[(at + 1) % len(cells)][0]]


def structs_of(kind: object) -> Iterator[type[msgspec.Struct]]:
    """Yield the structs that a type names, and those within them."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield kind
        for inner in get_type_hints(kind).values():
            yield from structs_of(inner)
    for argument in get_args(kind):
        yield from structs_of(argument)


STRUCTS = {
    found.__name__: found
    for exchange in EXCHANGES.values()
    for side in (exchange.request, exchange.reply, ErrorInfo)
    for found in structs_of(side)
}


def test_every_api_stands_in_the_table():
    """Number, name and structs of every api, and that the later ones are refused."""
    rows = [row for row in table("## Requests and replies") if row[0].isdecimal() and row[1].strip("`").isupper()]
    assert rows == [
        [str(int(api)), f"`{api.name}`", EXCHANGES[api].request.__name__, EXCHANGES[api].reply.__name__]
        if api in EXCHANGES
        else [str(int(api)), f"`{api.name}`", "UNSUPPORTED", ""]
        for api in Api
    ]


def spelled(default: object) -> str:
    """Return a default as the specification writes it."""
    words = {"None": "nil", "False": "false", "True": "true", "[]": "empty", "{}": "empty"}
    return words.get(repr(default), str(default))


def default_of(field: msgspec.structs.FieldInfo) -> str:
    """Return what the table should say of a field's default."""
    if field.default is not msgspec.NODEFAULT:
        return spelled(field.default)
    if field.default_factory is not msgspec.NODEFAULT:
        return spelled(field.default_factory())
    return ""


@pytest.mark.parametrize("name", sorted(STRUCTS))
def test_every_field_stands_in_its_place(name: str):
    """The fields of every struct, in order, with their defaults."""
    fields = msgspec.structs.fields(STRUCTS[name])
    expected = [[str(at), f"`{field.name}`", default_of(field)] for at, field in enumerate(fields)]
    assert [[row[0], row[1], row[3]] for row in table(f"### {name}")] == expected


def test_no_struct_is_described_that_is_not_there():
    """The specification has no left-overs."""
    described = re.findall(r"\n### ([A-Z]\w+)\n", TEXT.partition("## Errors")[0])
    assert sorted(described) == sorted(STRUCTS)


def test_every_error_stands_in_the_table():
    """Number, code and whether a repeat may help."""
    found = {int(row[0]): (row[1].strip("`"), row[2]) for row in table("## Errors")}
    assert found == {
        number: (kind.code, "yes" if kind.retriable else "no") for number, kind in ERRORS.items() if number
    }
    travelling = TEXT.partition("never travel")[0]
    for number, kind in ERRORS.items():
        assert (f"`{kind.code}` |" in travelling) == (0 < number < UNTRAVELLED)


def test_every_bit_stands_in_the_table():
    """Numbers and names of all attribute bits."""
    found = {row[1].strip("`"): row[0] for row in table("### Attributes")}
    bits = {name.lower(): value for name, value in vars(Attributes).items() if name.isupper()}
    for group in ("codec_mask", "columns", "routing", "known"):
        del bits[group]
    assert found == {"codec": "0-2", "": "20-31"} | {name: str(bit.bit_length() - 1) for name, bit in bits.items()}


def test_what_is_unsupported_is_listed():
    """The bits that this version refuses by name are those that the specification says."""
    listed = re.search(r"`UNSUPPORTED`: it uses a bit .*? act on yet \((.*?)\)", TEXT, re.DOTALL)
    assert listed is not None
    names = re.findall(r"`(\w+)`", listed[1])
    assert sum(getattr(Attributes, name.upper()) for name in names) == NOT_YET


def test_the_limits_are_those_in_force():
    """Each limit of the table is the constant."""
    found = {row[0]: row[1] for row in table("## Limits")}
    mib = 1 << 20
    assert found == {
        "frame": f"{limits.MAX_FRAME_BYTES // mib} MiB",
        "control of a frame": f"{limits.MAX_CONTROL_BYTES // mib} MiB",
        "control of a reply that tells a place to go on": f"some {limits.PAGE_BYTES // mib} MiB",
        "stored batch": f"{limits.MAX_BATCH_BYTES // mib} MiB",
        "payload columns of a batch, uncompressed": f"{limits.MAX_BATCH_PAYLOAD_BYTES // mib} MiB",
        "growth of a compressed block": f"{limits.MAX_DECOMPRESSION_RATIO:,} times",
        "message: key, value, names and values of headers": f"{limits.MAX_MESSAGE_BYTES // mib} MiB",
        "records in a batch": f"{limits.MAX_RECORDS_PER_BATCH:,}",
        "headers in a message; bytes in a header's name": (
            f"{limits.MAX_HEADERS_PER_MESSAGE:,}; {limits.MAX_HEADER_NAME_BYTES:,}"
        ),
        "batches in one Produce": f"{MAX_BATCHES:,}",
        "records of batches with `dedup_id` in one Produce": f"{limits.MAX_DEDUP_IDS_PER_REQUEST:,}",
        "requests in flight": str(limits.MAX_REQUESTS_IN_FLIGHT),
        "wait of one Fetch": f"{limits.MAX_WAIT_US // 1_000_000} s",
        "time until Hello": f"{limits.HELLO_TIMEOUT_US // 1_000_000} s",
    }
    assert f"before Hello the limit is {limits.MAX_UNAUTHENTICATED_BYTES // 1024} KiB" in TEXT
    assert f"remembers the last {limits.REMEMBERED_BATCHES} of each" in TEXT
    assert f"have at most {limits.MAX_PRODUCES_IN_FLIGHT} unanswered" in TEXT


def test_topic_settings_are_listed():
    """Every key that a settings map may have is named."""
    listed = TEXT.partition("Topic settings are a map")[2].partition("\n\n")[0]
    assert set(re.findall(r"`(\w+)`", listed)) == KEYS


def test_the_examples_are_the_golden_bytes():
    """The Hello and the batch that are spelled out are what the golden files hold."""
    hello = cases.read("hello_request")
    example = TEXT.partition("calls itself `golden`")[2].partition("    length 25")[0]
    spelled_out = example.partition("\n\n")[2]
    for text in ("golden", "1.0"):
        spelled_out = spelled_out.replace(f'"{text}"', text.encode().hex(" "))
    assert bytes.fromhex(spelled_out) == hello
    rows = TEXT.partition("144 bytes:\n\n")[2].partition("\n\n")[0].splitlines()
    batch = b""
    for row in rows:
        content = row.partition(": ")[2]
        zeros = re.match(r"00 x (\d+)", content)
        assert int(row.partition(":")[0]) == len(batch)
        batch += bytes(int(zeros[1])) if zeros else bytes.fromhex(re.split(r" {4,}", content)[0])
    assert batch == cases.read("plain_batch")


def test_every_module_is_listed():
    """The folder listing has every module, and nothing that is gone."""
    listing = "\n".join(row[0] for row in table("## The files here"))
    modules = {path.stem for path in FOLDER.glob("*.py")} - {"__init__"}
    assert set(re.findall(r"`(\w+)/?`", listing)) == modules | {"messages"}
