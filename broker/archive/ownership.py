"""Whose archive it is: only the data directory that made it may remove anything from it.

    URL/<broker>/owner      the inode of the `archive/id` that first archived under this name

A copied data directory has the name of its original, and knows of other topics as deleted, and of other segments as
gone from its log. It may add what it has; were it to remove, it would remove the original's. So would a data directory
that was restored from a backup into a new place: whether that one goes on instead is for the operator to say, by
removing the object. What a copy of the whole volume has is the same inode; that cannot be told.
"""

from __future__ import annotations

from ...protocol.errors import ArchiveConflictError
from .identity import IDENTITY
from .store import ObjectStore


class Ownership:
    """The mark of a data directory in the store; every method blocks and raises the store's errors."""

    def __init__(self, store: ObjectStore, broker: str, mark: str | None) -> None:
        """`mark` is what a copy of the data directory does not have; None where there is none, as in memory."""
        self._store = store
        self._name = f"{broker}/owner"
        self._mark = mark
        self._is_claimed = mark is None

    def __repr__(self) -> str:
        return f"<Ownership {self._name} {self._mark}>"

    def claim(self) -> None:
        """Put the mark there unless there is one; before the first copy."""
        if not self._is_claimed:
            self._found()
            self._is_claimed = True

    def check(self) -> None:
        """Return if the archive is this data directory's. Raises ArchiveConflictError."""
        found = None if self._mark is None else self._found()
        if found != self._mark:
            raise ArchiveConflictError(
                f"expected {self._store.url}/{self._name} to name this data directory ({self._mark}), found {found}:"
                " a copied or restored data directory removes nothing from the archive of its original. Where it goes"
                f" on in place of the original, remove that object; else remove {IDENTITY} from it, and it archives"
                " under a name of its own"
            )

    def _found(self) -> str:
        assert self._mark is not None
        if self._store.create(self._name, f"{self._mark}\n".encode()):
            return self._mark
        (found,) = self._store.read_many([self._name])
        return "" if found is None else found.decode("ascii", "replace").strip()
