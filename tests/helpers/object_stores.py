"""An object store in memory that can be away, slow to answer, or the last thing that a process saw."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tidelog.broker.archive.store import ObjectMissingError, StoredObject
from tidelog.protocol.errors import ArchiveUnavailableError, TidelogError


class Died(BaseException):
    """The process ends here: nothing catches it."""


class MemoryStore:
    """An `ObjectStore`; `objects` is what it holds, `steps` what was done to it."""

    url = "memory://archive"

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.steps: list[str] = []
        self.error: TidelogError | None = None
        """Raised by every method while it is set."""
        self.dies_at: int | None = None
        """The step, counted from 0, at which the process dies: before it at an even number, after it at an odd one."""
        self.garbles = False
        """Whether what is stored next is stored with a bit flipped."""
        self.largest_part = 0
        self.secured: set[str] = set()
        self.swept: list[str] = []

    def go_away(self) -> None:
        """Answer nothing any more."""
        self.error = ArchiveUnavailableError("expected memory://archive to answer, found: nobody there")

    def come_back(self) -> None:
        """Answer again."""
        self.error = None

    def flip(self, name: str, position: int) -> None:
        """Flip a bit of an object."""
        data = bytearray(self.objects[name])
        data[position] ^= 1
        self.objects[name] = bytes(data)

    def cut(self, name: str, size: int) -> None:
        """Cut an object short."""
        self.objects[name] = self.objects[name][:size]

    def names(self, suffix: str) -> list[str]:
        """Return the names that end so, in order."""
        return sorted(name for name in self.objects if name.endswith(suffix))

    # -- the protocol --------------------------------------------------------------------------------------------

    def put(self, name: str, parts: Iterable[bytes]) -> None:
        """Store an object."""
        self._begin(f"put {name}")
        data = bytearray()
        for part in parts:
            self.largest_part = max(self.largest_part, len(part))
            data += part
        if self.garbles:
            data[len(data) // 2] ^= 1
            self.garbles = False
        self.objects[name] = bytes(data)
        self._end()

    def create(self, name: str, data: bytes) -> bool:
        """Store a small object unless the name is taken."""
        self._begin(f"create {name}")
        is_new = name not in self.objects
        if is_new:
            self.objects[name] = data
        self._end()
        return is_new

    def size(self, name: str) -> int | None:
        """Return the size of an object."""
        self._begin(f"size {name}")
        self._end()
        return len(self.objects[name]) if name in self.objects else None

    def stream(self, name: str) -> Iterator[bytes]:
        """Yield an object in pieces of 64 KiB."""
        self._begin(f"stream {name}")
        if name not in self.objects:
            raise ObjectMissingError(f"no object {name}")
        data = self.objects[name]
        for start in range(0, len(data), 1 << 16):
            yield data[start : start + (1 << 16)]
        self._end()

    def read_many(self, names: Sequence[str]) -> list[bytes | None]:
        """Return small objects."""
        self._begin(f"read {len(names)}")
        self._end()
        return [self.objects.get(name) for name in names]

    def secure(self, names: Iterable[str]) -> None:
        """Remember what was asked to be durable."""
        for name in names:
            self._begin(f"secure {name}")
            if name not in self.objects:
                raise ObjectMissingError(f"no object {name}")
            self.secured.add(name)
            self._end()

    def sweep(self, prefix: str) -> int:
        """Remove what killed puts left: nothing is ever left here."""
        self.swept.append(prefix)
        return 0

    def walk(self, prefix: str, after: str | None = None) -> Iterator[StoredObject]:
        """Yield all objects below a folder, or those whose names come after one."""
        self._begin(f"walk {prefix}")
        folder = f"{prefix}/" if prefix else ""
        yield from [
            StoredObject(name, len(self.objects[name]))
            for name in sorted(self.objects)
            if name.startswith(folder) and name > (after or "")
        ]
        self._end()

    def remove(self, names: Sequence[str]) -> None:
        """Remove objects."""
        for name in names:
            self._begin(f"remove {name}")
            self.objects.pop(name, None)
            self._end()

    def _begin(self, step: str) -> None:
        if self.error is not None:
            raise self.error
        if self.dies_at == 2 * len(self.steps):
            raise Died
        self.steps.append(step)

    def _end(self) -> None:
        if self.dies_at == 2 * len(self.steps) - 1:
            raise Died
