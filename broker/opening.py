"""Opening partitions: their folders, their logs, and what is known to be damaged in them.

    partitions/<topic id>-<partition>/messages/

Blocks, so it runs before a broker serves, or in a worker. A partition that cannot be opened is an error in its
place; the others are opened.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ..protocol.errors import StorageError, TidelogError
from ..protocol.topic_name import short_name
from .dedup import DedupSettings, DedupTable
from .errors import storage_error
from .message_log import MESSAGES_FOLDER, MessageLog, messages_log_id
from .meta import META_FOLDER, MetaState
from .partition_memory import PartitionMemory
from .producers import ProducerTable
from .services import Services
from .storage.files import Files
from .storage.inventory import holds_log
from .storage.log import Log, LogSpec
from .storage.settings import LogSettings

PARTITIONS_FOLDER = "partitions"

_FOLDER = re.compile(r"([1-9][0-9]{0,9})-(0|[1-9][0-9]{0,9})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A partition to open. `is_made`: its log is known to have been there; `topic`: its full name."""

    topic_id: int
    index: int
    settings: LogSettings
    dedup: DedupSettings
    is_made: bool = False
    topic: str = ""

    @property
    def folder(self) -> str:
        """Where everything of the partition lies."""
        return partition_folder(self.topic_id, self.index)

    @property
    def messages_folder(self) -> str:
        """Where its log of messages lies."""
        return f"{self.folder}/{MESSAGES_FOLDER}"

    @property
    def title(self) -> str:
        """What users call it."""
        return f"{short_name(self.topic)}/{self.index}" if self.topic else self.messages_folder

    @property
    def log_id(self) -> int:
        """Its log of messages."""
        return messages_log_id(self.topic_id, self.index)


def partition_folder(topic_id: int, index: int) -> str:
    """Return where everything of a partition lies."""
    return f"{PARTITIONS_FOLDER}/{topic_id}-{index}"


def parse_folder(name: str) -> tuple[int, int] | None:
    """Return (topic id, partition) of a folder's name, or None for any other name."""
    match = _FOLDER.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else None


def open_partitions(
    services: Services, state: MetaState, epoch: int, wanted: Sequence[Wanted]
) -> list[MessageLog | TidelogError]:
    """Open many partitions' logs, or make them; one result each. What they share of their syncs is shared."""
    results: list[MessageLog | TidelogError | None] = [_make_folder(services.files, one) for one in wanted]
    _sync_new_folders(services.files, wanted, results)
    memories: list[PartitionMemory] = []
    specs: list[LogSpec] = []
    places = [place for place, result in enumerate(results) if result is None]
    for place in places:
        one = wanted[place]
        producers = ProducerTable(services.time.boottime_us(), named_epoch=state.named_epochs.get)
        memories.append(PartitionMemory(producers, DedupTable(one.dedup)))
        specs.append(LogSpec(one.messages_folder, one.log_id, one.settings, epoch, memories[-1], one.title))
    # The wall clock, not the broker's time: a worker must not move that on beside the loop.
    opened = Log.open_many(services.files, specs, now_us=services.time.wall_us())
    for place, memory, log in zip(places, memories, opened, strict=True):
        if isinstance(log, TidelogError):
            results[place] = log
            continue
        _quarantine_known(log, state)
        problem = _settle_folder(services.files, wanted[place])
        if problem is not None:
            log.close(clean=False)
        results[place] = problem or MessageLog(log, memory, services)
    return [result for result in results if result is not None]


def _make_folder(files: Files, one: Wanted) -> TidelogError | None:
    try:
        if one.is_made:
            return None if holds_log(files, one.messages_folder) else _lost(files, one)
        if not files.exists(one.folder):
            files.make_folder(one.folder)
    except OSError as error:
        return storage_error(error, f"making {one.folder}")
    return None


def _lost(files: Files, one: Wanted) -> StorageError:
    what = one.messages_folder if files.exists(one.folder) else one.folder
    return StorageError(
        f"expected the records of a partition in {what}, found that they are gone; put them back, or delete the topic"
    )


def refuse_lost_facts(files: Files) -> None:
    """Raise StorageError when there are partitions, but nothing is left of the facts that say what they are.

    Topic ids would be given out again, and new topics be given old records.
    """
    if not files.exists(PARTITIONS_FOLDER) or holds_log(files, META_FOLDER):
        return
    found = [name for name in files.list_folder(PARTITIONS_FOLDER) if parse_folder(name) is not None]
    if found:
        raise StorageError(
            f"expected the broker's own facts in {META_FOLDER}/, found that they are gone while {PARTITIONS_FOLDER}/"
            f" holds {len(found)} partitions; put {META_FOLDER}/ back, or move {PARTITIONS_FOLDER}/ away"
        )


def _sync_new_folders(files: Files, wanted: Sequence[Wanted], results: list[MessageLog | TidelogError | None]) -> None:
    try:
        files.sync_folder(PARTITIONS_FOLDER)
    except OSError as error:
        problem = storage_error(error, f"the sync of {PARTITIONS_FOLDER}")
        results[:] = [problem if result is None else result for result in results]


def _settle_folder(files: Files, one: Wanted) -> TidelogError | None:
    """Make the names in a partition's folder durable, once: a start that was killed may have left them unsynced."""
    if not one.is_made:
        try:
            files.sync_folder(one.folder)
        except OSError as error:
            return storage_error(error, f"the sync of {one.folder}")
    return None


def _quarantine_known(log: Log, state: MetaState) -> None:
    for found in state.quarantined.get(log.log_id, []):
        # What was said in an epoch is void for offsets that a later epoch gave out again.
        end = log.clamp(found.epoch, found.end)
        if found.start < end:
            log.quarantine(found.start, end)


def remove_partitions(files: Files, topic_id: int) -> None:
    """Remove all folders of a deleted topic; raises OSError."""
    for name in files.list_folder(PARTITIONS_FOLDER):
        found = parse_folder(name)
        if found is not None and found[0] == topic_id:
            files.remove_folder(f"{PARTITIONS_FOLDER}/{name}")
    files.sync_folder(PARTITIONS_FOLDER)


def stray_folders(files: Files, state: MetaState) -> list[str]:
    """Return names under `partitions` that belong to no topic and have no tombstone: reported, never removed."""
    strays: list[str] = []
    for name in files.list_folder(PARTITIONS_FOLDER):
        found = parse_folder(name)
        if found is None or (found[0] not in state.topics and found[0] not in state.tombstones):
            strays.append(name)
    return strays
