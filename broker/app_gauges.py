"""What is counted of topics and of syncs, by the names of the metrics."""

from __future__ import annotations

from .group_commit import GroupCommit
from .metrics import Values
from .storage.log import SyncTask
from .topics import Topics


def topic_gauges(topics: Topics) -> Values:
    """Return what is counted of all topics."""
    held = topics.statistics()
    return {
        "tidelog_topics": held.topics,
        "tidelog_partitions": held.partitions,
        "tidelog_offline_partitions": held.offline_partitions,
        "tidelog_fenced_partitions": held.fenced_partitions,
        "tidelog_damaged_records": held.damaged_records,
        "tidelog_producers": held.producers,
        "tidelog_dedup_ids": held.dedup_ids,
        "tidelog_dedup_ids_forgotten_total": held.dedup_ids_forgotten,
        "tidelog_expired_segments_total": held.expired_segments,
        "tidelog_expired_bytes_total": held.expired_bytes,
        "tidelog_failed_upkeep_steps_total": held.failed_upkeep_steps,
    }


def sync_gauges(commit: GroupCommit[SyncTask]) -> Values:
    """Return what is counted of syncs."""
    found = commit.statistics()
    return {
        "tidelog_unsynced_bytes": found.unsynced_bytes,
        "tidelog_dirty_logs": found.dirty_logs,
        "tidelog_sync_waiting": found.waiting,
        "tidelog_sync_rounds_total": found.rounds,
        "tidelog_synced_logs_total": found.synced_logs,
        "tidelog_failed_syncs_total": found.failed_syncs,
    }
