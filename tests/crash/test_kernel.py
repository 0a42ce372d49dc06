"""What the storage layer believes about the kernel, asked of the kernel: ext4 under a power loss."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.helpers.ext4_image import Ext4Image, Shutdown, why_not

from tidelog.broker.storage.files import DiskFiles, write_durably

pytestmark = [pytest.mark.crash, pytest.mark.skipif(why_not() is not None, reason=str(why_not()))]


@pytest.fixture
def image(tmp_path: Path) -> Iterator[Ext4Image]:
    """A mounted image of a fresh ext4."""
    with Ext4Image(tmp_path) as image:
        yield image


@pytest.mark.parametrize("how", Shutdown)
def test_synced_survives_and_the_rest_does_not(image: Ext4Image, how: Shutdown) -> None:
    """Bytes and names survive exactly when they were synced; that the rest is gone proves that power was lost."""
    files = DiskFiles(image.folder)
    file = files.create("synced", 8192)
    file.write_at(0, b"x" * 8192)
    file.sync()
    files.sync_folder("")
    file.write_at(4096, b"y" * 4096)
    unsynced = files.create("unsynced")
    unsynced.write_at(0, b"z" * 4096)
    for opened in (file, unsynced, files):
        opened.close()
    image.lose_power(how)

    files = DiskFiles(image.folder)
    assert files.read("synced") == b"x" * 8192
    left = files.read("unsynced") if files.exists("unsynced") else b""
    files.close()
    assert b"z" not in left
    assert image.losses == 1


@pytest.mark.parametrize("how", Shutdown)
def test_write_durably_survives(image: Ext4Image, how: Shutdown) -> None:
    """A small file that was replaced durably is the new one after the power loss, a renamed one is whole."""
    files = DiskFiles(image.folder)
    for content in (b"one", b"two"):
        write_durably(files, "mark", content)
    files.close()
    image.lose_power(how)
    files = DiskFiles(image.folder)
    assert (files.read("mark"), files.list_folder("")) == (b"two", ["lost+found", "mark"])
    files.close()


def test_many_synced_in_one_round_survive(image: Ext4Image) -> None:
    """A round of more files than are synced one by one (syncfs) is as durable as the others."""
    files = DiskFiles(image.folder)
    opened = [files.create(f"f{n:03}", 4096) for n in range(80)]
    for number, file in enumerate(opened):
        file.write_at(0, bytes([number + 1]) * 4096)
    assert files.sync_many(opened) == [None] * 80
    files.sync_folder("")
    for file in opened:
        file.close()
    files.close()
    image.lose_power()
    files = DiskFiles(image.folder)
    assert [files.read(f"f{n:03}") == bytes([n + 1]) * 4096 for n in range(80)] == [True] * 80
    files.close()
