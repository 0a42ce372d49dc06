"""Untrusted text on terminals and in JSON (case 39)."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.client.cli import escaping


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"plain text", "plain text"),
        ("héllo ключ 🔑 👨\u200d👩".encode(), "héllo ключ 🔑 👨\u200d👩"),
        (b"\x1b]52;c;ZWNobw==\x07", r"\x1b]52;c;ZWNobw==\x07"),
        (b"\x1b[2J", r"\x1b[2J"),
        (b"\x9b31m", r"\x9b31m"),
        ("\x9b31m".encode(), r"\x9b31m"),
        (b"over\rwritten\n\tx\x00", r"over\rwritten\n\tx\x00"),
        ("a\u202eb\u2066c".encode(), r"a\u202eb\u2066c"),
        (b"\xff\xfe", r"\xff\xfe"),
        (b"\xef\xbb\xbfbom", r"\ufeffbom"),
        ("tag\U000e0041".encode(), r"tag\U000e0041"),
    ],
)
def test_dangerous_characters_are_shown(data: bytes, shown: str) -> None:
    """Control, direction and invisible characters are shown escaped; every other script stays readable."""
    assert escaping.visible_bytes(data) == shown


def test_an_argument_that_was_not_utf8_is_shown_as_bytes() -> None:
    """Python keeps odd bytes of argv as lone surrogates; they are shown as the bytes they were."""
    assert escaping.visible("key \udcff") == r"key \xff"


@given(st.binary())
def test_no_bytes_can_move_the_cursor(data: bytes) -> None:
    """Whatever the payload, what reaches the terminal is one printable line."""
    shown = escaping.visible_bytes(data)
    assert not any(ord(character) < 0x20 or 0x7F <= ord(character) <= 0x9F for character in shown)
    shown.encode()


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_json_keeps_its_meaning(text: str) -> None:
    """Escaping inside JSON changes no character a reader gets, those beyond 16 bits included."""
    safe = escaping.json_safe(json.dumps([text], ensure_ascii=False))
    assert json.loads(safe) == [text]
    assert not set(safe) & {"\x1b", "\x9b", "\u202e", "\n", "\U000e0041"}
