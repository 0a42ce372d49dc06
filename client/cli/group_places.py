"""Where a group begins, as it is typed: an offset is of one partition, and which one that is has to be clear.

The broker refuses the rest as well; here it is wrong usage, in the words of the command's own options.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...protocol.topic_name import full_name
from .errors import WrongUsage
from .times import Position

if TYPE_CHECKING:
    from ..blocking.client import Client


def check_new_group(client: Client, name: str, topics: Sequence[str], start: Position | None) -> None:
    """Raise WrongUsage for a new group that is to begin at an offset of several partitions."""
    if start is None or not start.is_offset:
        return
    counts = {topic: len(client.topics.describe(topic).partitions) for topic in dict.fromkeys(topics)}
    if sum(counts.values()) > 1:
        place = f"--to {start.given} --topic {next(iter(counts))} --partition N"
        raise WrongUsage(
            f"--from: an offset is of one partition, and {_told(counts)}; leave it out, or give a time, and move"
            f" partitions one by one afterwards: tidelog groups reset {name} {place}"
        )


def check_reset(client: Client, name: str, to: Position, topic: str | None, partition: int | None) -> None:
    """Raise WrongUsage for an offset of several partitions, and for a partition of several topics."""
    if not (to.is_offset or partition is not None) or (topic is not None and partition is not None):
        return
    found = {each.name: len(each.partitions) for each in client.groups.describe(name).topics}
    if topic is None and len(found) > 1:
        what = "--to: an offset needs --topic and --partition" if partition is None else "--partition needs --topic"
        raise WrongUsage(f"{what}: group {name} reads {', '.join(sorted(found))}")
    counts = found if topic is None else {each: found[each] for each in found if full_name(each) == full_name(topic)}
    if partition is None and sum(counts.values()) > 1:
        raise WrongUsage(f"--to: an offset needs --partition: {_told(counts)}")


def _told(counts: dict[str, int]) -> str:
    return " and ".join(f"{topic} has {count} partition{'s' * (count != 1)}" for topic, count in counts.items())
