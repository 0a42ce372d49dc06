"""The token of a leased message."""

from __future__ import annotations

import pytest

from tidelog.client.core.lease_token import LeaseToken

TOKEN = LeaseToken(1, 2, 3, 4, 5 << 40 | 6, 7)


def test_a_token_is_read_as_it_was_written():
    """50 characters that a shell takes, and back."""
    assert len(TOKEN.text()) == 50
    assert LeaseToken.parse(TOKEN.text()) == TOKEN


@pytest.mark.parametrize("place", range(50))
def test_a_slip_in_any_character_is_found(place: int):
    """Also in the last one, of which base64 uses only some bits, and for signs that base64 passes over."""
    text = TOKEN.text()
    for other in "ABQgw8_-!":
        if other != text[place]:
            with pytest.raises(ValueError, match="token: expected a message's lease_token"):
                LeaseToken.parse(text[:place] + other + text[place + 1 :])
            with pytest.raises(ValueError, match="token: expected a message's lease_token"):
                LeaseToken.parse(text[:place] + "!" + text[place:])
