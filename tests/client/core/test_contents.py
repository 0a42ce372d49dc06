"""What is in the batches of a producer, taken apart."""

from __future__ import annotations

import pytest

from tidelog.client.core.contents import Extras, Messages

EXTRAS = Extras([], 9, None, None, None, None)


@pytest.mark.parametrize("flat", [False, True], ids=["objects", "flat"])
def test_a_part_has_every_column_of_its_rows(*, flat: bool) -> None:
    """Rows 1 and 2 of four have their own values, keys, tags and extras, and nobody else's."""
    whole = Messages(
        [b"v0", b"v1", b"v2", b"v3"], [b"k0", b"k1", b"k2", b"k3"], [0, 1, 2, 3], [None, EXTRAS, None, None]
    )
    part = (whole.flat() if flat else whole).part(1, 3)
    assert part.keys is not None
    assert ([*part.values], [*part.keys], part.tags, part.extras) == (
        [b"v1", b"v2"],
        [b"k1", b"k2"],
        [1, 2],
        [EXTRAS, None],
    )
    assert len(part.keys) == 2
