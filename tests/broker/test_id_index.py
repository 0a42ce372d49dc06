"""The index of dedup ids grows in pieces: no batch ever waits for a million ids to be moved."""

from __future__ import annotations

import random
import sys

from tidelog.broker.id_index import PIECE_BYTES, IdIndex

BATCH = 1_000


def moved(before: list[int], index: IdIndex) -> int:
    """Return how many ids lie in pieces whose memory was made anew since."""
    return sum(len(piece) for size, piece in zip(before, index.pieces, strict=True) if sys.getsizeof(piece) != size)


def test_the_pieces_share_all_first_bytes() -> None:
    """Each of the 256 belongs to one piece."""
    assert sum(PIECE_BYTES) == 256
    index = IdIndex()
    index.put([bytes([first]) * 16 for first in range(256)], 7)
    assert [len(piece) for piece in index.pieces] == list(PIECE_BYTES)
    assert [index.get(bytes([first]) * 16) for first in range(256)] == list(range(7, 263))


def test_growing_to_a_million_ids_moves_few_at_a_time() -> None:
    """While it fills, and while the oldest go for the newest, a batch of 1,000 never moves 100,000 ids."""
    rng = random.Random(1)
    index = IdIndex()
    batches: list[list[bytes]] = []
    most = total = 0
    for at in range(1_600):
        ids = [rng.randbytes(16) for _ in range(BATCH)]
        batches.append(ids)
        before = [sys.getsizeof(piece) for piece in index.pieces]
        index.put(ids, at * BATCH)
        if at >= 1_000:
            index.take_out(batches[at - 1_000], (at - 1_000) * BATCH)
        now = moved(before, index)
        most, total = max(most, now), total + now
    assert len(index) == 1_000_000
    assert total > 1_000_000
    assert most < 100_000


def test_a_later_number_takes_the_place_of_an_earlier_one() -> None:
    """Taking out under the earlier number then leaves it."""
    index = IdIndex()
    one, two = b"a" * 16, b"b" * 16
    index.put([one, two], 0)
    index.put([one], 2)
    index.take_out([one, two], 0)
    assert (index.get(one), index.get(two), len(index)) == (2, None, 1)
    assert index.known([one, two]) == [one]
    index.clear()
    assert (len(index), index.get(one)) == (0, None)
