"""A bug that one acquire meets: its own business, told to its member and in the log, and to nobody else."""

from __future__ import annotations

import traceback

from ...protocol.errors import InternalError
from ..report import Report


def told_bug(report: Report, bug: Exception) -> InternalError:
    """Have the log tell of a bug, and return what its member is answered."""
    report("acquire failed", traceback="".join(traceback.format_exception(bug)))
    return InternalError("the broker met a bug; its log has the traceback")
