"""The broker's own log: facts are appended, folded at once, and acted on only when they are synced.

    record(fact) -> appended, state changed -> synced -> the deferred resolves -> whoever asked acts

A fact whose append failed changed nothing. One whose sync failed is in the state and perhaps on the disk: the log is
fenced then, nothing more is recorded, and the next start decides by what survived.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from ...protocol.batch import BatchHeader, decode_batch, encode_batch
from ...protocol.durability import Durability
from ...protocol.errors import CorruptError, TidelogError
from ...protocol.limits import MIB
from ..deferred import Deferred, end, failed
from ..producer_id import first_id
from ..services import Services
from ..storage.fold import FIRST_FOLD_SECTION, Section
from ..storage.log import Log
from ..storage.settings import LogSettings
from .facts import EpochRaised, Fact, ProducerIdsReserved, decode_fact, encode_fact
from .state import STATE_VERSION, MetaState, apply

META_FOLDER = "meta"
META_LOG_ID = 0

STATE_SECTION = FIRST_FOLD_SECTION

GROUPS_SECTION = FIRST_FOLD_SECTION + 1
"""Written once there was a group, so that a broker that knows of none refuses to overlook them."""

GROUPS_VERSION = 1

DELIVERIES_SECTION = FIRST_FOLD_SECTION + 2
"""Written once there was a delivery log."""

DELIVERIES_VERSION = 1

SEGMENT_BYTES = 4 * MIB
"""Facts are few and small; what a fresh broker reserves for them should be too."""

SNAPSHOT_INTERVAL_BYTES = MIB
"""Facts to read at a start, at most."""

PRODUCER_ID_BLOCK = 4096
"""Producer ids reserved by one synced fact; a start gives up what was left of the last block."""


class MetaFold:
    """The fold of the broker's own log."""

    def __init__(self) -> None:
        self.state = MetaState()

    def section_ids(self) -> frozenset[int]:
        """Return the sections that `restore` knows."""
        return frozenset({STATE_SECTION, GROUPS_SECTION, DELIVERIES_SECTION})

    def apply_batch(self, header: BatchHeader, batch: memoryview) -> None:
        """Apply the facts of a stored batch. Raises UnsupportedError for one that a later broker wrote."""
        for value in decode_batch(batch).values:
            apply(self.state, decode_fact(value or b""))

    def freeze(self) -> Callable[[], list[Section]]:
        """Pack the whole state: it is small."""
        packed = [Section(STATE_SECTION, STATE_VERSION, self.state.snapshot())]
        if self.state.groups.next_id > 1:
            packed.append(Section(GROUPS_SECTION, GROUPS_VERSION, self.state.groups.snapshot()))
        if self.state.deliveries:
            packed.append(Section(DELIVERIES_SECTION, DELIVERIES_VERSION, self.state.deliveries.snapshot()))
        return lambda: packed

    def restore(self, sections: Sequence[Section]) -> None:
        """Replace the state by what `freeze` led to."""
        self.state = MetaState()
        for section in sections:
            if section.id == GROUPS_SECTION:
                self.state.groups.restore(section.data)
            elif section.id == DELIVERIES_SECTION:
                self.state.deliveries.restore(section.data)
            else:
                self.state.restore(section.data)


class MetaLog:
    """Records facts, and holds the state that they make."""

    def __init__(self, services: Services, log: Log, fold: MetaFold) -> None:
        self.log = log
        self._services = services
        self._fold = fold

    def __repr__(self) -> str:
        return f"<MetaLog epoch {self.state.epoch}, {len(self.state.topics)} topics, {self.log!r}>"

    @property
    def state(self) -> MetaState:
        """What all facts together make."""
        return self._fold.state

    @classmethod
    def open(cls, services: Services) -> MetaLog:
        """Recover the facts, then begin a new epoch and a block of producer ids, synced; blocks.

        Raises CorruptError when facts are damaged that no snapshot covers: what they said cannot be guessed.
        """
        services.files.make_folder(META_FOLDER)
        services.files.sync_folder("")
        fold = MetaFold()
        settings = LogSettings(
            segment_bytes=SEGMENT_BYTES,
            snapshot_interval_bytes=SNAPSHOT_INTERVAL_BYTES,
            max_unsynced_bytes=services.commit.max_unsynced_bytes,
        )
        log = Log.open(
            services.files,
            META_FOLDER,
            log_id=META_LOG_ID,
            settings=settings,
            now_us=services.time.now_us(),
            fold=fold,
        )
        _refuse_lost_facts(log)
        meta = cls(services, log, fold)
        meta._begin()
        services.commit.add(log, lambda: services.upkeep.touch(log))
        services.upkeep.touch(log)
        return meta

    def _begin(self) -> None:
        now_us = self._services.time.now_us()
        epoch = max(self.state.epoch, self.log.epoch) + 1
        ids_upto = (self.state.producer_ids_upto or first_id(now_us)) + PRODUCER_ID_BLOCK
        self.log.raise_epoch(epoch)
        self._append([EpochRaised(epoch), ProducerIdsReserved(ids_upto)])
        task = self.log.begin_sync()
        assert task is not None, "what was just appended needs a sync"
        error = task.run()
        self.log.finish_sync(task, error)
        if error is not None:
            raise error

    def record(self, *facts: Fact) -> Deferred[None]:
        """Append facts as one batch; resolves when they are synced. Fails with what the disk said."""
        try:
            end_offset = self._append(facts)
        except TidelogError as error:
            return failed(error)
        commit, answer = self._services.commit, Deferred[None]()
        commit.appended(self.log, self._services.time.monotonic_us())
        commit.wait(self.log, end_offset, Durability.SYNCED, partial(end, answer))
        return answer

    def raise_epoch(self) -> Deferred[None]:
        """Begin a new epoch; `state.epoch` is it."""
        epoch = self.state.epoch + 1
        raised = self.record(EpochRaised(epoch))
        if self.state.epoch == epoch:
            self.log.raise_epoch(epoch)
        return raised

    def close(self, *, clean: bool) -> None:
        """Stop; blocks."""
        self.log.close(clean=clean)

    def _append(self, facts: Sequence[Fact]) -> int:
        now_us = self._services.time.now_us()
        batch = encode_batch([encode_fact(fact) for fact in facts], timestamp_us=now_us)
        return self.log.append(batch, [BatchHeader.read(batch)], now_us=now_us).end_offset


def _refuse_lost_facts(log: Log) -> None:
    covered = log.recovery.snapshot_offset or 0
    lost = [found for found in log.damaged if found.end > covered]
    if lost:
        raise CorruptError(
            f"expected every fact in {META_FOLDER}/, found facts {lost[0].start} to {lost[0].end} damaged:"
            " what topics and producers there are is not certain, so nothing is served;"
            f" restore {META_FOLDER}/ from a copy of this data directory",
            start=lost[0].start,
            end=lost[0].end,
        )
