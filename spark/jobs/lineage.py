"""Whether topics are still those that a job has read before: not made again, and with nothing of it lost.

A name says neither, nor do offsets: after a power loss a log of less than `synced` may have grown again with others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ..options import ReadOptions
from ..places import Place
from ..stream_broker import Lookout
from .errors import JobStateError
from .manifest import Manifest

if TYPE_CHECKING:
    from ...client.blocking.client import Client
    from ...client.topic import Topic


def check_archived(folder: Path, manifest: Manifest, client: Client, options: ReadOptions) -> frozenset[str]:
    """Return the names of the topics that are read. Raises JobStateError where the archive holds another topic of such
    a name, or records that its log has lost."""
    topics = client.topics.list(options.selection.topics)
    ids = {topic.name: topic.id for topic in topics}
    last = {place: each for place, each in manifest.last().items() if place.topic in ids}
    for place, each in last.items():
        if ids[place.topic] != each.topic_id:
            raise JobStateError(
                f"{folder}: expected the topic {place.topic} that was archived before, found one that was"
                " made again since: archive it to another folder"
            )
    positions = {place: (each.epoch, each.end) for place, each in last.items()}
    for place, survived in find_cuts(client, options, topics, positions).items():
        raise JobStateError(
            f"{folder}: expected {place} as it was archived, up to offset {last[place].end}, found a log that has lost"
            f" what was behind {survived} since: archive it to another folder"
        )
    return frozenset(ids)


def find_cuts(
    client: Client, options: ReadOptions, topics: Iterable[Topic], positions: Mapping[Place, tuple[int, int]]
) -> dict[Place, int]:
    """Return where logs end that have lost records before an offset since they were in an epoch (0: not known).

    Only those are asked about whose epoch is another in the broker's answer: without a start nothing is lost.
    """
    now = {Place(topic.name, each.index): each.epoch for topic in topics for each in topic.partitions}
    doubtful = {place: at for place, at in positions.items() if at[0] and now.get(place, at[0]) != at[0]}
    return Lookout(client, options).find_cuts(doubtful)
