"""Jobs over the connector: archive topics to Parquet, replay a range into another topic, report on topics.

    from tidelog.spark.jobs import archive_topics
    archive_topics(spark, "/data/archive", ["orders"], url="tidelog://localhost:9440")

Each is a function that takes a session, and a command (`tidelog spark`). README.md in the folder above has the flows.
Everything here is loaded when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .archive import Archived, archive_topics, read_archive, verify_archive
    from .package import write_package
    from .replay import Replayed, replay_topic
    from .report import TopicReport, report_topic

__all__ = [
    "Archived",
    "Replayed",
    "TopicReport",
    "archive_topics",
    "read_archive",
    "replay_topic",
    "report_topic",
    "verify_archive",
    "write_package",
]

_MODULES = {
    "Archived": "archive",
    "archive_topics": "archive",
    "read_archive": "archive",
    "verify_archive": "archive",
    "write_package": "package",
    "Replayed": "replay",
    "replay_topic": "replay",
    "TopicReport": "report",
    "report_topic": "report",
}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return getattr(import_module(f".{_MODULES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
