"""What a socket did not take yet."""

from __future__ import annotations

from tidelog.client.core.unsent import Unsent


def test_bytes_leave_in_order_however_few_go_at_a_time() -> None:
    """Frames of several pieces, taken 1, 2, 3 ... bytes at a time, come out whole."""
    for step in range(1, 12):
        unsent = Unsent()
        unsent.add((b"head1", bytearray(b"bulk")), 3)
        unsent.add((b"head2",), 0)
        out = b"hea"
        while unsent:
            data = b"".join(unsent.pieces())[:step]
            unsent.sent(len(data))
            out += data
        assert out == b"head1bulkhead2"


def test_no_more_pieces_than_a_system_call_takes() -> None:
    """The rest follows with the next."""
    unsent = Unsent()
    for _ in range(100):
        unsent.add((b"x",), 0)
    assert len(unsent.pieces()) == 64
    unsent.sent(64)
    assert len(unsent.pieces()) == 36
    unsent.clear()
    assert not unsent
