"""Errors as long as the client sends them, of more messages than fit into one reply with them."""

from __future__ import annotations

from collections.abc import Callable

from tidelog.testing import Broker

COUNT = 1_000
"""Of 4,352 bytes each, which is as many messages as one request asks for: a reply has four mebibytes at most."""


def raising() -> Callable[[str], None]:
    """Return a function that raises what it is told, with a name that fills the traceback, and so has the error."""
    name = "f" * 2_100
    found: dict[str, Callable[[str], None]] = {}
    exec(f"class {name}(Exception): pass\ndef {name[1:]}(text):\n    raise {name}(text)", found)
    return found[name[1:]]


def test_the_messages_of_a_group_with_long_errors_are_listed() -> None:
    """Each with its own, one after the other; and as many as were asked for."""
    texts = [f"{number:05}" + "x" * 2_043 for number in range(COUNT)]
    call = raising()
    with Broker(delivery={"max_error_bytes": "64KiB"}) as broker, broker.client() as client:
        client.topics.create("orders", partitions=1)
        client.produce_many("orders", [b"x"] * COUNT)
        with client.queue("orders", group="g", start="earliest") as queue:
            for message, text in zip(queue.receive(COUNT), texts, strict=True):
                try:
                    call(text)
                except Exception as error:
                    message.nack(error, delay=600)
        failures = [state.failure for state in client.groups.messages("g", states=["waiting"])]
        assert [failure.text for failure in failures if failure] == texts
        assert {(len(one.kind), len(one.traceback)) for one in failures if one} == {(256, 2_048)}
        assert len([*client.groups.messages("g", states=["waiting"], limit=600)]) == 600
