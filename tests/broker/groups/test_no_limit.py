"""A group without a limit of messages in flight, where the broker has one by default."""

from __future__ import annotations

from typing import Any

import pytest

from tidelog.broker.groups.settings import GroupDefaults, check_settings
from tidelog.client.core.group_settings import to_group_settings
from tidelog.protocol.errors import InvalidGroupError
from tidelog.protocol.messages import GroupSettings


@pytest.mark.parametrize(("given", "in_force"), [(None, 100), (7, 7), (-1, None)])
def test_no_limit_goes_before_the_default(given: int | None, in_force: int | None) -> None:
    """What is not given follows the broker; -1 is none, whatever the broker says, and is told as none."""
    found = GroupDefaults(max_in_flight=100).in_force(GroupSettings(max_in_flight=given))
    assert found.max_in_flight == in_force
    assert found.on_wire().max_in_flight == in_force


def test_zero_is_no_limit_of_any_kind() -> None:
    """A group that may have nothing in flight would be one that nobody can use."""
    with pytest.raises(InvalidGroupError, match="max_in_flight of at least 1, or -1 for no limit, found 0"):
        check_settings(GroupSettings(max_in_flight=0))


@pytest.mark.parametrize(("given", "wire"), [("none", -1), (5, 5), (None, None)])
def test_a_program_says_none(given: Any, wire: int | None) -> None:
    """As the command line shows it."""
    assert to_group_settings(None, None, None, given).max_in_flight == wire


@pytest.mark.parametrize("given", [-1, 0, 1_000_001])
def test_a_program_says_no_number_for_it(given: int) -> None:
    """A number is a limit, from 1 on."""
    with pytest.raises(ValueError, match="max_in_flight: expected a whole number from 1 to 1000000"):
        to_group_settings(None, None, None, given)


@pytest.mark.parametrize("given", ["None", "many", 1.5])
def test_another_word_is_refused(given: Any) -> None:
    """It is not taken for no limit."""
    with pytest.raises(TypeError, match="max_in_flight: expected a whole number"):
        to_group_settings(None, None, None, given)
