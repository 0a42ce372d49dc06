"""What a shell offers for the name of a topic when Tab is pressed: the topics there are, if a broker says so at once.

Nothing here may fail or print: a shell would show it in the middle of the line that is being typed.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import typer

PATIENCE_S = 1.0
"""Nobody waits longer for Tab."""


def complete_topic(ctx: typer.Context, incomplete: str) -> Sequence[str]:
    """Return the topics whose names begin so."""
    with suppress(Exception):
        from ..blocking.client import Client

        url = ctx.params.get("url")
        with Client(url if isinstance(url, str) else None, timeout=PATIENCE_S) as client:
            return [topic.name for topic in client.topics.list() if topic.name.startswith(incomplete)]
    return []
