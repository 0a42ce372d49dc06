"""Which options of a read a job sets by itself: given to it as well, they would win over what it decided, unseen.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import OptionError
from ..option_table import OPTIONS, PATH

SELECTION = ("subscribe", "subscribePattern", "assign", PATH, "table")
BOUNDS = (
    *(f"{side}{of}" for side in ("starting", "ending") for of in ("Offsets", "Timestamp", "OffsetsByTimestamp")),
    "startingOffsetsByTimestampStrategy",
    "by",
)
SPLITTING = ("minPartitions", "maxRecordsPerPartition", "maxBytesPerPartition")
BROKER = tuple(option.name for option in OPTIONS if "url" in (option.name, option.alias_of))

OF_EVERY_JOB = (*BROKER, *SELECTION, *BOUNDS)


def check_given(options: Mapping[str, str], job: str, more: tuple[str, ...] = ()) -> None:
    """Raise OptionError for an option that the job says by itself, by its topics, times and the like."""
    own = {name.lower(): name for name in (*OF_EVERY_JOB, *more)}
    found = sorted(own[name.lower()] for name in options if name.lower() in own)
    if found:
        raise OptionError(f"options: expected none that the {job} sets by itself, found {', '.join(found)}")
