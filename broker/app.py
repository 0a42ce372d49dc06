"""The broker: puts its parts together, runs them, and takes them down in order.

    start   lock the folder -> its version -> listen -> recover all logs (in a thread) -> start the parts -> accept
    stop    accept no more -> answer what is in flight -> stop the parts -> sync, snapshots, close -> unlock

Killed anywhere in between, the next start recovers; a clean stop only makes it faster.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version

import trio

from ..protocol.messages import Message
from .app_archive import ArchiveParts, archive_gauges, open_archive, store_of
from .app_groups import GroupParts, group_gauges, open_groups
from .app_limits import broker_limits, longest_wait_us, session_limits, topic_defaults, topic_limits
from .background import Heartbeat, RungTimers, Stepped, SyncThread, Workers, run_timers
from .clock import BrokerTime, Clock
from .config import Address, Config
from .data_folder import claim
from .deferred import Reply
from .flow import Flow
from .group_commit import GroupCommit
from .handlers import Answer, Context, empty_reply, handle
from .logging import get_logger
from .metrics import Metrics, Values
from .rehearsal import Rehearsal
from .server import Server, open_listeners
from .services import Services
from .session import Session, Surroundings
from .session_memory import MemoryBudget
from .storage.files import Files
from .storage.log import SyncTask
from .storage.sync_round import run_round
from .timers import Timers
from .topics import Topics
from .turns import Pace

BUFFER_SWEEP_US = 10_000_000
"""How often receive buffers are taken back from connections that are idle."""

COLD_READERS = 4
"""Threads that read in what slow connections are still to be sent."""


class Broker:
    """A whole broker over a data directory and a clock."""

    def __init__(self, files: Files, clock: Clock, config: Config, rehearsal: Rehearsal | None = None) -> None:
        """`files` is this broker's own from now on: `run` locks and closes it. In a rehearsal another part of the
        program moves the clock and calls what is due, see `stepping`."""
        self._config = config
        self._files = files
        self._time = BrokerTime(clock)
        self._timers = RungTimers()
        self._quiet_timers = Timers() if rehearsal is not None else self._timers
        """For what nobody waits for to happen: housekeeping, and the end of waits. Else one heap has both."""
        self._is_stepped = rehearsal is not None
        self._rehearsal = rehearsal or Rehearsal(handle, random.random)
        self._commit: GroupCommit[SyncTask] = GroupCommit(
            max_unsynced_bytes=config.log.max_unsynced_bytes, sync_behind_us=config.log.sync_interval_us
        )
        self._sync = SyncThread(self._commit, lambda tasks: run_round(files, tasks), self._time.monotonic_us)
        self._workers = Workers(self._sync.end_turn)
        self._heartbeat = Heartbeat(self._time.monotonic_us, self._sync.poll)
        self._metrics = Metrics()
        self._memory = MemoryBudget(config.broker.max_memory_bytes)
        self._began_us = self._time.monotonic_us()
        self._stopping = trio.Event()
        self._drain_scope = trio.CancelScope()
        self._server: Server | None = None
        self._archive: ArchiveParts | None = None
        self._look: Callable[[], None] = _nothing
        """Has retention look at everything, once topics are open."""
        self._groups: GroupParts | None = None
        self.addresses: list[Address] = []
        """Where it listens, once it runs."""

    def __repr__(self) -> str:
        return f"<Broker {' '.join(map(str, self.addresses)) or 'not listening'}>"

    @property
    def url(self) -> str:
        """What a client on this machine connects to."""
        return f"tidelog://{self.addresses[0]}"

    def stop(self, *, at_once: bool = False) -> None:
        """Begin a clean stop; `at_once` does not wait for requests in flight. A second call is as one at once."""
        if at_once or self._stopping.is_set():
            self._drain_scope.cancel()
        self._stopping.set()

    def attach(self, sock: socket.socket, peer: str = "embedded") -> None:
        """Serve a connected socket, as one end of a `socketpair`."""
        assert self._server is not None, "a broker takes connections while it runs"
        self._server.attach(sock, peer)

    async def run(
        self, *, listen: bool = True, task_status: trio.TaskStatus[Broker] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve until `stop`. Raises DataDirLockedError, CannotListenError, or why the data cannot be opened."""
        listeners: list[socket.socket] = []
        try:
            claim(self._files)
            if listen:
                listeners = open_listeners(self._config.broker.listen)
            self.addresses = [Address(*listener.getsockname()[:2]) for listener in listeners]
            topics = await trio.to_thread.run_sync(self._open)
            await self._serve(topics, listeners, task_status)
        finally:
            for listener in listeners:
                listener.close()
            self._files.close()

    async def _serve(
        self, topics: Topics, listeners: Sequence[socket.socket], task_status: trio.TaskStatus[Broker]
    ) -> None:
        is_clean = False
        try:
            async with trio.open_nursery() as nursery:
                server = self._start_parts(nursery, topics)
                nursery.start_soon(server.serve, listeners)
                self._log_start(topics)
                task_status.started(self)
                await self._stopping.wait()
                if self._archive is not None:
                    self._archive.archive.stop()
                await self._drain(server)
                is_clean = True
                nursery.cancel_scope.cancel()
        finally:
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(partial(topics.close, clean=is_clean))
            get_logger().info("stopped")

    def stepped(self) -> Stepped:
        """Return what a broker whose clock is moved by hand is moved by."""
        assert self._is_stepped, "expected a broker that is stepped"
        interval_us = self._config.log.retention_check_interval_us
        return Stepped(
            self._timers, self._quiet_timers, self._commit, self._sync, self._workers, self._look, interval_us
        )

    # -- parts ---------------------------------------------------------------------------------------------------

    def _open(self) -> Topics:
        archive = self._config.archive
        store = store_of(archive)  # first: what is wrong with it is said before the logs are read
        services = Services(
            files=self._files,
            time=self._time,
            timers=self._timers,
            commit=self._commit,
            offload=self._workers,
            report=_report,
            batch_limits=self._config.batch_limits,
        )
        defaults = topic_defaults(self._config, has_archive=store is not None)
        opened = Topics.open(services, defaults=defaults, limits=topic_limits(self._config))
        self._look = opened.expire
        longest_us = longest_wait_us(is_rehearsed=self._is_stepped)
        self._groups = open_groups(
            self._config, services, opened, self._quiet_timers, self._rehearsal.chance, longest_us
        )
        if store is not None:
            make = open_archive(
                store, archive, self._config.broker.data_dir, services, self._files, self._sync.end_turn
            )
            self._archive = make(opened)
        return opened

    def _start_parts(self, nursery: trio.Nursery, topics: Topics) -> Server:
        """Start what runs beside the sessions, and return the server."""
        context = self._context(topics)

        def answer(session: Session, message: Message, bulk: memoryview) -> Answer:
            return self._rehearsal.handle(context, session, message, bulk)

        def empty(api: int) -> Reply:
            return empty_reply(context, api)

        self._workers.start(nursery)
        if self._archive is not None:
            for workers in self._archive.workers:
                workers.start(nursery)
            self._archive.archive.begin()
        nursery.start_soon(self._sync.run)
        if not self._is_stepped:
            nursery.start_soon(run_timers, self._timers, self._time.monotonic_us, self._sync.end_turn)
            nursery.start_soon(self._heartbeat.run)
            self._repeat(BUFFER_SWEEP_US, self._memory.sweep)  # stepped, a step costs more than idle buffers
            self._repeat(self._config.log.retention_check_interval_us, topics.expire)
        broker = self._config.broker
        around = Surroundings(
            handle=answer,
            end_turn=self._sync.end_turn,
            empty_reply=empty,
            limits=session_limits(self._config),
            memory=self._memory,
            metrics=self._metrics,
            timers=self._quiet_timers,
            monotonic_us=self._time.monotonic_us,
            nursery=nursery,
            warming=trio.CapacityLimiter(COLD_READERS),
        )
        self._server = Server(
            around, max_connections=broker.max_connections, send_buffer_bytes=broker.send_buffer_bytes
        )
        return self._server

    def _context(self, topics: Topics) -> Context:
        config = self._config
        assert self._groups is not None, "groups are opened with the topics"
        return Context(
            topics=topics,
            groups=self._groups.groups,
            group_details=self._groups.queues,
            queues=self._groups.queues,
            dead_letters=self._groups.dead_letters,
            time=self._time,
            timers=self._quiet_timers,
            offload=self._workers,
            metrics=self._metrics,
            gauges=lambda pace: self._gauges(topics, pace),
            limits=broker_limits(config, longest_wait_us(is_rehearsed=self._is_stepped)),
            node_id=config.broker.node_id,
            version=version("tidelog"),
            auto_create=config.topics.auto_create,
            archive=None if self._archive is None else self._archive.archive,
        )

    def _repeat(self, interval_us: int, action: Callable[[], None]) -> None:
        """Call `action` every so often, first after one interval."""

        def again() -> None:
            self._repeat(interval_us, action)
            action()

        self._quiet_timers.add(self._time.monotonic_us() + interval_us, again)

    def _gauges(self, topics: Topics, pace: Pace) -> Flow[Values]:
        held, groups = (yield from topics.statistics(pace)), (yield from group_gauges(self._groups, pace))
        commit = self._commit.statistics()
        return {
            "tidelog_uptime_seconds": (self._time.monotonic_us() - self._began_us) / 1e6,
            "tidelog_memory_bytes": self._memory.used_bytes,
            "tidelog_memory_waits_total": self._memory.waits,
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
            "tidelog_unsynced_bytes": commit.unsynced_bytes,
            "tidelog_dirty_logs": commit.dirty_logs,
            "tidelog_sync_waiting": commit.waiting,
            "tidelog_sync_rounds_total": commit.rounds,
            "tidelog_synced_logs_total": commit.synced_logs,
            "tidelog_failed_syncs_total": commit.failed_syncs,
            "tidelog_failed_upkeep_steps_total": held.failed_upkeep_steps,
            **archive_gauges(None if self._archive is None else self._archive.archive),
            **groups,
            "tidelog_clock_jumps_total": self._time.jumps,
            "tidelog_loop_lag_seconds": self._heartbeat.max_lag_us / 1e6,
        }

    # -- the end -------------------------------------------------------------------------------------------------

    def _log_start(self, topics: Topics) -> None:
        found = topics.report
        get_logger().info(
            "serving",
            url=" ".join(map(str, self.addresses)),
            partitions=found.partitions,
            offline=len(found.offline),
            strays=len(found.strays),
            recovered_in_ms=found.duration_us // 1000,
            scanned_bytes=found.scanned_bytes,
            torn=found.torn,
            damaged_records=found.damaged_records,
        )
        for partition, reason in found.offline.items():
            get_logger().error("partition offline", partition=partition, reason=reason)

    async def _drain(self, server: Server) -> None:
        get_logger().info("stopping")
        with self._drain_scope:
            await server.drain(self._config.broker.drain_timeout_us / 1e6)


def _nothing() -> None:
    """Stand in until there is something to do."""


def _report(event: str, **fields: str | int) -> None:
    get_logger().warning(event, **fields)
