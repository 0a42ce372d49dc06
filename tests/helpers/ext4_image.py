"""The kernel as referee: a small ext4 in an image file, and the ioctl that makes it forget what was not synced.

    with Ext4Image(tmp_path) as image:
        ...write under image.folder...
        image.lose_power()                 # folder is mounted again as the disk has it

Needs root, a free loop device and mkfs.ext4; `why_not()` says what is missing.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import struct
import subprocess
from enum import IntEnum
from pathlib import Path
from types import TracebackType

_EXT4_IOC_SHUTDOWN = 0x8004587D
_IMAGE_BYTES = 48 << 20


class Shutdown(IntEnum):
    """What the file system still does before it stops (the flags of the ioctl)."""

    WITH_JOURNAL = 1  # the journal is flushed: names and sizes may survive without the bytes
    AT_ONCE = 2


def why_not() -> str | None:
    """Return why an image cannot be mounted here, or None when it can."""
    if os.geteuid() != 0:
        return "mounting an ext4 image needs root"
    for tool in ("mkfs.ext4", "mount", "umount"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed"
    if not Path("/dev/loop-control").exists():
        return "there are no loop devices"
    return None


class Ext4Image:
    """A mounted image that can lose its power."""

    def __init__(self, parent: Path) -> None:
        self._image = parent / "ext4.img"
        self.folder = parent / "mnt"
        self.losses = 0

    def __enter__(self) -> Ext4Image:
        self.folder.mkdir()
        with self._image.open("wb") as file:
            file.truncate(_IMAGE_BYTES)
        _run("mkfs.ext4", "-q", "-F", str(self._image))
        self._mount()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(subprocess.CalledProcessError):
            _run("umount", "--lazy", str(self.folder))

    def lose_power(self, how: Shutdown = Shutdown.AT_ONCE) -> None:
        """Stop the file system, drop the page cache's unwritten pages, and mount what the disk holds.

        Files of it that are still open keep the old mount busy: close them first.
        """
        fd = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(fd, _EXT4_IOC_SHUTDOWN, struct.pack("I", how))
        finally:
            os.close(fd)
        _run("umount", str(self.folder))
        self._mount()
        self.losses += 1

    def _mount(self) -> None:
        # The journal commits by itself only every 100 s: what survives is what was synced.
        _run("mount", "-o", "loop,commit=100", str(self._image), str(self.folder))


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=60)
