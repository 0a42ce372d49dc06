"""Fetches that read on in the archive, while retention moves messages there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from tidelog.broker.deferred import Deferred, Reply
from tidelog.broker.fetcher import Fetched
from tidelog.broker.handlers.context import Context
from tidelog.broker.handlers.fetch import fetch
from tidelog.protocol.errors import OffsetOutOfRangeError
from tidelog.protocol.messages import ErrorInfo, Fetch, FetchPosition, FetchReply, FetchResult

OUT = ErrorInfo.of(
    OffsetOutOfRangeError("expected an offset from 180 to 200 in orders/0, found 120", start=180, end=200)
)


class Moving:
    """A partition whose log is read by a worker, and the archive; what each is asked is noted."""

    def __init__(self) -> None:
        self.start_offset = 100
        self.log = SimpleNamespace(end_offset=200)
        self.reader = SimpleNamespace(fetch=self._fetch_archived)
        self.asked: list[str] = []
        self.reads: list[Deferred[Fetched]] = []
        self.archived = Fetched(FetchResult(1, 0, 180, 0, 200, 0, None))

    def fetch(self, *_position: object, **_options: object) -> Deferred[Fetched]:
        """Begin to read from the log."""
        self.asked.append("log")
        self.reads.append(Deferred())
        return self.reads[-1]

    def itself(self, _topic_id: int, _index: int) -> Moving:
        """Be found under any name."""
        return self

    def _fetch_archived(self, *_position: object, **_options: object) -> Fetched:
        self.asked.append("archive")
        return self.archived


def context_of(partition: Moving) -> Context:
    """Return what a handler needs to fetch from it."""
    topics = SimpleNamespace(version=1, partition=partition.itself)
    metrics = SimpleNamespace(cold_reads=0, fetched_bytes=0, fetches_waited=0)
    limits = SimpleNamespace(max_frame_bytes=1 << 26)
    return cast(Context, SimpleNamespace(topics=topics, metrics=metrics, limits=limits, archive=partition))


def asked(partition: Moving, *, archived: bool) -> Deferred[Reply]:
    """Fetch from offset 120, which the log has at first."""
    answer = fetch(context_of(partition), Fetch([FetchPosition(1, 0, 120)], archived=archived))
    assert isinstance(answer, Deferred)
    return answer


def result_of(answer: Deferred[Reply]) -> FetchResult:
    """Return the one result of a fetch."""
    message = answer.result().message
    assert isinstance(message, FetchReply)
    return message.results[0]


def test_what_retention_archives_while_a_worker_reads_is_read_from_the_archive() -> None:
    """The fetch is not told that the log begins later now: it asked for archived messages, and there they are."""
    partition = Moving()
    answer = asked(partition, archived=True)
    partition.start_offset = 180
    partition.reads[0].resolve(Fetched(FetchResult(1, 0, 120, 0, 0, 0, OUT)))
    assert partition.asked == ["log", "archive"]
    assert (result_of(answer).error, result_of(answer).next_offset) == (None, 180)


def test_an_archive_that_has_it_not_is_asked_once() -> None:
    """Its refusal is the answer."""
    partition = Moving()
    partition.archived = Fetched(FetchResult(1, 0, 120, 0, 0, 0, OUT))
    answer = asked(partition, archived=True)
    partition.start_offset = 180
    partition.reads[0].resolve(Fetched(FetchResult(1, 0, 120, 0, 0, 0, OUT)))
    assert partition.asked == ["log", "archive"]
    assert result_of(answer).error == OUT


def test_who_does_not_ask_for_archived_messages_is_told_where_the_log_begins() -> None:
    """As ever."""
    partition = Moving()
    answer = asked(partition, archived=False)
    partition.start_offset = 180
    partition.reads[0].resolve(Fetched(FetchResult(1, 0, 120, 0, 0, 0, OUT)))
    assert partition.asked == ["log"]
    assert result_of(answer).error == OUT
