"""The archive job without a JVM: what each step leaves when the run dies in it, and what the next run makes of it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.helpers.broker_process import BrokerProcess
from tidelog import Client
from tidelog.spark.errors import DataLossError, OptionError
from tidelog.spark.jobs import archive as job
from tidelog.spark.jobs.archive import Archived, ArchiveRun, verify_archive
from tidelog.spark.jobs.errors import JobBusyError, JobStateError
from tidelog.spark.jobs.folder import exclusive
from tidelog.spark.jobs.manifest import ArchivedFile, ArchivedRange
from tidelog.spark.jobs.parquet import WriteJob, write_range

pytestmark = pytest.mark.process

Rows = list[tuple[str, int, int, bytes]]


class Died(Exception):
    """The run ends here."""


def write_here(work: WriteJob, ranges: Sequence[ArchivedRange]) -> list[ArchivedFile]:
    """Write in this process what tasks of Spark would."""
    return [write_range(each, work) for each in ranges]


def run(
    broker: BrokerProcess,
    folder: Path,
    *topics: str,
    write: Callable[[WriteJob, Sequence[ArchivedRange]], Iterable[ArchivedFile]] = write_here,
    until: datetime | None = None,
    per_file: int = 100,
    **options: str,
) -> Archived:
    """Run the job on topics of a broker."""
    with Client(broker.url) as client:
        return ArchiveRun(folder, {"url": broker.url, **options}, "zstd", per_file).run(client, topics, until, write)


def listed(folder: Path) -> Rows:
    """The rows of the files that the manifest lists, in its order."""
    files = json.loads((folder / "_manifest.json").read_text())["files"]
    return [row for each in files for row in rows_of(folder / each["file"])]


def in_folder(folder: Path) -> Rows:
    """The rows of all that Spark would take for the archive's files."""
    return [row for path in sorted(folder.glob("[!_.]*.parquet")) for row in rows_of(path)]


def rows_of(path: Path) -> Rows:
    """The rows of one file."""
    columns = pq.read_table(path, columns=["topic", "partition", "offset", "value"]).to_pydict()
    return list(zip(*(columns[name] for name in ("topic", "partition", "offset", "value")), strict=True))


def fill(client: Client, topic: str, partition: int, start: int, end: int) -> Rows:
    """Send numbered values; return the rows they become."""
    client.produce_many(topic, [b"%d" % at for at in range(start, end)], partition=partition)
    return [(topic, partition, at, b"%d" % at) for at in range(start, end)]


def test_each_run_adds_what_came_since(broker: BrokerProcess, client: Client, tmp_path: Path) -> None:
    """Exact ranges, a file for each hundred records, and nothing where nothing is new; a partition that came later
    and a topic that is added are archived from their beginning."""
    client.topics.create("archive-adds", partitions=1)
    client.topics.create("archive-second", partitions=1)
    rows = fill(client, "archive-adds", 0, 0, 250)
    first = run(broker, tmp_path, "archive-adds")
    assert [(each.range.start, each.range.end, each.rows) for each in first.files] == [
        (0, 83, 83),
        (83, 166, 83),
        (166, 250, 84),
    ]
    assert (first.rows, first.finished, first.lost) == (250, 0, 0)
    assert run(broker, tmp_path, "archive-adds").files == ()
    rows += fill(client, "archive-adds", 0, 250, 251)
    client.topics.set("archive-adds", partitions=2)
    rows += fill(client, "archive-adds", 1, 0, 3)
    rows += fill(client, "archive-second", 0, 0, 2)
    second = run(broker, tmp_path, "archive-adds", "archive-second")
    assert [each.file for each in second.files] == [
        "archive-adds-0-00000000000000000250-00000000000000000251.parquet",
        "archive-adds-1-00000000000000000000-00000000000000000003.parquet",
        "archive-second-0-00000000000000000000-00000000000000000002.parquet",
    ]
    assert listed(tmp_path) == rows
    assert in_folder(tmp_path) == rows
    assert verify_archive(tmp_path) == []


def test_a_file_is_as_the_reader_needs_it(broker: BrokerProcess, client: Client, tmp_path: Path) -> None:
    """All columns with their types; statistics of offsets and times, a dictionary for topic and partition, zstd."""
    client.topics.create("archive-file", partitions=1)
    early = datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
    client.produce("archive-file", None, key=b"k", headers=[("a", b"1"), ("a", None)], priority=9, timestamp=early)
    client.produce("archive-file", b"", timestamp=datetime(2101, 1, 1, tzinfo=UTC))
    (file,) = run(broker, tmp_path, "archive-file").files
    assert (file.min_timestamp_us, file.max_timestamp_us) == (-1, 4133980800000000)
    table = pq.read_table(tmp_path / file.file)
    assert [str(field.type) for field in table.schema] == [
        "binary",
        "binary",
        "string",
        "int32",
        "int64",
        "timestamp[us, tz=UTC]",
        "list<element: struct<key: string, value: binary>>",
        "int8",
    ]
    assert table.to_pylist() == [
        {"key": b"k", "value": None, "topic": "archive-file", "partition": 0, "offset": 0, "timestamp": early,
         "headers": [{"key": "a", "value": b"1"}, {"key": "a", "value": None}], "priority": 9},
        {"key": None, "value": b"", "topic": "archive-file", "partition": 0, "offset": 1,
         "timestamp": datetime(2101, 1, 1, tzinfo=UTC), "headers": [], "priority": 4},
    ]  # fmt: skip
    group = pq.read_metadata(tmp_path / file.file).row_group(0)
    chunks = {group.column(at).path_in_schema: group.column(at) for at in range(group.num_columns)}
    assert [
        name for name, chunk in chunks.items() if chunk.statistics is not None and chunk.statistics.has_min_max
    ] == [
        "partition",
        "offset",
        "timestamp",
    ]
    assert [name for name, chunk in chunks.items() if "RLE_DICTIONARY" in chunk.encodings] == [
        "topic",
        "partition",
        "priority",
    ]
    assert {chunk.compression for chunk in chunks.values()} == {"ZSTD"}


def dies_before_writing(work: WriteJob, ranges: Sequence[ArchivedRange]) -> list[ArchivedFile]:
    """Die when the plan is kept and nothing else."""
    raise Died


def dies_between_files(work: WriteJob, ranges: Sequence[ArchivedRange]) -> list[ArchivedFile]:
    """Die when one file is there, and half of another."""
    write_range(ranges[0], work)
    (Path(work.folder) / "_unfinished-0.parquet").write_bytes(b"PAR1 and no more")
    raise Died


def dies_before_the_manifest(work: WriteJob, ranges: Sequence[ArchivedRange]) -> list[ArchivedFile]:
    """Die when all files are there."""
    write_here(work, ranges)
    raise Died


@pytest.mark.parametrize(
    ("topic", "dies", "kept"),
    [("before", dies_before_writing, 0), ("between", dies_between_files, 1), ("after", dies_before_the_manifest, 3)],
)
def test_a_run_that_died_is_finished_by_the_next(
    topic: str,
    dies: Callable[[WriteJob, Sequence[ArchivedRange]], list[ArchivedFile]],
    kept: int,
    broker: BrokerProcess,
    client: Client,
    tmp_path: Path,
) -> None:
    """The same ranges in the same files, though more was appended meanwhile: nothing is listed or found twice, and
    what was complete is not written again."""
    name = f"archive-died-{topic}"
    client.topics.create(name, partitions=1)
    rows = fill(client, name, 0, 0, 250)
    with pytest.raises(Died):
        run(broker, tmp_path, name, write=dies)
    assert not (tmp_path / "_manifest.json").exists()
    before = {path.name: path.stat().st_ino for path in tmp_path.glob("[!_]*.parquet")}
    assert len(before) == kept
    rows += fill(client, name, 0, 250, 260)
    done = run(broker, tmp_path, name)
    assert (len(done.files), done.finished, done.rows) == (4, 3, 260)
    assert listed(tmp_path) == in_folder(tmp_path) == rows
    assert before.items() <= {path.name: path.stat().st_ino for path in tmp_path.iterdir()}.items()
    assert sorted(path.name for path in tmp_path.glob("_*")) == ["_lock", "_manifest.json"]


def test_a_run_that_died_after_the_manifest(
    broker: BrokerProcess, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan that is listed already is only removed."""
    client.topics.create("archive-listed", partitions=1)
    rows = fill(client, "archive-listed", 0, 0, 10)
    with monkeypatch.context() as patch:
        patch.setattr(job, "remove", lambda path: (_ for _ in ()).throw(Died))
        with pytest.raises(Died):
            run(broker, tmp_path, "archive-listed")
    assert (tmp_path / "_plan.json").exists()
    assert run(broker, tmp_path, "archive-listed").files == ()
    assert listed(tmp_path) == in_folder(tmp_path) == rows
    assert not (tmp_path / "_plan.json").exists()


def test_two_attempts_at_a_range_are_one_file(broker: BrokerProcess, client: Client, tmp_path: Path) -> None:
    """A task that Spark runs twice returns what the first one wrote."""
    client.topics.create("archive-attempts", partitions=1)
    fill(client, "archive-attempts", 0, 0, 50)

    def write(work: WriteJob, ranges: Sequence[ArchivedRange]) -> list[ArchivedFile]:
        first, second = write_here(work, ranges), write_here(work, ranges)
        assert first == second
        return first

    assert run(broker, tmp_path, "archive-attempts", write=write).rows == 50
    assert len(in_folder(tmp_path)) == 50


def test_until_a_time(broker: BrokerProcess, client: Client, tmp_path: Path) -> None:
    """What was appended before a moment, and the rest by a later run."""
    client.topics.create("archive-until", partitions=1)
    fill(client, "archive-until", 0, 0, 5)
    later = datetime.fromtimestamp(0, UTC) + timedelta(
        microseconds=client.produce("archive-until", b"5").append_time_us
    )
    assert run(broker, tmp_path, "archive-until", until=later).rows == 5
    assert run(broker, tmp_path, "archive-until", until=later).rows == 0
    assert run(broker, tmp_path, "archive-until").rows == 1


def test_what_is_refused(broker: BrokerProcess, client: Client, tmp_path: Path) -> None:
    """A second run at the same time, other columns, a topic made again, a damaged manifest: each with its error, and
    the archive as it was."""
    client.topics.create("archive-refused", partitions=1)
    fill(client, "archive-refused", 0, 0, 5)
    with pytest.raises(OptionError, match="unknown column 'valu': do you mean value"):
        run(broker, tmp_path / "none", "archive-refused", columns="valu")
    assert not (tmp_path / "none").exists()
    with pytest.raises(ValueError, match="compression: expected zstd, snappy, none, found 'gzip'"):
        ArchiveRun(tmp_path, {}, "gzip", 1)
    with pytest.raises(ValueError, match=r"folder: expected a path .* found s3://bucket/x"):
        ArchiveRun("s3://bucket/x", {}, "zstd", 1)
    run(broker, tmp_path, "archive-refused")
    for name in ("startingTimestamp", "endingoffsets", "assign", "by", "kafka.bootstrap.servers"):
        with pytest.raises(OptionError, match=f"(?i)none that the archive sets by itself, found {name}"):
            run(broker, tmp_path, "archive-refused", **{name: "0"})
    assert not (tmp_path / "_plan.json").exists()
    kept = (tmp_path / "_manifest.json").read_bytes()
    with exclusive(tmp_path / "_lock"), pytest.raises(JobBusyError, match=r"another run holds .*_lock"):
        run(broker, tmp_path, "archive-refused")
    with pytest.raises(JobStateError, match="expected an archive of the columns offset, found key, value"):
        run(broker, tmp_path, "archive-refused", columns="offset")
    client.topics.delete("archive-refused")
    client.topics.create("archive-refused", partitions=1)
    with pytest.raises(JobStateError, match="topic archive-refused that was archived before, found one that was"):
        run(broker, tmp_path, "archive-refused")
    assert (tmp_path / "_manifest.json").read_bytes() == kept
    (tmp_path / "_manifest.json").write_bytes(kept[:-20])
    with pytest.raises(JobStateError, match=r"_manifest.json: expected a manifest, found something else"):
        run(broker, tmp_path, "archive-refused")


def test_what_retention_took_is_told(broker: BrokerProcess, client: Client, tmp_path: Path) -> None:
    """Records that went before they were archived are an error with their offsets; with failOnDataLoss=false the rest
    is archived and the loss is counted."""
    client.topics.create("archive-lost", partitions=1, segment_bytes=65_536)
    client.produce_many("archive-lost", [b"x" * 500] * 100)
    run(broker, tmp_path, "archive-lost")
    for _ in range(5):
        client.produce_many("archive-lost", [b"x" * 500] * 100)
    client.topics.set("archive-lost", retention_bytes=65_536)
    deadline = datetime.now(UTC).timestamp() + 20
    while client.topics.describe("archive-lost").partitions[0].start_offset <= 100:
        assert datetime.now(UTC).timestamp() < deadline
        time.sleep(0.02)
    start = client.topics.describe("archive-lost").partitions[0].start_offset
    with pytest.raises(DataLossError, match=f"expected offsets 100 to 600, found {start} to 600"):
        run(broker, tmp_path, "archive-lost")
    rest = run(broker, tmp_path, "archive-lost", failOnDataLoss="false")
    assert rest.rows == 600 - start
    assert [row[2] for row in listed(tmp_path)] == [*range(100), *range(start, 600)]


def test_verifying_finds_what_changed(broker: BrokerProcess, client: Client, tmp_path: Path) -> None:
    """A file that is gone, one that is shorter, and one with a byte changed, each by its name."""
    client.topics.create("archive-verify", partitions=3)
    for partition in range(3):
        fill(client, "archive-verify", partition, 0, 10)
    gone, short, changed = [tmp_path / each.file for each in run(broker, tmp_path, "archive-verify").files]
    gone.unlink()
    short.write_bytes(short.read_bytes()[:-1])
    data = bytearray(changed.read_bytes())
    data[100] ^= 1
    changed.write_bytes(data)
    found = verify_archive(tmp_path)
    assert [line.split(":")[0] for line in found] == [gone.name, short.name, changed.name]
    assert [line.split(": ")[1].split()[:2] for line in found] == [["missing"], ["expected", str(short.stat().st_size + 1)], ["expected", "checksum"]]  # fmt: skip
