"""What can be seen of the configuration keys about groups and what is kept of their deliveries."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import trio

from tests.helpers.config_effects import Given, Observation, produced
from tests.helpers.raw_peer import RawPeer
from tests.helpers.running_broker import RunningBroker, running_broker
from tests.helpers.trio_clock import TrioClock
from tidelog.broker.storage.files import DiskFiles
from tidelog.protocol.batch import encode_batch
from tidelog.protocol.messages import (
    Acquire,
    AcquireReply,
    CreateGroup,
    GroupReply,
    GroupSettings,
    JoinGroup,
    JoinGroupReply,
    Message,
    MessageStates,
    MessageStatesReply,
    Metadata,
    MetadataReply,
    Settle,
    SettleError,
    SettleItem,
    SettleReply,
    Settling,
)

MEMBER = 7


async def _ask(peer: RawPeer, message: Message) -> Message:
    reply = await peer.ask(message)
    assert reply.message is not None, reply.error
    return reply.message


def group_setting(name: str) -> Observation:
    """Observe a setting in force for a group that was given none."""

    async def observe(sections: dict[str, Given], _path: Path) -> object:
        async with running_broker(sections) as running:
            return getattr((await _made(running)).group.settings, name)

    return observe


def backoff_setting(name: str) -> Observation:
    """The same of a part of the backoff."""

    async def observe(sections: dict[str, Given], path: Path) -> object:
        backoff = (await _settings(sections)).backoff
        return getattr(backoff, name)

    return observe


async def _settings(sections: dict[str, Given]) -> GroupSettings:
    async with running_broker(sections) as running:
        return (await _made(running)).group.settings


async def _made(running: RunningBroker) -> GroupReply:
    peer = await running.greeted()
    await running.topic(peer)
    made = await _ask(peer, CreateGroup("default/g", ["default/t"]))
    assert isinstance(made, GroupReply)
    return made


async def second_group(running: RunningBroker) -> object:
    """The code with which a second group is refused."""
    await _made(running)
    error = (await (await running.greeted()).ask(CreateGroup("default/h", ["default/t"]))).error
    return None if error is None else error.code


@dataclass(frozen=True)
class _Leased:
    """One message in a member's hands."""

    peer: RawPeer
    topic_id: int
    whose: tuple[int, int, int]
    lease: int


async def _leased(running: RunningBroker) -> _Leased:
    peer = await running.greeted()
    topic_id = await running.topic(peer)
    await produced(peer, topic_id, encode_batch([b"x"], timestamp_us=5))
    joined = await _ask(peer, JoinGroup("default/g", [topic_id], MEMBER))
    assert isinstance(joined, JoinGroupReply)
    whose = (joined.group.id, joined.group.generation, MEMBER)
    return await _lease_of(peer, whose, topic_id)


async def _lease_of(peer: RawPeer, whose: tuple[int, int, int], topic_id: int) -> _Leased:
    acquired = await _ask(peer, Acquire(*whose, [topic_id]))
    assert isinstance(acquired, AcquireReply)
    return _Leased(peer, topic_id, whose, acquired.grants[0].lease)


async def retention_of_letters(running: RunningBroker) -> object:
    """The retention of the topic that is made for the first message that is given up."""
    held = await _leased(running)
    await _ask(held.peer, Settle(*held.whose, 1, [SettleItem(held.topic_id, 0, held.lease, Settling.REJECT)]))
    for _ in range(100):
        found = await _ask(await running.greeted(), Metadata(["default/t.dlq"]))
        assert isinstance(found, MetadataReply)
        if found.topics:
            return found.topics[0].settings["retention"]
        await trio.sleep(1)
    return None


async def error_kept(running: RunningBroker) -> object:
    """How much is kept of an error of 10,000 characters."""
    held = await _leased(running)
    error = SettleError("ValueError", "x" * 10_000, "y" * 10_000)
    item = SettleItem(held.topic_id, 0, held.lease, Settling.RELEASE, delay_us=3_600_000_000, error=error)
    settled = await _ask(held.peer, Settle(*held.whose, 1, [item]))
    assert settled == SettleReply([None])
    states = await _ask(held.peer, MessageStates(held.topic_id, 0, 0))
    assert isinstance(states, MessageStatesReply)
    kept = states.states[0].error
    assert kept is not None
    return len(kept.kind) + len(kept.text) + len(kept.traceback)


async def settled_events_removed(sections: dict[str, Given], path: Path) -> object:
    """Whether the first segment of a delivery log is gone some hours after what it says."""
    folder = path / str(len(list(path.iterdir())))
    folder.mkdir()
    async with running_broker(sections, files=DiskFiles(folder), clock=TrioClock()) as running:
        peer = await running.greeted()
        topic_id = await running.topic(peer)
        joined = await _ask(peer, JoinGroup("default/g", [topic_id], MEMBER))
        assert isinstance(joined, JoinGroupReply)
        whose = (joined.group.id, joined.group.generation, MEMBER)
        for number in range(1, 5):
            peer = await running.greeted()
            await produced(peer, topic_id, encode_batch([b"x"], timestamp_us=5))
            held = await _lease_of(peer, whose, topic_id)
            item = SettleItem(topic_id, 0, held.lease, Settling.ACCEPT)
            assert await _ask(held.peer, Settle(*whose, number, [item])) == SettleReply([None])
            await trio.sleep(2 * 3600)
    return not list(folder.glob("partitions/*/delivery/00000000000000000000.log"))
