"""The name that somebody probably meant."""

from __future__ import annotations

import pytest

from tidelog.broker.nearest_name import MAX_CANDIDATES, nearest_name


@pytest.mark.parametrize(
    ("name", "nearest"), [("ordrs", "orders"), ("order", "orders"), ("invoice", "invoices"), ("zzz", None), ("", None)]
)
def test_a_typing_error_is_recognised(name: str, nearest: str | None) -> None:
    """The most similar name is suggested, and none where nothing is similar."""
    assert nearest_name(name, ["orders", "invoices", "payments"]) == nearest


def test_of_many_names_those_of_like_length_are_compared() -> None:
    """Among more names than are compared, the one with a letter missing is still found."""
    many = [f"topic-with-a-long-name-{n}" for n in range(MAX_CANDIDATES * 4)]
    assert nearest_name("ordrs", [*many, "orders"]) == "orders"
