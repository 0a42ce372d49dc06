"""Opening delivery logs, or making them. Blocks: it runs before a broker serves, or in a worker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ...protocol.errors import StorageError, TidelogError
from ..delivery.fold import DeliveryFold
from ..errors import storage_error
from ..services import Services
from ..storage.damage import DamagedRange
from ..storage.inventory import holds_log
from ..storage.log import Log, LogSpec
from ..storage.settings import LogSettings
from .delivery_log import DeliveryLog
from .partition_delivery import PARTITIONS_FOLDER, PartitionDelivery


@dataclass(slots=True)
class OpenedDelivery:
    """What opening one led to. `lost`: events that neither the log nor a snapshot of it has any more."""

    delivery: PartitionDelivery
    result: DeliveryLog | TidelogError
    lost: list[DamagedRange] = field(default_factory=list[DamagedRange])
    is_made: bool = False
    """Whether it is known to have been there; else a start that was killed may have left its name unsynced."""
    is_missing: bool = False
    """Whether it is known to have been there, and was not: made anew, empty."""


def is_there(services: Services, delivery: PartitionDelivery) -> bool:
    """Whether there is a delivery log on the disk. Raises OSError."""
    return holds_log(services.files, delivery.folder)


def open_deliveries(
    services: Services,
    settings: LogSettings,
    epoch: int,
    deliveries: Sequence[PartitionDelivery],
    made: frozenset[tuple[int, int]],
) -> list[OpenedDelivery]:
    """Open many delivery logs, or make them; what they share of their syncs is shared.

    `made` are the partitions whose delivery logs are known to have been made.
    """
    opened: list[OpenedDelivery] = []
    specs: list[LogSpec] = []
    folds: list[DeliveryFold] = []
    for delivery in deliveries:
        fold = DeliveryFold(delivery.bound)
        folds.append(fold)
        specs.append(LogSpec(delivery.folder, delivery.log_id, settings, epoch, fold, delivery.title))
        is_made = (delivery.topic_id, delivery.index) in made
        missing = is_made and not holds_log(services.files, delivery.folder)
        opened.append(OpenedDelivery(delivery, _UNOPENED, is_made=is_made, is_missing=missing))
    # The wall clock, not the broker's time: a worker must not move that on beside the loop.
    logs = Log.open_many(services.files, specs, now_us=services.time.wall_us())
    for one, fold, log in zip(opened, folds, logs, strict=True):
        one.result = log if isinstance(log, TidelogError) else _settled(services, one, log, fold)
    return opened


def _settled(services: Services, one: OpenedDelivery, log: Log, fold: DeliveryFold) -> DeliveryLog | TidelogError:
    try:
        if one.is_missing or not one.is_made:
            services.files.sync_folder(f"{PARTITIONS_FOLDER}/{one.delivery.topic_id}-{one.delivery.index}")
    except OSError as error:
        log.close(clean=False)
        return storage_error(error, f"the sync of the folder of {one.delivery.title}")
    covered = log.recovery.snapshot_offset or 0
    one.lost = [found for found in log.take_new_damage() if found.end > covered]
    return DeliveryLog(log, fold, services)


_UNOPENED = StorageError("expected a delivery log to be opened, found that nobody did")
