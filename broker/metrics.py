"""Counters and gauges: what happened since the start, and how things stand.

Plain numbers that the code which causes them adds to; `Stats` reads them all at once. Names follow Prometheus:
`_total` only ever rises, everything else goes up and down, labels stand in braces. `HELP` documents every name, and
a test compares the two.
"""

from __future__ import annotations

from collections import Counter

from ..protocol.api import Api

Values = dict[str, int | float]

HELP: dict[str, str] = {
    "tidelog_uptime_seconds": "Since the broker began to serve.",
    "tidelog_connections": "Open connections.",
    "tidelog_connections_total": "Connections accepted, those refused later included.",
    "tidelog_connections_refused_total": "Connections closed at once because there were too many, or no descriptor.",
    "tidelog_session_stalls_total": "Times a connection was not read because it reached one of its bounds.",
    "tidelog_memory_bytes": "Held by connections: buffers, waiting requests, replies not yet sent.",
    "tidelog_memory_waits_total": "Times a connection had to wait for the memory of others.",
    "tidelog_requests_total": "Requests taken, by api.",
    "tidelog_errors_total": "Requests refused and connections ended by the broker, by code.",
    "tidelog_produced_batches_total": "Batches stored.",
    "tidelog_produced_records_total": "Records stored.",
    "tidelog_produce_request_bytes_total": "Bytes of the batches in produce requests, stored or not.",
    "tidelog_duplicate_batches_total": "Batches that were stored before, and answered with the first receipt.",
    "tidelog_duplicate_records_total": "Records not stored, because their dedup id was known.",
    "tidelog_refused_batches_total": "Batches answered with an error; after a failed sync one may still be stored.",
    "tidelog_fetched_bytes_total": "Bytes of stored batches given to readers.",
    "tidelog_fetches_waited_total": "Fetches that had to wait for messages.",
    "tidelog_cold_reads_total": "Replies whose bytes had to be read from the disk first.",
    "tidelog_topics": "Live topics.",
    "tidelog_partitions": "Partitions of all topics.",
    "tidelog_offline_partitions": "Partitions that could not be opened at the start.",
    "tidelog_fenced_partitions": "Partitions that take no writes because a sync of them failed.",
    "tidelog_damaged_records": "Records whose bytes are damaged; the rest is served.",
    "tidelog_producers": "Producers that are remembered, over all partitions.",
    "tidelog_dedup_ids": "Dedup ids that are remembered, over all partitions.",
    "tidelog_dedup_ids_forgotten_total": "Dedup ids forgotten within their window, because a partition had too many.",
    "tidelog_groups": "Live groups.",
    "tidelog_expired_segments_total": "Segments removed by retention.",
    "tidelog_expired_bytes_total": "Their bytes.",
    "tidelog_unsynced_bytes": "Appended and not yet durable, of all logs.",
    "tidelog_dirty_logs": "Logs with bytes that are not yet durable.",
    "tidelog_sync_waiting": "Requests that wait for a sync.",
    "tidelog_sync_rounds_total": "Rounds of group commit.",
    "tidelog_synced_logs_total": "Logs synced, over all rounds.",
    "tidelog_failed_syncs_total": "Syncs that failed; each fenced its log.",
    "tidelog_failed_upkeep_steps_total": "Segments, indexes, snapshots and marks that could not be made; tried again.",
    "tidelog_clock_jumps_total": "Forward steps of the wall clock of over an hour; each delays retention by age.",
    "tidelog_archived_segments_total": "Segments copied to the archive.",
    "tidelog_archived_bytes_total": "Their bytes.",
    "tidelog_archive_errors_total": "Copies that failed; they are tried again.",
    "tidelog_archive_waiting_segments": "Sealed segments that are not archived yet.",
    "tidelog_archive_held_segments": "Segments of archived topics kept past retention, for the archive or a group.",
    "tidelog_archive_lag_seconds": "How long the partition that waits longest for the archive has waited.",
    "tidelog_archive_fetched_segments_total": "Segments fetched from the archive for readers.",
    "tidelog_archive_fetched_bytes_total": "Their bytes.",
    "tidelog_archive_damaged_segments_total": "Segments fetched that were not what was archived.",
    "tidelog_archive_cache_bytes": "Archived segments at hand on the local disk.",
    "tidelog_queue_groups_at_work": "Queue groups with members, leases or waits; of others only records are kept.",
    "tidelog_queue_acquired_messages_total": "Messages leased, by group.",
    "tidelog_queue_redelivered_messages_total": "Messages leased that had been handed over before, by group.",
    "tidelog_queue_handed_over_messages_total": "Messages handed to the code of consumers: attempts, by group.",
    "tidelog_queue_accepted_messages_total": "Messages acknowledged, by group.",
    "tidelog_queue_released_messages_total": "Messages given back after an attempt, to be tried again, by group.",
    "tidelog_queue_rejected_messages_total": "Messages given up: refused, or at their last attempt, by group.",
    "tidelog_queue_dropped_messages_total": "Messages given up and not kept in a dead-letter topic, by group.",
    "tidelog_queue_dead_lettered_messages_total": "Messages given up and copied to their dead-letter topic, by group.",
    "tidelog_queue_dead_letters_lost_total": (
        "Messages given up, and removed or damaged before a copy was made, by group."
    ),
    "tidelog_queue_redriven_messages_total": "Dead letters made available to their group again, by group.",
    "tidelog_queue_returned_messages_total": "Messages given back uncounted: not handled, or suspects, by group.",
    "tidelog_queue_expired_messages_total": "Messages whose lease ended by itself, by group.",
    "tidelog_queue_lease_lost_total": "Parts of settles refused because the lease had ended, by group.",
    "tidelog_queue_removed_by_retention_messages_total": "Unsettled messages removed by retention, by group.",
    "tidelog_queue_removed_by_damage_messages_total": "Unsettled messages settled because they are damaged, by group.",
    "tidelog_queue_leased_messages": "Messages leased now, by group.",
    "tidelog_queue_dead_lettering_messages": "Messages given up that have no copy yet, by group.",
    "tidelog_queue_dead_letters_blocked_partitions": "Partitions whose dead letters cannot be copied now, by group.",
    "tidelog_queue_delayed_messages": "Messages released that wait for their time, by group.",
    "tidelog_queue_backlog_messages": "Messages not settled, those leased included, by group.",
    "tidelog_queue_lane_available_messages": "Messages available, by group, topic and priority if several.",
    "tidelog_queue_lane_oldest_seconds": "How long ago the oldest of them was stored, by group, topic, priority.",
    "tidelog_queue_members": "Members that were heard of lately or hold something, and did not leave, by group.",
    "tidelog_queue_waiting_acquires": "Acquires that wait for messages, by group.",
    "tidelog_queue_clipped_messages_total": "Messages lost with the power after deliveries of them were recorded.",
    "tidelog_queue_degraded_partitions": "Parts of groups that give no leases because records of theirs are lost.",
    "tidelog_retention_held_segments": "Segments kept past their retention, because a group has not settled them.",
    "tidelog_loop_lag_seconds": "The longest the event loop was late within the last half minute to minute.",
}
"""Every metric by name, without labels."""


class Metrics:
    """What the edge counts."""

    def __init__(self) -> None:
        self.connections = 0
        self.connections_total = 0
        self.connections_refused = 0
        self.session_stalls = 0
        self.produced_batches = 0
        self.produced_records = 0
        self.produce_request_bytes = 0
        self.duplicate_batches = 0
        self.duplicate_records = 0
        self.refused_batches = 0
        self.fetched_bytes = 0
        self.fetches_waited = 0
        self.cold_reads = 0
        self._requests: Counter[int] = Counter()
        self._errors: Counter[str] = Counter()

    def count_request(self, api: int) -> None:
        """Count a request taken."""
        self._requests[api] += 1

    def count_error(self, code: str) -> None:
        """Count a refusal."""
        self._errors[code] += 1

    def values(self) -> Values:
        """Return all of them by name."""
        known = set(Api)
        requests: Values = {}
        for api, count in self._requests.items():
            label = f'tidelog_requests_total{{api="{Api(api).name.lower() if api in known else "unknown"}"}}'
            requests[label] = requests.get(label, 0) + count
        return {
            "tidelog_connections": self.connections,
            "tidelog_connections_total": self.connections_total,
            "tidelog_connections_refused_total": self.connections_refused,
            "tidelog_session_stalls_total": self.session_stalls,
            "tidelog_produced_batches_total": self.produced_batches,
            "tidelog_produced_records_total": self.produced_records,
            "tidelog_produce_request_bytes_total": self.produce_request_bytes,
            "tidelog_duplicate_batches_total": self.duplicate_batches,
            "tidelog_duplicate_records_total": self.duplicate_records,
            "tidelog_refused_batches_total": self.refused_batches,
            "tidelog_fetched_bytes_total": self.fetched_bytes,
            "tidelog_fetches_waited_total": self.fetches_waited,
            "tidelog_cold_reads_total": self.cold_reads,
            **requests,
            **{f'tidelog_errors_total{{code="{code}"}}': count for code, count in self._errors.items()},
        }
