"""Looks for copies in a target: what an intent led to before whoever announced it went down.

Only the headers of batches are looked at on the loop; those that hold copies are read by a worker.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ...protocol.batch import Attributes, decode_batch, verify
from ...protocol.errors import CorruptError, TidelogError
from ...protocol.limits import MIB
from ..delivery.offset_set import OffsetSet
from ..errors import storage_error
from ..flow import Flow, offloaded
from ..offload import Offload
from ..storage.entries import Entries
from ..storage.files import File
from ..storage.loading import LoadTask, NotReadyError
from ..storage.log import Log
from ..storage.warming import Warming
from .source import Copied, Header

BYTES_A_STEP = 8 * MIB
BATCHES_A_STEP = 1_024
"""Headers that are looked at in one go."""

IsCopy = Callable[[Sequence[Header]], bool]


class Search:
    """One search through a log of messages that takes no end of its own: up to where the log ends now."""

    def __init__(
        self,
        log: Log,
        offload: Offload,
        origin_log: int,
        wanted: OffsetSet,
        is_copy: IsCopy,
        max_payload_bytes: int,
    ) -> None:
        self._log = log
        self._offload = offload
        self._origin_log = origin_log
        self._wanted = wanted
        self._is_copy = is_copy
        self._max_payload_bytes = max_payload_bytes
        self._found: dict[int, int] = {}
        self.unread: list[CorruptError] = []
        """What could not be looked at: a copy that lies there is made again, as it would be lost otherwise."""

    def __repr__(self) -> str:
        return f"<Search for {len(self._wanted)} copies in {self._log!r}>"

    def run(self, start: int) -> Flow[dict[int, int]]:
        """Look from an offset on; return the copy of each that has one. Fails with what the disk did not give."""
        log, end = self._log, self._log.end_offset
        at = max(start, log.start_offset)
        while at < end and len(self._found) < len(self._wanted):
            try:
                listed = log.batches(at, end, max_bytes=BYTES_A_STEP, upto=end, limit=BATCHES_A_STEP, may_wait=False)
            except NotReadyError as error:
                yield from self._prepare(error.work)
                continue
            except CorruptError as error:
                self.unread.append(error)
                at = max(at + 1, int(str(error.details.get("next", end))))
                continue
            if not len(listed.ends):
                break
            rows = np.flatnonzero(listed.entries["attributes"] & Attributes.ORIGIN_LOG)
            if len(rows):
                look = _Look(listed.file, listed.entries[rows], self._note, self._max_payload_bytes)
                yield offloaded(self._offload, look.run)
                self.unread += look.unread
            at = int(listed.ends[-1])
        return self._found

    def _prepare(self, work: LoadTask | Warming) -> Flow[None]:
        yield offloaded(self._offload, work.run)
        if isinstance(work, LoadTask):
            self._log.finish_load(work)
        elif work.error is not None:
            raise storage_error(work.error, f"reading {work.place}")

    def _note(self, data: bytes) -> None:
        verify(data)
        batch = decode_batch(data, max_payload_bytes=self._max_payload_bytes)
        logs, origins = batch.routing.origin_logs, batch.routing.origin_offsets
        if logs is None or origins is None:
            return
        for row in np.flatnonzero(logs == self._origin_log).tolist():
            offset = int(origins[row])
            if offset in self._wanted and self._is_copy([] if batch.headers is None else batch.headers[row]):
                self._found.setdefault(offset, batch.header.base_offset + row)


class _Look:
    """Work for a thread: look into batches that hold copies."""

    def __init__(self, file: File, entries: Entries, note: Callable[[bytes], None], max_payload_bytes: int) -> None:
        self._file = file
        self._entries = entries
        self._note = note
        self.unread: list[CorruptError] = []

    def run(self) -> None:
        """Look. Raises OSError."""
        for position, length in zip(self._entries["position"].tolist(), self._entries["length"].tolist(), strict=True):
            try:
                self._note(self._file.read_at(position, length))
            except TidelogError as error:
                self.unread.append(CorruptError(error.message, **error.details))


def in_runs(found: dict[int, int]) -> list[Copied]:
    """Return records and their copies as runs, in which both ascend and the copies lie one behind the other."""
    runs: list[tuple[list[int], int]] = []
    for copy, offset in sorted((copy, offset) for offset, copy in found.items()):
        if runs and runs[-1][1] + len(runs[-1][0]) == copy and runs[-1][0][-1] < offset:
            runs[-1][0].append(offset)
        else:
            runs.append(([offset], copy))
    return [Copied(OffsetSet(offsets), first) for offsets, first in runs]
