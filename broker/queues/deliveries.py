"""The delivery logs of all partitions: found at a start, made on first use, opened anew after a fault.

What opening finds is recorded before anything is served from it: that there is such a log, so that one which is missing
later was lost; and whose part of it is lost, so that nothing is leased from what cannot be told.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from ...protocol.errors import TidelogError, UnknownTopicIdError
from ..deferred import Deferred, failed, resolved
from ..delivery.moment import Moment
from ..delivery.pending_letters import PENDING_GROUP
from ..errors import anew, storage_error
from ..flow import called_back
from ..groups import Groups
from ..meta import DeliveryDegraded, DeliveryMade
from ..partition import Partition
from ..services import Services
from ..storage.settings import LogSettings
from ..topics import Topics
from .delivery_log import DeliveryLog
from .delivery_opening import OpenedDelivery, is_there, open_deliveries
from .partition_delivery import PartitionDelivery


def _nothing() -> None:
    """Follow no opening."""


def _not_opened(result: DeliveryLog | TidelogError) -> TidelogError:
    """Return why there is no log: what kept it from being opened, or that its topic was deleted meanwhile."""
    if isinstance(result, TidelogError):
        return anew(result)
    return UnknownTopicIdError("expected a topic that exists, found that it was deleted")


class Deliveries:
    """All delivery logs of one broker."""

    def __init__(
        self,
        services: Services,
        topics: Topics,
        groups: Groups,
        settings: LogSettings,
        changed: Callable[[PartitionDelivery], None],
    ) -> None:
        """`changed` is told of each that was opened, opened anew, fenced, or could not be opened."""
        self._services = services
        self._topics = topics
        self._groups = groups
        self._settings = settings
        self._changed = changed
        self._waiting: dict[PartitionDelivery, list[Deferred[None]]] = {}
        """Those who want a log that is being opened."""

    def __repr__(self) -> str:
        return f"<Deliveries {len(self._made)} made>"

    def open_all(self) -> None:
        """Open those that there are; blocks. Before anything is served."""
        there: list[PartitionDelivery] = []
        made, live = self._made, self._timeouts()
        for topic in self._topics.all():
            for one in topic.partitions:
                try:
                    if one.delivery.place in made or is_there(self._services, one.delivery):
                        there.append(one.delivery)
                except OSError as error:
                    why = storage_error(error, f"opening {one.delivery.folder}")
                    self._take(OpenedDelivery(one.delivery, why), live)
        for opened in open_deliveries(self._services, self._settings, self._topics.epoch, there, made):
            self._take(opened, live)

    @property
    def _made(self) -> frozenset[tuple[int, int]]:
        return frozenset(self._topics.meta.state.deliveries.made)

    def open(self, delivery: PartitionDelivery) -> None:
        """Open a delivery log, or make it, in a worker; no effect while that is under way."""
        if delivery.is_opening or delivery.log is not None or delivery.problem() is not None:
            return
        self._begin_opening(delivery)

    def opened(self, delivery: PartitionDelivery) -> Deferred[None]:
        """Have a delivery log opened, or made; resolves once it is open, fails with what keeps it from being used."""
        problem = delivery.problem()
        if problem is not None:
            return failed(problem)
        if delivery.log is not None:
            return resolved(None)
        answer: Deferred[None] = Deferred()
        self._waiting.setdefault(delivery, []).append(answer)
        self.open(delivery)
        return answer

    def bring_back(self, partition: Partition) -> Deferred[None]:
        """Open the delivery log of a partition that was offline, if there is one, before it serves: until then nobody
        can tell what of its messages is settled. Resolves when that was tried."""
        delivery, made = partition.delivery, self._made
        done: Deferred[None] = Deferred()
        opened: list[OpenedDelivery] = []

        def work() -> None:
            try:
                if delivery.place in made or is_there(self._services, delivery):
                    opened.extend(open_deliveries(self._services, self._settings, self._topics.epoch, [delivery], made))
            except OSError as error:
                opened.append(OpenedDelivery(delivery, storage_error(error, f"opening {delivery.folder}")))

        def take() -> None:
            for one in opened:
                self._take(one)
            done.resolve(None)

        self._services.offload(work, take)
        return done

    def _reopen(self, delivery: PartitionDelivery) -> Deferred[None]:
        """Open a delivery log anew; resolves when that was tried."""
        return called_back(lambda done: self._begin_opening(delivery, done))

    def _begin_opening(self, delivery: PartitionDelivery, done: Callable[[], object] = _nothing) -> None:
        delivery.is_opening = True
        opened: list[OpenedDelivery] = []
        made = self._made

        def work() -> None:
            opened.extend(open_deliveries(self._services, self._settings, self._topics.epoch, [delivery], made))

        def take() -> None:
            self._take(opened[0])
            done()

        self._services.offload(work, take)

    def _take(self, opened: OpenedDelivery, live: Mapping[int, int] | None = None) -> None:
        """Go on with what opening led to; `live`: `_timeouts`, which a start asks for once."""
        delivery, result = opened.delivery, opened.result
        delivery.reopen = partial(self._reopen, delivery)
        delivery.on_change = partial(self._changed, delivery)
        if isinstance(result, DeliveryLog):
            self._record_opened(opened)
            self._serve(result, max(result.log.epoch, delivery.messages().epoch), live or self._timeouts())
            result.load_retries(delivery.messages())  # before anything is served, or after an operator asked for it
        else:
            self._services.report(
                "delivery log not opened", topic_id=delivery.topic_id, partition=delivery.index, why=result.message
            )
        delivery.take(result)
        for answer in self._waiting.pop(delivery, ()):
            answer.follow(self.opened(delivery) if delivery.log is not None else failed(_not_opened(result)))

    def _record_opened(self, opened: OpenedDelivery) -> None:
        """Record that there is such a log, and whose part of it is lost: that of every group there is now."""
        delivery, meta = opened.delivery, self._topics.meta
        place = delivery.place
        if place not in meta.state.deliveries.made:
            meta.record(DeliveryMade(*place))
        if opened.lost or opened.is_missing:
            groups = {one.id: one.begin(*place).generation for one in self._groups.reading(delivery.topic_id)}
            self._services.report("deliveries lost", topic_id=delivery.topic_id, partition=delivery.index)
            meta.record(DeliveryDegraded(*place, groups))
        delivery.degraded = meta.state.deliveries.degraded.get(place, {})

    def _timeouts(self) -> dict[int, int]:
        """Return the visibility timeouts of all groups that there are."""
        live = {group.id: group.settings.visibility_timeout_us for group in self._groups.all()}
        live[PENDING_GROUP] = 0  # nothing of it is ever leased
        return live

    def _serve(self, log: DeliveryLog, epoch: int, live: Mapping[int, int]) -> None:
        for gone in log.fold.states.keys() - live.keys():
            log.fold.drop(gone)
        time = self._services.time
        log.fold.serve(epoch, Moment(time.now_us(), time.monotonic_us()), time.monotonic_us, live.__getitem__)
