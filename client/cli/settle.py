"""`tidelog settle`: say what became of a message that `consume --settle none` left leased."""

from __future__ import annotations

from datetime import timedelta
from enum import Enum
from typing import Annotated

import typer

from .command import Command, example
from .errors import WrongUsage
from .lease_durations import parse_delay, parse_extension
from .options import Output, OutputFormat, Timeout, Url
from .output import StandardOutput
from .session import connected


class Action(Enum):
    """What becomes of the message."""

    ACK = "ack"
    NACK = "nack"
    REJECT = "reject"
    EXTEND = "extend"


def parse_token(text: str) -> str:
    """Check a token and return it as typed. Raises ValueError."""
    from ..core.lease_token import LeaseToken  # here, because --help can do without

    try:
        LeaseToken.parse(text)
    except ValueError as error:
        raise ValueError(str(error).removeprefix("token: ")) from None
    return text


Token = Annotated[
    str, typer.Argument(metavar="TOKEN", parser=parse_token, help="What `consume --settle none` printed.")
]
ActionArgument = Annotated[
    Action,
    typer.Argument(
        metavar="ack|nack|reject|extend",
        help="It is done; it failed, and is tried again; it is given up; it is worked on for longer.",
    ),
]
Error = Annotated[str | None, typer.Option("--error", metavar="TEXT", help="Why, with nack or reject.")]
Delay = Annotated[
    timedelta | None,
    typer.Option(
        "--delay",
        parser=parse_delay,
        metavar="DURATION",
        help="When to try again, with nack [default: by the backoff policy].",
    ),
]
For = Annotated[
    timedelta | None,
    typer.Option(
        "--for",
        parser=parse_extension,
        metavar="DURATION",
        help="How long from now, with extend [default: the visibility timeout].",
    ),
]


def settle(
    token: Token,
    action: ActionArgument,
    error: Error = None,
    delay: Delay = None,
    duration: For = None,
    url: Url = None,
    output: Output = OutputFormat.TABLE,
    timeout: Timeout = None,
) -> None:
    """Settle a leased message by its token, from wherever.

    It returns when that is durable, and prints nothing but with --output json. If the lease has ended, or the message
    was settled otherwise, nothing changes, and the error is LEASE_LOST; the same once more is no error.
    """
    if error is not None and action not in (Action.NACK, Action.REJECT):
        raise WrongUsage("--error needs nack or reject")
    if delay is not None and action is not Action.NACK:
        raise WrongUsage("--delay needs nack")
    if duration is not None and action is not Action.EXTEND:
        raise WrongUsage("--for needs extend")
    out = StandardOutput()
    with connected(url, timeout) as client:
        client.settle(token, action.value, error=error, delay=delay, duration=duration)
    if output is OutputFormat.JSON:
        out.done = "the message was settled"
        out.json({"settled": action.value})
    out.flush()


def register(app: typer.Typer) -> None:
    """Add the command."""
    lines = (
        "tidelog settle $TOKEN ack",
        'tidelog settle $TOKEN nack --error "card declined" --delay 10s',
        "tidelog settle $TOKEN extend --for 5m",
    )
    app.command("settle", cls=Command, epilog=example(*lines))(settle)
