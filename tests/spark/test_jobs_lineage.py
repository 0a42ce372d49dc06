"""Jobs over topics that are not what they were: made again under their name, or without an end that the power took.

No JVM. The log of the broker's first topic is put back to what it was, as after a power loss, and grows again.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from tests.helpers.broker_process import BrokerProcess, broker_process
from tidelog import Client
from tidelog.spark.errors import DataLossError
from tidelog.spark.jobs import archive as job
from tidelog.spark.jobs import read_archive
from tidelog.spark.jobs.archive import Archived, ArchiveRun, verify_archive
from tidelog.spark.jobs.errors import JobStateError
from tidelog.spark.jobs.manifest import ArchivedFile, ArchivedRange
from tidelog.spark.jobs.measures_source import Measuring, packed
from tidelog.spark.jobs.pacing import Clock, Pace
from tidelog.spark.jobs.parquet import WriteJob, write_range
from tidelog.spark.jobs.progress import Progress
from tidelog.spark.jobs.replay import Replayed, ReplayRun, Times
from tidelog.spark.offsets import Offsets
from tidelog.spark.places import Place, Range

pytestmark = pytest.mark.process

NO_SPARK = cast("Any", None)
"""What is refused before Spark has a part in it."""


class Died(Exception):
    """The run ends here."""


class Disk:
    """The log of the first topic's partition: kept at a moment, and put back to it by a power loss."""

    def __init__(self, broker: BrokerProcess, folder: Path) -> None:
        self._broker = broker
        self._log, self._before = folder / "data/partitions/1-0/messages", folder / "before"

    def keep(self) -> None:
        """Note what is there."""
        self._broker.kill()
        shutil.copytree(self._log, self._before)
        self._broker.start()

    def lose(self) -> None:
        """Lose what came since."""
        self._broker.kill()
        shutil.rmtree(self._log)
        shutil.copytree(self._before, self._log)
        self._broker.start()


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker that the test may kill."""
    with broker_process(tmp_path) as running:
        yield running


@pytest.fixture
def disk(own_broker: BrokerProcess, tmp_path: Path) -> Disk:
    """The disk of that broker."""
    return Disk(own_broker, tmp_path)


@pytest.fixture
def own_client(own_broker: BrokerProcess) -> Iterator[Client]:
    """A client of that broker."""
    with Client(own_broker.url) as client:
        yield client


def write_here(work: WriteJob, ranges: Sequence[ArchivedRange]) -> list[ArchivedFile]:
    """Write in this process what tasks of Spark would."""
    return [write_range(each, work) for each in ranges]


def dies(work: WriteJob, ranges: Sequence[ArchivedRange]) -> list[ArchivedFile]:
    """Die when the plan is kept and nothing else."""
    raise Died


def dies_before_the_manifest(work: WriteJob, ranges: Sequence[ArchivedRange]) -> list[ArchivedFile]:
    """Die when all files are there."""
    write_here(work, ranges)
    raise Died


def archive(client: Client, folder: Path, topic: str, write: job.Writing = write_here, **options: str) -> Archived:
    """Archive a topic without Spark."""
    read = {"url": str(client.address), **options}
    return ArchiveRun(folder, read, "zstd", 100).run(client, [topic], None, write)


def fill(client: Client, topic: str, word: str, count: int) -> None:
    """Send numbered values."""
    client.produce_many(topic, [f"{word}-{at}".encode() for at in range(count)], partition=0)


def values(client: Client, topic: str) -> list[bytes | None]:
    """What a topic holds."""
    with client.consumer(topic, partition=0, end="latest") as consumer:
        return [message.value for message in consumer]


@pytest.mark.parametrize("others", [0, 3, 7])
def test_an_archive_never_joins_two_histories(others: int, own_client: Client, disk: Disk, tmp_path: Path) -> None:
    """What a log has lost and the archive has is JOB_STATE, whether the log is shorter since, or has grown again past
    the archive's end: for a run, and for a read that goes on in the broker. The archive stays as it was. A broker
    that only started again changes nothing."""
    own_client.topics.create("t", partitions=1)
    fill(own_client, "t", "first", 5)
    disk.keep()
    fill(own_client, "t", "lost", 3)
    folder = tmp_path / "archive"
    assert archive(own_client, folder, "t").rows == 8
    disk._broker.restart()  # pyright: ignore[reportPrivateUsage]
    fill(own_client, "t", "lost", 2)
    assert archive(own_client, folder, "t").rows == 2
    kept = (folder / "_manifest.json").read_bytes()
    disk.lose()
    if others:
        fill(own_client, "t", "other", others)
    expected = "expected t/0 as it was archived, up to offset 10, found a log that has lost what was behind 5 since"
    with pytest.raises(JobStateError, match=f"archive: {expected}: archive it to another folder"):
        archive(own_client, folder, "t")
    with pytest.raises(JobStateError, match=expected):
        read_archive(NO_SPARK, folder, url=str(own_client.address))
    assert (folder / "_manifest.json").read_bytes() == kept
    assert sorted(path.name for path in folder.glob("_*")) == ["_lock", "_manifest.json"]
    assert verify_archive(folder) == []
    assert archive(own_client, tmp_path / "another", "t").rows == 5 + others


def test_a_loss_while_an_archive_is_planned(
    own_client: Client, disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The power may go after the first look at the log: the plan, which is of the log as it is then, is not begun."""
    own_client.topics.create("t", partitions=1)
    fill(own_client, "t", "first", 5)
    disk.keep()
    fill(own_client, "t", "lost", 5)
    archive(own_client, tmp_path / "archive", "t")
    plan = job.plan

    def loses_before(*given: Any) -> list[Range]:
        disk.lose()
        fill(own_client, "t", "other", 7)
        return plan(*given)

    monkeypatch.setattr(job, "plan", loses_before)
    with pytest.raises(JobStateError, match="a log that has lost what was behind 5 since"):
        archive(own_client, tmp_path / "archive", "t")
    assert not (tmp_path / "archive/_plan.json").exists()


def test_a_loss_after_an_archive_was_planned(own_client: Client, disk: Disk, tmp_path: Path) -> None:
    """Tasks never write other records into the files of the plan; where loss is allowed they write those that are
    left, and the next run refuses to go on."""
    own_client.topics.create("t", partitions=1)
    fill(own_client, "t", "first", 5)
    disk.keep()
    fill(own_client, "t", "lost", 5)
    folder = tmp_path / "archive"
    with pytest.raises(Died):
        archive(own_client, folder, "t", dies)
    disk.lose()
    fill(own_client, "t", "other", 7)
    with pytest.raises(DataLossError, match="expected t/0 offsets 0 to 10, found at offset 5: the log lost its end"):
        archive(own_client, folder, "t")
    assert [*folder.glob("*.parquet")] == []
    with pytest.raises(JobStateError, match="a log that has lost what was behind 5 since"):
        archive(own_client, folder, "t", failOnDataLoss="false")
    (file,) = job.manifest_of(folder).files
    assert (file.range.start, file.range.end, file.rows) == (0, 10, 5)


def test_a_read_of_an_archive_never_mixes_two_topics(own_client: Client, tmp_path: Path) -> None:
    """A topic that was made again under its name is JOB_STATE where the read goes on in the broker, as for a run; also
    for a run that first finishes what one before left."""
    own_client.topics.create("t", partitions=1)
    fill(own_client, "t", "old", 10)
    archive(own_client, tmp_path / "archive", "t")
    with pytest.raises(Died):
        archive(own_client, tmp_path / "written", "t", dies_before_the_manifest)
    own_client.topics.delete("t")
    own_client.topics.create("t", partitions=1)
    fill(own_client, "t", "new", 15)
    expected = "expected the topic t that was archived before, found one that was made again since"
    with pytest.raises(JobStateError, match=expected):
        read_archive(NO_SPARK, tmp_path / "archive", url=str(own_client.address))
    for folder in ("archive", "written"):
        with pytest.raises(JobStateError, match=expected):
            archive(own_client, tmp_path / folder, "t")
        assert [each.rows for each in job.manifest_of(tmp_path / folder).files] == [10]


def test_an_archive_goes_on_by_either_name_and_in_its_own_columns(own_client: Client, tmp_path: Path) -> None:
    """`default/t` is `t`; a run with other columns is refused also where the one before it left no more than a plan."""
    own_client.topics.create("t", partitions=1)
    fill(own_client, "t", "a", 10)
    assert archive(own_client, tmp_path / "archive", "t").rows == 10
    fill(own_client, "t", "b", 3)
    assert archive(own_client, tmp_path / "archive", "default/t").rows == 3
    with pytest.raises(Died):
        archive(own_client, tmp_path / "left", "t", dies, columns="offset")
    fill(own_client, "t", "c", 1)
    with pytest.raises(JobStateError, match="expected an archive of the columns value, found offset"):
        archive(own_client, tmp_path / "left", "t", columns="value")
    assert archive(own_client, tmp_path / "left", "t", columns="offset").rows == 1


class Copier:
    """Copies as a step of Spark would; loses the log's end before or after one of them."""

    def __init__(self, client: Client, disk: Disk | None = None, *, loses_in: int = -1) -> None:
        self.copied = 0
        self._client = client
        self._disk = disk
        self._left = loses_in

    def __call__(self, progress: Progress, start: Offsets, end: Offsets, times: Times) -> None:
        if self._disk is not None and self._left == 0:
            self._disk.lose()
            fill(self._client, "t", "other", 7)
        self._left -= 1
        for place, first in start.items():
            with self._client.consumer("t", partition=0, start=first, end=end[place]) as consumer:
                self._client.produce_many("copy", [message.value for message in consumer], partition=0)
        self.copied += 1


def replay(client: Client, path: Path, copy: Copier) -> Replayed:
    """Replay in steps of four records."""
    return ReplayRun(client, client, "t", "copy").run(path, copy, Pace(None, 4, Clock()))


def test_a_replay_copies_what_was_planned_or_fails(own_client: Client, disk: Disk, tmp_path: Path) -> None:
    """Records that others have replaced since the plan are not copied by a later run; a step in which that happened
    is not taken for done. A replay that is planned anew copies what is there."""
    for topic in ("t", "copy"):
        own_client.topics.create(topic, partitions=1)
    fill(own_client, "t", "first", 5)
    disk.keep()
    fill(own_client, "t", "lost", 5)
    path, during = tmp_path / "progress.json", Copier(own_client, disk, loses_in=1)
    expected = "expected t/0 as it was when the replay was planned, up to offset 8, found a log that has lost what was"
    with pytest.raises(JobStateError, match=f"{expected} behind 5 since: plan another replay"):
        replay(own_client, path, during)
    assert during.copied == 2
    again = Copier(own_client)
    with pytest.raises(JobStateError, match=expected):
        replay(own_client, path, again)
    assert again.copied == 0
    before = len(values(own_client, "copy"))
    assert replay(own_client, tmp_path / "another.json", again).records == 12
    assert values(own_client, "copy")[before:] == values(own_client, "t")


def test_a_report_is_of_the_log_that_was_planned() -> None:
    """What its tasks are handed says all of a range, the epoch too."""
    wanted = Range(Place("t", 3), 10, 20, 2, 7, (1, 9), 5)
    assert Measuring({}, (packed(wanted),), "t", None, (1, 9)).range(0) == wanted
