"""What a start does with what the last run left: finish deletions, open everything, report what is strange."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..protocol.errors import TidelogError
from ..protocol.topic_name import short_name
from .administration import Registry
from .message_log import MessageLog
from .meta import DamageRemoved, MetaLog, PartitionsMade, TopicRecord, TopicRemoved
from .opening import PARTITIONS_FOLDER, Wanted, open_partitions, remove_partitions, stray_folders
from .partition import Partition
from .services import Services
from .topic import Topic
from .topic_defaults import TopicDefaults


@dataclass(slots=True)
class StartReport:
    """What a start found and did."""

    partitions: int = 0
    offline: dict[str, str] = field(default_factory=dict[str, str])
    """`topic/partition` -> why it could not be opened."""
    strays: list[str] = field(default_factory=list[str])
    """Folders that belong to no topic; they are left alone."""
    torn: int = 0
    """Partitions whose unacknowledged end was cut off."""
    damaged_records: int = 0
    scanned_bytes: int = 0
    duration_us: int = 0


def start_topics(services: Services, meta: MetaLog, registry: Registry, defaults: TopicDefaults) -> StartReport:
    """Open every topic that the facts name, and publish it; blocks."""
    began_us = services.time.monotonic_us()
    report = StartReport()
    services.files.make_folder(PARTITIONS_FOLDER)
    services.files.sync_folder("")
    _finish_deletions(services, meta)
    report.strays = stray_folders(services.files, meta.state)
    for name in report.strays:
        services.report("stray folder", folder=f"{PARTITIONS_FOLDER}/{name}")
    records = list(meta.state.topics.values())
    wanted = [one for record in records for one in _wanted(record, services, defaults)]
    opened = iter(open_partitions(services, meta.state, meta.state.epoch, wanted))
    for record in records:
        results = [next(opened) for _ in range(record.partitions)]
        _publish(record, results, registry, defaults)
        _note(record, results, services, report)
        _forget_removed(results, meta)
        if record.made < record.partitions and all(isinstance(result, MessageLog) for result in results):
            meta.record(PartitionsMade(record.id, record.partitions))
    report.duration_us = services.time.monotonic_us() - began_us
    return report


def _finish_deletions(services: Services, meta: MetaLog) -> None:
    for topic_id in list(meta.state.tombstones):
        try:
            remove_partitions(services.files, topic_id)
        except OSError as error:
            services.report("folders not removed", topic_id=topic_id, why=str(error))
        else:
            meta.record(TopicRemoved(topic_id))


def _wanted(record: TopicRecord, services: Services, defaults: TopicDefaults) -> list[Wanted]:
    in_force = defaults.in_force(record.settings)
    settings = defaults.log_settings(in_force, services.commit.max_unsynced_bytes)
    return [
        Wanted(record.id, index, settings, in_force.dedup, is_made=index < record.made, topic=record.name)
        for index in range(record.partitions)
    ]


def _publish(
    record: TopicRecord, results: list[MessageLog | TidelogError], registry: Registry, defaults: TopicDefaults
) -> None:
    settings = defaults.in_force(record.settings)
    slots: list[Partition | TidelogError] = [
        registry.make_partition(record.id, index, result, settings) if isinstance(result, MessageLog) else result
        for index, result in enumerate(results)
    ]
    registry.publish(Topic(record, settings, slots))


def _forget_removed(results: list[MessageLog | TidelogError], meta: MetaLog) -> None:
    """Record what retention has removed of the damage that is recorded."""
    for result in results:
        if isinstance(result, MessageLog):
            log = result.log
            if any(found.end <= log.start_offset for found in meta.state.quarantined.get(log.log_id, [])):
                meta.record(DamageRemoved(log.log_id, log.start_offset))


def _note(
    record: TopicRecord, results: list[MessageLog | TidelogError], services: Services, report: StartReport
) -> None:
    for index, result in enumerate(results):
        name = f"{short_name(record.name)}/{index}"
        if isinstance(result, TidelogError):
            report.offline[name] = result.message
            continue
        report.partitions += 1
        found = result.log.recovery
        report.torn += found.is_torn
        report.scanned_bytes += found.scanned_bytes
        report.damaged_records += sum(damage.end - damage.start for damage in result.log.damaged)
        for note in found.notes:
            services.report("recovery note", partition=name, note=note)
