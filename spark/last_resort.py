"""Lets the connector's warnings be seen where nobody set up logging, as in the worker processes that Spark starts.

The client's logger is silent unless a program listens, as libraries are. What a task passed over must not be: it goes
to standard error then, which Spark keeps in the executor's log. Where the program listens, this does nothing.
"""

from __future__ import annotations

import logging
import sys
from typing import ClassVar

NAME = "tidelog.spark"


class LastResort(logging.Handler):
    """Writes warnings to standard error if no logger above has a handler that writes."""

    above: ClassVar = (logging.getLogger("tidelog"), logging.getLogger())

    def emit(self, record: logging.LogRecord) -> None:
        """Write one."""
        if not any(not isinstance(each, logging.NullHandler) for logger in self.above for each in logger.handlers):
            print(f"{record.levelname} {record.name}: {self.format(record)}", file=sys.stderr, flush=True)


def warn_at_least() -> None:
    """Attach it, once in a process."""
    logger = logging.getLogger(NAME)
    if not any(isinstance(each, LastResort) for each in logger.handlers):
        logger.addHandler(LastResort(logging.WARNING))
