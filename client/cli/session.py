"""What every command that talks to a broker does first: connect, or say in one line why not."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ...protocol.errors import RangeNotAvailableError, UnknownGroupError, UnknownPartitionError, UnknownTopicError
from .errors import WrongUsage
from .options import DEFAULT_TIMEOUT_S
from .output import say
from .wording import reworded

if TYPE_CHECKING:
    from ..blocking.client import Client

CLIENT_NAME = "tidelog-cli"
"""What a broker's log calls us."""

URL_VARIABLE = "TIDELOG_URL"


class _ToStderr(logging.Handler):
    """Shows the client's own log (a connection lost, made again) as lines on standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        say(f"tidelog: {record.getMessage()}")


@contextmanager
def connected(url: str | None, timeout: float | None = None) -> Generator[Client]:
    """Give a client whose calls take at most `timeout` seconds. Raises WrongUsage for an address that is none."""
    from ..blocking.client import Client

    logger = logging.getLogger("tidelog")
    if not any(isinstance(handler, _ToStderr) for handler in logger.handlers):
        logger.addHandler(_ToStderr(logging.WARNING))
        logger.propagate = False
    with address_refused(url):
        client = Client(url, timeout=DEFAULT_TIMEOUT_S if timeout is None else timeout, client_name=CLIENT_NAME)
    with client:
        try:
            yield client
        except (UnknownTopicError, UnknownGroupError, RangeNotAvailableError) as error:
            raise reworded(error, client.address) from error


@contextmanager
def address_refused(url: str | None) -> Generator[None]:
    """Turn the ValueError of an address that is none into WrongUsage that says where it stood."""
    try:
        yield
    except ValueError as error:
        raise WrongUsage(f"{URL_VARIABLE if url is None else '--url'}: {error}") from None


def check_partition(partition: int, partitions: int, topic: str) -> None:
    """Raise UnknownPartitionError for a partition that a topic of so many has not."""
    if partition >= partitions:
        raise UnknownPartitionError(f"expected a partition of {topic} from 0 to {partitions - 1}, found {partition}")
