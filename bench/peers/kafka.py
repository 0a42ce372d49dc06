"""The same figures of a real Kafka (KRaft, one node): `python -m bench.peers.kafka [FAMILY ...]`.

It starts the server from its jars, and says how to install it where they are not there.
"""

from __future__ import annotations

import sys

from ..command import Command
from .kafka_families import FAMILIES, FLUSHED, PAGE_CACHE
from .kafka_server import version

COMMAND = Command(
    module="bench.peers.kafka",
    about=__doc__,
    label=lambda: f"Kafka {version()}",
    durabilities=(PAGE_CACHE, FLUSHED),
    families=FAMILIES,
)

if __name__ == "__main__":
    sys.exit(COMMAND.main())
