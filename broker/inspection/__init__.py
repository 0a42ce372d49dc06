"""Reading a data directory without a broker and without changing anything: what is stored, and is it intact?"""

from __future__ import annotations

from .data_check import check_data
from .findings import Finding, Findings, Severity
from .read_only_files import ReadOnlyFiles

__all__ = ["Finding", "Findings", "ReadOnlyFiles", "Severity", "check_data"]
