"""What can be seen of the configuration of the archive; see `config_effects`."""

from __future__ import annotations

from pathlib import Path

import trio

from tests.helpers.config_effects import Given, Observation, metric, produced, setting
from tests.helpers.raw_peer import RawPeer
from tests.helpers.running_broker import RunningBroker, running_broker
from tests.helpers.trio_clock import TrioClock
from tidelog.broker.app_archive import store_of
from tidelog.broker.config import Config
from tidelog.protocol.batch import encode_batch
from tidelog.protocol.messages import ListArchive

SMALL = {"segment_bytes": 65_536}


def archiving(sections: dict[str, Given], path: Path) -> dict[str, Given]:
    """Return a configuration with an archive of its own, and what is given."""
    number = len(list(path.parent.glob(f"{path.name}-store-*")))
    url = f"file://{path.parent}/{path.name}-store-{number}"
    return {**sections, "archive": {"url": url, **sections.get("archive", {})}}


async def archive_listed(sections: dict[str, Given], path: Path) -> object:
    """What a broker answers who is asked what it has archived; a url is that of a folder of the test's own."""
    async with running_broker(archiving({}, path) if sections else {}) as running:
        peer = await running.greeted()
        await running.topic(peer)
        error = (await peer.ask(ListArchive("default/t"))).error
        return None if error is None else error.code


async def region_of_the_store(sections: dict[str, Given], _path: Path) -> object:
    """What the store was told beside its url."""
    section = Config.model_validate({"archive": {"url": "s3://bucket", **sections.get("archive", {})}}).archive
    return store_of(section)._store.config.get("region")  # pyright: ignore


async def timeout_of_the_store(sections: dict[str, Given], _path: Path) -> object:
    """How long the store's client waits."""
    section = Config.model_validate({"archive": {"url": "s3://bucket", **sections.get("archive", {})}}).archive
    return store_of(section)._store.client_options["timeout"]  # pyright: ignore


async def parts_of_the_store(sections: dict[str, Given], _path: Path) -> object:
    """In parts of which size objects are sent."""
    section = Config.model_validate({"archive": {"url": "s3://bucket", **sections.get("archive", {})}}).archive
    return store_of(section)._part_bytes  # pyright: ignore


def in_force(name: str) -> Observation:
    """Observe a setting in force in a broker that has an archive."""

    async def observe(sections: dict[str, Given], path: Path) -> object:
        return await setting(name)(archiving(sections, path), path)

    return observe


async def threads_that_copy(sections: dict[str, Given], path: Path) -> object:
    """How many segments may be copied at a time."""
    async with running_broker(archiving(sections, path)) as running:
        return running.broker._archive.workers[0]._limiter.total_tokens  # pyright: ignore


async def longest_backoff(sections: dict[str, Given], path: Path) -> object:
    """How long a store is left alone at most."""
    async with running_broker(archiving(sections, path)) as running:
        return running.broker._archive.archive.archiver._max_backoff_us  # pyright: ignore


async def filled(running: RunningBroker, peer: RawPeer) -> int:
    """Make a topic with several sealed segments."""
    topic_id = await running.topic(peer, settings={**SMALL, "retention_bytes": 0})
    for _ in range(8):
        await produced(peer, topic_id, encode_batch([bytes(30_000)], timestamp_us=5))
    return topic_id


async def archived_soon(sections: dict[str, Given], path: Path) -> object:
    """Whether sealed segments are archived within two minutes."""
    async with running_broker(archiving(sections, path), clock=TrioClock()) as running:
        await filled(running, await running.greeted())
        await trio.sleep(120)
        return await metric(await running.greeted(), "tidelog_archived_segments_total") > 0


async def bytes_at_hand(sections: dict[str, Given], path: Path) -> object:
    """How much of the archive is kept at hand; what that does is tested with the archive."""
    async with running_broker(archiving(sections, path)) as running:
        return running.broker._archive.archive.cache._max_bytes  # pyright: ignore
