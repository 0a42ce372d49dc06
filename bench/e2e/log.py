"""Figures of the log: `python -m bench.e2e.log [FAMILY ...]`. bench/README.md says what each one times."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.metadata import version

from ..command import Command
from .dead_letters import dead_letters
from .lane_restart import lane_restart
from .queue_crowd import crowd
from .queue_holes import holes
from .queue_lanes import lanes, overtake
from .queue_weighted import weighted
from .queueing import queue
from .reading import consume
from .resting import idle, restart
from .waiting import callers, deliver, round_trip
from .writing import lists, send

COMMAND = Command(
    module="bench.e2e.log",
    about=__doc__,
    label=lambda: f"tidelog {version('tidelog')}",
    durabilities=("synced", "written", "received"),
    families={
        "send": send,
        "lists": lists,
        "consume": consume,
        "round-trip": round_trip,
        "callers": callers,
        "deliver": deliver,
        "queue": queue,
        "queue-crowd": crowd,
        "queue-holes": holes,
        "queue-lanes": lanes,
        "queue-weighted": weighted,
        "queue-overtake": overtake,
        "dead-letters": dead_letters,
        "restart": restart,
        "lane-restart": lane_restart,
        "idle": idle,
    },
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures asked for; 1 when something is not as it was sent."""
    return COMMAND.main(arguments)


if __name__ == "__main__":
    sys.exit(main())
