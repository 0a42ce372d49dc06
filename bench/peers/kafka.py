"""The same figures of a real Kafka (KRaft, one node): `python -m bench.peers.kafka [FAMILY ...]`.

It starts the server from its jars, and says how to install it where they are not there.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ..command import EXIT_NOT_INSTALLED, Command
from ..errors import NotInstalledError
from .kafka_server import version


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures asked for; 1 when something is not as it was sent, 3 when Kafka is not installed."""
    try:
        from .kafka_families import FAMILIES, FLUSHED, PAGE_CACHE  # needs confluent-kafka
        from .kafka_share import queue
    except NotInstalledError as error:
        print(error, file=sys.stderr)
        return EXIT_NOT_INSTALLED
    command = Command(
        module="bench.peers.kafka",
        about=__doc__,
        label=lambda: f"Kafka {version()}",
        durabilities=(PAGE_CACHE, FLUSHED),
        families={**FAMILIES, "queue": queue},
    )
    return command.main(arguments)


if __name__ == "__main__":
    sys.exit(main())
