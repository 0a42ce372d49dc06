"""`tidelog check`, `dump` and `config check` as a user sees them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.helpers.broker_process import BrokerProcess
from tests.helpers.stored_data import MESSAGES, content_of, flip, segments_of, store

from tidelog import Backoff, Client
from tidelog.__main__ import main

NASTY = "\x1b]52;c;ZWNobw==\x07\r\u202e"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two segments, with values that are empty, null, not UTF-8 and meant to harm a terminal."""
    root = tmp_path_factory.mktemp("stored") / "data"
    store(root, [b"plain", b"", None, b"\xff\x80", NASTY.encode()], batches=1)
    return root


def lines(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    """Run a command that succeeds; returns the lines of its standard output."""
    assert main(list(arguments)) == 0
    found = capsys.readouterr()
    assert found.err == ""
    assert found.out.isascii()
    assert not [character for character in found.out if ord(character) < 32 and character != "\n"]
    return found.out.splitlines()


def objects(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, object]]:
    """The same with `--output json`."""
    return [json.loads(line) for line in lines(capsys, *arguments, "--output", "json")]


def test_check_of_intact_data(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 0, one line that counts what was read, and nothing was changed."""
    before = content_of(data)
    assert lines(capsys, "check", str(data)) == ["2 logs, 2 segments, 4 batches, 9 records: intact"]
    (summary,) = objects(capsys, "check", str(data))
    assert (summary["what"], summary["records"], summary["damages"]) == ("summary", 9, 0)
    assert content_of(data) == before


def test_check_of_damaged_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 1, a line for each place, and one line on standard error."""
    store(tmp_path / "data", [b"x" * 100] * 10, batches=2)
    flip(segments_of(tmp_path / "data")[0], 4096 + 300)
    assert main(["check", str(tmp_path / "data")]) == 1
    found = capsys.readouterr()
    assert found.out.splitlines()[0].startswith(f"damage: {MESSAGES}/00000000000000000000.log: ")
    assert found.out.splitlines()[0].endswith("10 records are lost (offsets 0 to 10)")
    assert found.err == f"tidelog: CORRUPT: 1 damaged places in {tmp_path / 'data'}\n"


def test_check_of_no_data_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder that is none, or is not there, is one line and exit code 1."""
    assert main(["check", str(tmp_path)]) == 1
    assert "expected a data directory, found a folder without the file VERSION" in capsys.readouterr().err
    assert main(["check", str(tmp_path / "nowhere")]) == 1
    assert "found no folder" in capsys.readouterr().err


def test_dump_of_a_segment(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Header, batches and records in order; text where bytes are UTF-8, base64 elsewhere, null and empty apart."""
    shown = objects(capsys, "dump", str(segments_of(data)[0]))
    assert [one["what"] for one in shown] == ["segment", "batch", *["record"] * 5, "end"]
    batch, records = shown[1], shown[2:7]
    assert (batch["base_offset"], batch["record_count"], batch["codec"]) == (0, 5, "none")
    assert batch["min_timestamp"] == "2023-11-14T22:13:20.000000Z"
    assert [record.get("value") for record in records] == ["plain", "", None, None, NASTY]
    assert [record.get("value_base64") for record in records] == [None, None, None, "/4A=", None]
    assert [record["key"] for record in records] == [None, "k", None, "k", None]
    assert "value" in records[2]
    assert "value" not in records[3]


def test_dump_for_people_is_one_line_a_thing(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No stored byte ends a line or reaches a terminal as it is."""
    shown = lines(capsys, "dump", str(segments_of(data)[0]))
    assert len(shown) == 8
    assert shown[2].startswith("record offset=0 timestamp=2023-11-14T22:13:20.000000Z key=null value=plain")
    assert shown[3].split()[4] == 'value=""'
    assert "\\u001b]52;c;ZWNobw==\\u0007\\r\\u202e" in shown[6]


def test_dump_of_the_facts(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The broker's own log shows what it records."""
    shown = objects(capsys, "dump", str(segments_of(data, "meta")[0]))
    (created,) = [one for one in shown if one.get("kind") == "TopicCreated"]
    assert (created["name"], created["partitions"], created["settings"]) == ("default/t", 1, {"segment_bytes": 65536})


def test_dump_of_groups_and_their_deliveries(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Facts of groups show settings and begins; a delivery log its events, the error of a consumer escaped; check
    reads all of it."""
    with BrokerProcess(tmp_path / "data") as broker:
        with Client(broker.url) as client:
            client.topics.create("orders", partitions=1)
            client.produce_many("orders", [b"a", b"b"])
            client.groups.create("billing", "orders", start=1, backoff=Backoff("linear", initial=2))
            with client.queue("orders", group="billing") as queue:
                (message,) = queue.receive(timeout=10)
                message.nack("bad\x1b[2J\n", delay=60)
                queue.flush()
        broker.stop()
    facts = objects(capsys, "dump", str(segments_of(tmp_path / "data", "meta")[0]))
    (created,) = [one for one in facts if one.get("kind") == "GroupCreated"]
    assert (created["name"], created["start"]) == ("default/billing", {"word": "offset", "value": 1})
    assert created["begins"] == {"1": {"0": {"offset": 1, "epoch": 2, "not_before_us": 0, "generation": 1}}}
    log = str(segments_of(tmp_path / "data", "partitions/1-0/delivery")[0])
    events = [one for one in objects(capsys, "dump", log) if one["what"] == "event"]
    assert [(one["kind"], one["ranges"], one["generation"]) for one in events if one["kind"] != "handed_over"] == [
        ("acquired", [[1, 2]], 1),
        ("released", [[1, 2]], 1),
    ]
    released = events[-1]
    assert (released["duration"], released["flags"]) == ("1m", "asked")
    assert released["error"] == {"kind": "", "text": "bad\x1b[2J\n", "traceback": ""}
    assert "released" in "".join(lines(capsys, "dump", log))
    assert lines(capsys, "check", str(tmp_path / "data"))[0].endswith("intact")


def test_dump_of_snapshot_and_mark_and_index(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every kind of file has a readable form."""
    store(tmp_path / "data", [b"x" * 100] * 10, batches=100)
    folder = tmp_path / "data" / MESSAGES
    (mark,) = objects(capsys, "dump", str(folder / "synced"))
    assert (mark["what"], mark["offset"], mark["bad_slots"]) == ("mark", 1000, 0)
    snapshot = objects(capsys, "dump", str(max(folder.glob("snapshot-*"))))
    assert (snapshot[0]["what"], snapshot[0]["offset"]) == ("snapshot", 1000)
    assert {one["what"] for one in snapshot[1:]} == {"section"}
    offsets = objects(capsys, "dump", str(min(folder.glob("*.offsets"))))
    assert (offsets[1]["base_offset"], offsets[1]["position"]) == (0, 4096)
    times = objects(capsys, "dump", str(min(folder.glob("*.times"))))
    assert offsets[0]["rows"] == times[0]["rows"] == len(times) - 1


def test_dump_of_something_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that no broker made, or that is damaged beyond reading, is one line and exit code 1."""
    (tmp_path / "notes.txt").write_text("")
    assert main(["dump", str(tmp_path / "notes.txt")]) == 1
    assert "found 'notes.txt'" in capsys.readouterr().err
    (tmp_path / "00000000000000000000.log").write_bytes(b"x" * 5000)
    assert main(["dump", str(tmp_path / "00000000000000000000.log")]) == 1
    assert capsys.readouterr().err.startswith("tidelog: CORRUPT: ")
    assert main(["dump", str(tmp_path / "nowhere")]) == 1
    assert "found none" in capsys.readouterr().err


def test_config_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A valid file is said to be valid; of a wrong one every problem is a line."""
    file = tmp_path / "broker.yaml"
    file.write_text("log: {retention: 30d}\n")
    assert lines(capsys, "config", "check", str(file)) == [f"{file} is valid"]
    file.write_text("log: {retention: soon}\nfoo: {}\n")
    assert main(["config", "check", str(file)]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_config_check_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each problem is an object, then one counts them; standard error says in one line that it failed."""
    file = tmp_path / "broker.yaml"
    file.write_text("log: {retention: 30d}\n")
    assert objects(capsys, "config", "check", str(file)) == [{"what": "summary", "file": str(file), "problems": 0}]
    file.write_text("log: {retention: soon}\nfoo: {}\n")
    assert main(["config", "check", str(file), "--output", "json"]) == 1
    found = capsys.readouterr()
    assert [json.loads(line) for line in found.out.splitlines()] == [
        {
            "what": "problem",
            "key": "log.retention",
            "text": "expected a duration such as 250ms, 30s, 5m or 7d, found 'soon'",
        },
        {"what": "problem", "key": "foo", "text": "unknown section"},
        {"what": "summary", "file": str(file), "problems": 2},
    ]
    assert found.err == f"tidelog: INVALID_CONFIG: {file}: problems: 2\n"
