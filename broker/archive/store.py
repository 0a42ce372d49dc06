"""What the archive asks of an object store; `broker/object_store.py` has the real one, tests have others.

Every method blocks, so it is called by threads. Names are relative to the archive's url, parts joined by `/`.
Raises ArchiveUnavailableError (no answer: may work later), ArchiveDeniedError (no rights), ObjectMissingError.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from ...protocol.errors import TidelogError


class ObjectMissingError(TidelogError):
    """No object has this name (never leaves the broker)."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object as a listing shows it."""

    name: str
    bytes: int


class ObjectStore(Protocol):
    """Named objects that are whole or not there, and durable once a method that writes has returned."""

    @property
    def url(self) -> str:
        """Where it is, without credentials and without a slash at the end."""
        ...

    def put(self, name: str, parts: Iterable[bytes]) -> None:
        """Store an object, in place of one of that name; holds a few parts in memory at a time. Raises what the parts
        raise."""
        ...

    def create(self, name: str, data: bytes) -> bool:
        """Store a small object unless the name is taken: then return False, with that one durable."""
        ...

    def size(self, name: str) -> int | None:
        """Return the size of an object, None when there is none."""
        ...

    def stream(self, name: str) -> Iterator[bytes]:
        """Yield an object's bytes piece by piece."""
        ...

    def read_many(self, names: Sequence[str]) -> list[bytes | None]:
        """Return small objects whole, None for each that is not there."""
        ...

    def secure(self, names: Iterable[str]) -> None:
        """Make objects durable that another process may have been killed at; raises ObjectMissingError."""
        ...

    def sweep(self, prefix: str) -> int:
        """Remove what killed puts left below a folder and no listing shows; only while nobody puts anything there."""
        ...

    def walk(self, prefix: str, after: str | None = None) -> Iterator[StoredObject]:
        """Yield all objects below a folder, or those whose names come after one."""
        ...

    def remove(self, names: Sequence[str]) -> None:
        """Remove objects; those that are not there are removed already."""
        ...
