"""What `consume --output json` writes, `produce --input json` reads: any message, through real processes."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta, timezone
from itertools import count, product
from pathlib import Path
from typing import cast

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.helpers.broker_process import BrokerProcess
from tests.helpers.command_line import CommandLine

from tidelog import Client, Message

pytestmark = pytest.mark.process

PROCESSES = 5
"""How often the property starts its four processes."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_names = count(1)

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
data = st.none() | st.binary(max_size=40) | text.map(str.encode)
names = text.filter(lambda name: not name.startswith("tidelog."))
times = st.datetimes(datetime(1970, 1, 1), datetime(9999, 1, 1), timezones=st.just(UTC))
records = st.tuples(
    data, data, st.lists(st.tuples(names, data), max_size=4), st.integers(0, 9), times, st.integers(0, 2)
)

Facts = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int, int, int, int]


def facts(message: Message) -> Facts:
    """All that a copy has in common with its original, in its place."""
    headers = list(message.headers.items())
    place = (message.partition, message.offset)
    return (message.value, message.key, headers, message.priority, message.timestamp_us, *place)


def all_of(client: Client, topic: str) -> list[Facts]:
    """Everything of a topic, by partition and offset."""
    messages = [message for batch in client.replay(topic) for message in batch.messages()]
    return sorted((facts(message) for message in messages), key=lambda each: each[-2:])


@settings(
    max_examples=PROCESSES,
    deadline=None,
    phases=[Phase.generate],  # to shrink an example would start hundreds of processes
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.lists(records, min_size=1, max_size=60))
def test_any_topic_is_copied_exactly(
    shared_broker: BrokerProcess,
    tmp_path: Path,
    given_records: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int, datetime, int]],
) -> None:
    """`consume --output json | produce --input json --keep-partition` makes the same topic again: null, empty and
    binary keys, values and headers, priorities, times, partitions and the order in them; and its JSON is the same."""
    tidelog, number = CommandLine(shared_broker.url, tmp_path), next(_names)
    original, copy = f"original-{number}", f"copy-{number}"
    with Client(shared_broker.url) as client:
        for name in (original, copy):
            client.topics.create(name, partitions=3)
        for value, key, headers, priority, timestamp, partition in given_records:
            client.produce(
                original, value, key=key, headers=headers, priority=priority, timestamp=timestamp, partition=partition
            )
        written = tidelog.run_process("consume", original, "--output", "json").out
        assert written.count(b"\n") == len(given_records)
        tidelog.run_process("produce", copy, "--input", "json", "--keep-partition", stdin=written)
        assert all_of(client, copy) == all_of(client, original)
    again = tidelog.run_process("consume", copy, "--output", "json").out

    def lines(output: bytes) -> list[dict[str, object]]:
        fields = [cast("dict[str, object]", json.loads(line)) for line in output.splitlines()]
        own = ("id", "topic", "append_time")
        return sorted(
            ({name: value for name, value in each.items() if name not in own} for each in fields),
            key=lambda each: (str(each["partition"]), cast(int, each["offset"])),
        )

    assert lines(again) == lines(written)


def test_the_nine_pairs_of_key_and_value(tidelog: CommandLine, topic: str) -> None:
    """Case 2: null, empty and text of key and value stay apart from JSON to JSON, in one batch that mixes them."""
    pairs = [(key, value) for key, value in product((None, "", "x"), repeat=2)]
    lines = "\n".join(json.dumps({"key": key, "value": value}) for key, value in pairs).encode()
    tidelog.run_process("produce", topic, "--input", "json", stdin=lines)
    found = [json.loads(line) for line in tidelog.run_process("consume", topic, "--output", "json").lines]
    assert [(each["key"], each["value"]) for each in found] == pairs
    for offset, (key, value) in enumerate(pairs):
        got = json.loads(tidelog.run("get", f"{topic}/0@{offset}", "--output", "json").out)
        assert (got["key"], got["value"]) == (key, value)


def test_odd_headers_stay_pairs(tidelog: CommandLine, topic: str) -> None:
    """Case 4: order, repeats, null, empty and Unicode names survive as a list of pairs."""
    odd = [["x", "1"], ["y", ""], ["x", "2"], ["z", None], ["", "e"], ["ключ🔑", {"base64": "/w=="}]]
    line = json.dumps({"value": "v", "headers": odd}).encode()
    tidelog.run_process("produce", topic, "--input", "json", stdin=line)
    written = tidelog.run_process("consume", topic, "--output", "json").out
    assert json.loads(written)["headers"] == odd
    tidelog.run_process("produce", topic, "--input", "json", stdin=written)
    both = [json.loads(line)["headers"] for line in tidelog.run("consume", topic, "--output", "json").lines]
    assert both == [odd, odd]


def test_times_are_exact_both_ways(tidelog: CommandLine, topic: str) -> None:
    """Case 25: the time that a float product gets wrong, and a thousand random ones in all zones, are exact."""
    chance = random.Random(25)
    moments = [datetime(1970, 7, 21, 14, 9, 16, 146413, tzinfo=UTC)]
    for _ in range(1_000):
        zone = timezone(timedelta(minutes=chance.randrange(-14 * 60, 14 * 60)))
        moments.append((EPOCH + timedelta(microseconds=chance.randrange(4_000_000_000_000_000))).astimezone(zone))
    lines = "\n".join(json.dumps({"value": "", "timestamp": moment.isoformat()}) for moment in moments).encode()
    tidelog.run_process("produce", topic, "--input", "json", stdin=lines)
    written = tidelog.run_process("consume", topic, "--output", "json").lines
    found = [str(json.loads(line)["timestamp"]) for line in written]
    assert found[0] == "1970-07-21T14:09:16.146413Z"
    assert [datetime.fromisoformat(each) for each in found] == moments
    assert all(len(each) == len("1970-07-21T14:09:16.146413Z") for each in found)


def test_a_newline_inside_a_json_value_stays_inside(tidelog: CommandLine, topic: str) -> None:
    """Case 28: a newline within a value of JSON does not end the line, nor the message."""
    tidelog.run_process(
        "produce", topic, "--input", "json", stdin=b'\xef\xbb\xbf{"value": "a\\nb"}\r\n\n{"value": "c"}'
    )
    assert tidelog.run("consume", topic).out == b"a\nb\nc\n"
    assert len(tidelog.run("consume", topic, "--output", "json").lines) == 2


def test_keys_stand_in_the_same_order_always(tidelog: CommandLine, topic: str) -> None:
    """Every object has the same keys in the same order, but for the names that say base64."""
    tidelog.run("produce", topic, "--input", "json", stdin=b'{"value": null}\n{"value_base64": "/w==", "key": "k"}\n')
    first, second = (list(json.loads(line)) for line in tidelog.run("consume", topic, "--output", "json").lines)
    assert first == [
        "id", "topic", "partition", "offset", "timestamp", "append_time", "priority", "key", "value", "headers"
    ]  # fmt: skip
    assert [name.removesuffix("_base64") for name in second] == first
