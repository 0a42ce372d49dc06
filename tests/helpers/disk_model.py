"""A disk with a page cache, in memory: what is durable, what is only written, and what a crash may make of it.

    Inode    memory (the page cache)  +  for each page written since it was last durable, its earlier
    contents:
             before[page] = [durable content, content after the 1st unsynced write, ...]   the newest is in
             memory
    Folder   entries (what a process sees)  +  durable entries (what a power loss leaves at least)
    Disk     the changes of names since the last sync of their folders, in order

A crash builds a new disk: each page takes any one of its contents, or a mixture of them at 512 bytes; a
size any of its values since the last sync; and of the changes of names a subset survives in which an
earlier change of a name goes before a later one of the same name. A rename is one change. A file's own sync
makes no name durable.

After a failed sync the kernel calls the pages clean: memory keeps the new bytes, a later sync reports
success and writes nothing, and the earlier contents stay possible until the page is written and synced once
more.
"""

from __future__ import annotations

import errno
import mmap
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import cast

PAGE_BYTES = 4096
SECTOR_BYTES = 512
# A page with more unsynced versions than this forgets some in the middle; the durable one always stays.
_MAX_VERSIONS = 6
_SMALLEST_MAP_BYTES = 1 << 16


class Loss(Enum):
    """How hard a power loss hits; a crash draws one for the pages and one for the names."""

    NOTHING_SURVIVES = "only what was synced is left"
    EVERYTHING_SURVIVES = "the disk wrote all of it in time"
    EACH_BY_LOT = "each page or name by lot"
    THE_END_IS_LOST = "written in order up to some point"
    ONE_IS_LOST = "all but one page or name"


class Inode:
    """One file's bytes in the page cache and on the disk."""

    def __init__(self, size: int = 0, content: bytes = b"") -> None:
        self.size = size
        # Private, because a shared anonymous map cannot grow.
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self.memory = mmap.mmap(-1, max(size, _SMALLEST_MAP_BYTES), flags=flags)
        self.memory[: len(content)] = content
        self.used = len(content)  # beyond it memory was never written, and is zero
        self.before: dict[int, list[bytes]] = {}
        self.dirty: set[int] = set()
        self.sizes: list[int] = []
        self.size_dirty = False

    def write(self, position: int, data: bytes | bytearray | memoryview) -> None:
        """Write into the page cache."""
        end = position + len(data)
        if end > len(self.memory):
            self._grow_map(end)
        for page in range(position // PAGE_BYTES, -(-end // PAGE_BYTES)):
            self._remember(page)
        self.memory[position:end] = data
        self.used = max(self.used, end)
        if end > self.size:
            self.resize(end)

    def resize(self, size: int) -> None:
        """Set the size, keeping the earlier one as what may survive."""
        if size > len(self.memory):
            self._grow_map(size)
        self.sizes.append(self.size)
        self.size_dirty = True
        self.size = size

    def truncate(self) -> None:
        """Cut to nothing, as opening with O_TRUNC does."""
        for page in range(-(-self.used // PAGE_BYTES)):
            self._remember(page)
        self.memory[: self.used] = bytes(self.used)
        self.resize(0)

    def read(self, position: int, length: int) -> bytes:
        """Read from the page cache."""
        return self.memory[position : min(position + length, self.size)]

    def data_from(self, position: int) -> int:
        """Return the first position from here on whose page holds anything but zeros, or the size."""
        for start in range(position // PAGE_BYTES * PAGE_BYTES, min(self.used, self.size), PAGE_BYTES):
            if self.memory[start : start + PAGE_BYTES].strip(b"\0"):
                return max(start, position)
        return self.size

    def sync(self) -> None:
        """Make every dirty page durable; pages that a failed sync called clean are passed over."""
        for page in self.dirty:
            del self.before[page]
        self.dirty.clear()
        if self.size_dirty:
            self.sizes.clear()
            self.size_dirty = False

    def fail_sync(self) -> None:
        """Lose the dirty pages' writeback and call them clean."""
        self.dirty.clear()
        self.size_dirty = False

    def _remember(self, page: int) -> None:
        versions = self.before.setdefault(page, [])
        if len(versions) >= _MAX_VERSIONS:
            del versions[1]
        versions.append(self.memory[page * PAGE_BYTES : (page + 1) * PAGE_BYTES])
        self.dirty.add(page)

    def _grow_map(self, end: int) -> None:
        # Fails with BufferError when a view exists: give the file its size when you create it.
        self.memory.resize(max(end, 2 * len(self.memory)))

    def copy(self) -> Inode:
        """Return the same file with the same past."""
        new = Inode(self.size, self.memory[: self.used])
        new.before = {page: list(versions) for page, versions in self.before.items()}
        new.dirty, new.sizes, new.size_dirty = set(self.dirty), list(self.sizes), self.size_dirty
        return new

    def after_power_loss(self, rng: random.Random, loss: Loss) -> Inode:
        """Return what the disk may hold of this file."""
        size = self.size
        content = bytearray(self.memory[: self.used])
        pages = sorted(self.before)
        first_lost = rng.randrange(len(pages) + 1) if loss is Loss.THE_END_IS_LOST else 0
        one_lost = rng.choice(pages) if loss is Loss.ONE_IS_LOST and pages else -1
        for place, page in enumerate(pages):
            versions = self.before[page]
            start = page * PAGE_BYTES
            if loss is Loss.NOTHING_SURVIVES or page == one_lost:
                chosen = versions[0]
            elif loss is Loss.EACH_BY_LOT or (loss is Loss.THE_END_IS_LOST and place == first_lost):
                current = bytes(content[start : start + PAGE_BYTES]).ljust(PAGE_BYTES, b"\0")
                chosen = _mixture(rng, [*versions, current])
            elif loss is Loss.THE_END_IS_LOST and place > first_lost:
                chosen = versions[0]
            else:
                continue
            content[start : start + PAGE_BYTES] = chosen
        if self.sizes and loss is not Loss.EVERYTHING_SURVIVES:
            size = self.sizes[0] if loss is Loss.NOTHING_SURVIVES else rng.choice([*self.sizes, size])
        return Inode(size, bytes(content[:size]))


def _mixture(rng: random.Random, versions: list[bytes]) -> bytes:
    """Choose one version, or tear the page between two of them, or take each sector from any."""
    kind = rng.random()
    if kind < 0.4:
        return rng.choice(versions)
    if kind < 0.7:
        cut = rng.randrange(PAGE_BYTES // SECTOR_BYTES + 1) * SECTOR_BYTES
        return rng.choice(versions)[:cut] + rng.choice(versions)[cut:]
    sectors = range(0, PAGE_BYTES, SECTOR_BYTES)
    return b"".join(rng.choice(versions)[at : at + SECTOR_BYTES] for at in sectors)


class Folder:
    """One folder: the names a process sees, and those a power loss leaves at least."""

    def __init__(self) -> None:
        self.entries: dict[str, Inode | Folder] = {}
        self.durable: dict[str, Inode | Folder] = {}


Node = Inode | Folder
Change = dict[tuple[Folder, str], Node | None]


@dataclass
class Disk:
    """A tree of folders and files with the changes of names that are not durable yet."""

    root: Folder = field(default_factory=Folder)
    pending: list[Change] = field(default_factory=list)

    def find(self, path: str) -> Node | None:
        """Return what is at a path ("" is the root), or None."""
        node: Node | None = self.root
        for part in path.split("/") if path else ():
            node = node.entries.get(part) if isinstance(node, Folder) else None
        return node

    def folder(self, path: str) -> Folder:
        """Return the folder at a path, or raise what the kernel would."""
        node = self.find(path)
        if isinstance(node, Folder):
            return node
        code = errno.ENOENT if node is None else errno.ENOTDIR
        raise OSError(code, os.strerror(code), path)

    def inode(self, path: str) -> Inode:
        """Return the file at a path, or raise what the kernel would."""
        node = self.find(path)
        if isinstance(node, Inode):
            return node
        code = errno.ENOENT if node is None else errno.EISDIR
        raise OSError(code, os.strerror(code), path)

    def place(self, path: str) -> tuple[Folder, str]:
        """Return the folder that holds a path's last name, and that name."""
        parent, _, name = path.rpartition("/")
        return self.folder(parent), name

    def change(self, change: Change) -> None:
        """Change names for every process at once, and durably only when their folder is synced."""
        for (folder, name), node in change.items():
            _set(folder.entries, name, node)
        self.pending.append(change)

    def sync_folder(self, folder: Folder) -> None:
        """Make the changes in this folder durable, a rename between folders on both sides."""
        rest: list[Change] = []
        for change in self.pending:
            if any(owner is folder for owner, _name in change):
                _apply(change)
                for earlier in rest:
                    for key in change:
                        earlier.pop(key, None)
            else:
                rest.append(change)
        self.pending = [change for change in rest if change]

    def copy(self) -> Disk:
        """Return the same disk with the same past, as a second process after a kill would find it."""
        copies: dict[int, Node] = {}

        def copy(node: Node) -> Node:
            known = copies.get(id(node))
            return known if known is not None else copy_inode(node) if isinstance(node, Inode) else copy_folder(node)

        def copy_inode(node: Inode) -> Inode:
            new = copies[id(node)] = node.copy()
            return new

        def copy_folder(node: Folder) -> Folder:
            if id(node) in copies:
                return cast("Folder", copies[id(node)])
            new = copies[id(node)] = Folder()
            new.entries = {name: copy(inner) for name, inner in node.entries.items()}
            new.durable = {name: copy(inner) for name, inner in node.durable.items()}
            return new

        root = copy_folder(self.root)
        pending = [
            {(copy_folder(owner), name): node and copy(node) for (owner, name), node in change.items()}
            for change in self.pending
        ]
        return Disk(root, pending)

    def after_power_loss(self, rng: random.Random, pages: Loss, names: Loss) -> Disk:
        """Return a disk that this one may be found as when the power is back."""
        overlay: Change = {}
        for change in _surviving(rng, names, self.pending):
            overlay.update(change)
        copies: dict[int, Node] = {}

        def copy(node: Node) -> Node:
            if id(node) not in copies:
                lost = node.after_power_loss(rng, pages) if isinstance(node, Inode) else copy_folder(node)
                copies[id(node)] = lost
            return copies[id(node)]

        def copy_folder(folder: Folder) -> Folder:
            entries = dict(folder.durable)
            for (owner, name), node in overlay.items():
                if owner is folder:
                    _set(entries, name, node)
            new = Folder()
            new.entries = {name: copy(node) for name, node in entries.items()}
            new.durable = dict(new.entries)
            return new

        return Disk(copy_folder(self.root))


def _set(entries: dict[str, Node], name: str, node: Node | None) -> None:
    if node is None:
        entries.pop(name, None)
    else:
        entries[name] = node


def _apply(change: Change) -> None:
    for (folder, name), node in change.items():
        _set(folder.durable, name, node)


def _surviving(rng: random.Random, loss: Loss, pending: list[Change]) -> Iterator[Change]:
    """Choose the changes that survive; one that does not takes every later change of its names with it."""
    end = rng.randrange(len(pending) + 1) if loss is Loss.THE_END_IS_LOST else len(pending)
    one_lost = rng.randrange(len(pending)) if loss is Loss.ONE_IS_LOST and pending else -1
    lost: set[tuple[int, str]] = set()
    for place, change in enumerate(pending):
        keys = {(id(folder), name) for folder, name in change}
        by_lot = loss is Loss.EACH_BY_LOT and rng.random() < 0.5
        drop = loss is Loss.NOTHING_SURVIVES or by_lot or place >= end or place == one_lost
        if drop or keys & lost:
            lost |= keys
        else:
            yield change
