"""Names of topics and ids of messages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.protocol.errors import InvalidRequestError, InvalidTopicError
from tidelog.protocol.topic_name import MessageId, full_name, is_internal, short_name


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("orders", "default/orders"),
        ("shop/orders", "shop/orders"),
        ("a.b-c_D9", "default/a.b-c_D9"),
        ("x" * 116, "default/" + "x" * 116),
        ("x" * 116 + ".dlq", "default/" + "x" * 116 + ".dlq"),
    ],
)
def test_names_get_their_namespace(name: str, full: str):
    """A name without a namespace is in `default`, and is shown without it."""
    assert full_name(name) == full
    assert full_name(short_name(full)) == full


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "a/..", "a/b/c", "/a", "a/", "x" * 117, "x" * 117 + ".dlq", "ö", "a b", "a~2", "a@1", "a\n", None],
)
def test_names_outside_the_rule_are_refused(name: str):
    """A name that could escape its folder or an id is refused with the rule."""
    with pytest.raises(InvalidTopicError, match="expected a topic name of 1 to 116"):
        full_name(name)


def test_internal_names():
    """Two underscores at the start of the last part are the broker's own."""
    assert is_internal("default/__meta")
    assert not is_internal("__x/orders")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("orders/2@45678", MessageId("default/orders", 1, 2, 45678)),
        ("shop/orders/0@0", MessageId("shop/orders", 1, 0, 0)),
        ("orders~2/2@5", MessageId("default/orders", 2, 2, 5)),
    ],
)
def test_ids_read_and_show_the_same_text(text: str, expected: MessageId):
    """An id is read from the right and shows as it was read."""
    assert MessageId.parse(text) == expected
    assert str(expected) == text


@pytest.mark.parametrize(
    "text", ["", "orders", "orders/2", "orders@5", "orders/x@5", "orders/2@-1", "/2@5", "a/b/c/2@5"]
)
def test_what_is_not_an_id_shows_the_form(text: str):
    """A wrong id is refused with an example of a right one."""
    with pytest.raises(InvalidRequestError, match=r"expected a message id such as orders/2@45678"):
        MessageId.parse(text)


@given(
    st.from_regex(r"[A-Za-z0-9_-]{1,20}", fullmatch=True),
    st.integers(1, 99),
    st.integers(0, 999),
    st.integers(0, 10**17),
)
def test_every_id_round_trips(name: str, count: int, partition: int, offset: int):
    """Whatever id there is, its text reads back as the same id."""
    message_id = MessageId(f"default/{name}", count, partition, offset)
    assert MessageId.parse(str(message_id)) == message_id
