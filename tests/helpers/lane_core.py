"""Messages of several priorities in a broker's core: stored in batches of their own, and given to members."""

from __future__ import annotations

from tidelog.broker.storage.files import Files
from tidelog.protocol.batch import encode_batch
from tidelog.protocol.messages import Settling
from tidelog.protocol.topic_settings import SettingValue

from .broker_core import DEFAULTS
from .queue_core import QueueCore, member_of, notebook, settings, take
from .queue_member import QueueMember


def begin(
    *,
    partitions: int = 1,
    members: int = 1,
    backoff_s: int = 1,
    files: Files | None = None,
    **given: SettingValue,
) -> tuple[QueueCore, list[QueueMember]]:
    """A core with a topic of these settings, and members of a group that reads it."""
    core = QueueCore(files, defaults=DEFAULTS)
    core.wait(core.topics.create("default/orders", partitions=partitions, settings=given))
    book, _events = notebook(core)
    own = settings(backoff_s=backoff_s)
    return core, [member_of(core, book, number + 1, given=own) for number in range(members)]


def publish(core: QueueCore, priorities: list[int], partition: int = 0) -> None:
    """Store a message of each priority, in batches of their own, in one request."""
    data = b"".join(encode_batch([b"%d" % priority], timestamp_us=7, priority=priority) for priority in priorities)
    core.produce(core.topic("orders").partition(partition), memoryview(bytearray(data)))


def backlog(core: QueueCore, priority: int, count: int, partition: int = 0) -> None:
    """Store many messages of a priority in one batch."""
    data = encode_batch([b"%d" % priority] * count, timestamp_us=7, priority=priority)
    core.produce(core.topic("orders").partition(partition), memoryview(data))


def given(core: QueueCore, member: QueueMember, count: int, *, ack: bool = True) -> list[int]:
    """Let a member acquire; returns the priorities of what it was given, in the order of the reply."""
    before = {*member.held}
    take(core, member, count)
    new = [held for lease, held in member.held.items() if lease not in before]
    found = [int(value.strip("b'")) for value in member.came] if new else []
    if ack:
        for held in new:
            member.settle([(held, Settling.ACCEPT, [*held.left], -1)])
        core.settle()
        member.harvest()
    return found
