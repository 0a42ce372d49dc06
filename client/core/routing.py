"""The routing columns of messages that were given one by one: None where no message has an entry."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ...protocol.columns import DEDUP_ID, RETRY
from ...protocol.dedup_id import NO_DEDUP_ID
from ...protocol.retries import NO_RETRY

Column = npt.NDArray[np.void]


def dedup_id_column(ids: Sequence[bytes | None]) -> Column | None:
    """Return hashed dedup ids as they stand in a batch."""
    return np.frombuffer(_joined(ids, NO_DEDUP_ID), dtype=DEDUP_ID) if ids.count(None) < len(ids) else None


def retry_column(retries: Sequence[bytes | None]) -> Column | None:
    """Return packed retry policies as they stand in a batch."""
    return np.frombuffer(_joined(retries, NO_RETRY), dtype=RETRY) if retries.count(None) < len(retries) else None


def _joined(entries: Sequence[bytes | None], none: bytes) -> bytes:
    return b"".join([none if entry is None else entry for entry in entries])
