"""From a dedup id to the number of its latest entry, in pieces that grow one at a time.

One dict of a million ids moves all of them when it grows, and again and again while old ones go and new ones come:
30 ms each time, in which the loop serves nobody. Here each piece is a dict of the ids that begin with some of the 256
first bytes, and has its own size: so they do not all grow at once, and a piece has 1/23 of the ids at most.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

PIECE_BYTES = (5, 6, 7, 8, 9, 10, 11, 8) * 4
"""How many first bytes each piece has, 256 together. Ids are hashes, so pieces grow when their ids are so many: spread
over the doubling from 5 to 11, and of equal ones by chance."""


class IdIndex:
    """A map from ids to numbers; whole batches are looked up, put in and taken out."""

    def __init__(self) -> None:
        self.pieces: list[dict[bytes, int]] = [{} for _ in PIECE_BYTES]
        self._by_byte = [
            piece for piece, count in zip(self.pieces, PIECE_BYTES, strict=True) for piece in [piece] * count
        ]

    def __len__(self) -> int:
        return sum(map(len, self.pieces))

    def __repr__(self) -> str:
        return f"<IdIndex of {len(self)} ids in {len(self.pieces)} pieces>"

    def get(self, dedup_id: bytes) -> int | None:
        """Return the number of an id, or None."""
        return self._by_byte[dedup_id[0]].get(dedup_id)

    def known(self, ids: Iterable[bytes]) -> list[bytes]:
        """Return those of some ids that have a number."""
        by_byte = self._by_byte
        return [one for one in ids if one in by_byte[one[0]]]

    def put(self, ids: Sequence[bytes], first: int) -> None:
        """Give ids their numbers, from `first` on; an earlier number of one of them is forgotten."""
        by_byte = self._by_byte
        for number, one in enumerate(ids, first):
            by_byte[one[0]][one] = number

    def take_out(self, ids: Sequence[bytes], first: int) -> None:
        """Forget ids, but those that have another number than these, which begin at `first`."""
        by_byte = self._by_byte
        for number, one in enumerate(ids, first):
            piece = by_byte[one[0]]
            if piece.get(one) == number:
                del piece[one]

    def clear(self) -> None:
        """Forget all."""
        for piece in self.pieces:
            piece.clear()
