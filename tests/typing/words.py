"""What type checkers see of arguments that are words: pyright reads this file in strict mode, nobody runs it."""

# pyright: strict

from __future__ import annotations

from tidelog import Client


def words(client: Client) -> None:
    """A slip in a word is found before the program runs."""
    client.produce("t", b"", durability="written")
    client.produce("t", b"", durability="writen")  # pyright: ignore[reportArgumentType, reportCallIssue]
    client.produce_many("t", [b""], durability="synced")
    client.producer(compression="zstd", durability=None)
    client.producer(compression="gzip")  # pyright: ignore[reportArgumentType]
    client.consumer("t", by="timestamp", on_gap="skip", on_corrupt="raise")
    client.consumer("t", on_gap="no")  # pyright: ignore[reportArgumentType, reportCallIssue]
    client.replay("t", ordered="time", missing="skip", by="append_time")
    client.replay("t", ordered="tiem")  # pyright: ignore[reportArgumentType, reportCallIssue]
