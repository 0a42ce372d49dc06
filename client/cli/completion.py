"""What a shell offers for the name of a topic or a group when Tab is pressed: those there are, if a broker says so at
once.

Nothing here may fail or print: a shell would show it in the middle of the line that is being typed.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from ..blocking.client import Client

PATIENCE_S = 1.0
"""Nobody waits longer for Tab."""


def complete_topic(ctx: typer.Context, incomplete: str) -> Sequence[str]:
    """Return the topics whose names begin so."""
    with suppress(Exception), _client(ctx) as client:
        return [topic.name for topic in client.topics.list() if topic.name.startswith(incomplete)]
    return []


def complete_group(ctx: typer.Context, incomplete: str) -> Sequence[str]:
    """Return the groups whose names begin so."""
    with suppress(Exception), _client(ctx) as client:
        return [group.name for group in client.groups.list() if group.name.startswith(incomplete)]
    return []


def _client(ctx: typer.Context) -> Client:
    from ..blocking.client import Client

    url = ctx.params.get("url")
    return Client(url if isinstance(url, str) else None, timeout=PATIENCE_S)
