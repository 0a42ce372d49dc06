"""`tidelog serve`: a broker in this process, until SIGTERM or Ctrl-C."""

from __future__ import annotations

import gc
import resource
import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from ...protocol.durability import Durability
from ...protocol.quantities import parse_duration_us
from .problems import say_all

if TYPE_CHECKING:
    from ..app import Broker
    from ..config import Config

DONE, INTERRUPTED = 0, 130

EXAMPLES = """\b
Examples:
  tidelog serve --data-dir /var/lib/tidelog
  tidelog serve --data-dir /var/lib/tidelog --listen 0.0.0.0:9440 --insecure
  tidelog serve --config tidelog.yaml --log-level warning
"""

SWITCH_INTERVAL_S = 0.0005
"""How long a thread that computes may keep the interpreter lock when others want it."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("serve", epilog=EXAMPLES)(serve)


def _as_typed(read: Callable[[str], object]) -> Callable[[str], str]:
    """Return a parser that checks a flag's value by `read` and gives it on as it was typed."""

    def parse(text: str) -> str:
        read(text)
        return text

    return parse


def _read_address(text: str) -> object:
    from ..config.values import read_address

    return read_address(text)


def _read_http(text: str) -> str:
    if text != "off":
        raise ValueError(f"this version serves no HTTP: expected off, found {text!r}")
    return text


def _read_level(text: str) -> str:
    if text not in ("debug", "info", "warning", "error"):
        raise ValueError(f"expected debug, info, warning or error, found {text!r}")
    return text


ConfigFile = Annotated[str | None, typer.Option("--config", metavar="FILE", help="A configuration in YAML.")]
DataDir = Annotated[
    str | None, typer.Option("--data-dir", metavar="DIR", help="Where everything is kept [default: ./data].")
]
Listen = Annotated[
    str | None,
    typer.Option(
        "--listen",
        metavar="HOST:PORT",
        parser=_as_typed(_read_address),
        help="Port 0 takes a free one; beyond this machine it needs --insecure [default: 127.0.0.1:9440].",
    ),
]
Insecure = Annotated[
    bool,
    typer.Option(
        "--insecure", help="Let other machines connect, although nothing is encrypted and nobody is asked who they are."
    ),
]
Http = Annotated[
    str | None,
    typer.Option("--http", metavar="off", parser=_read_http, help="Accepted for scripts: this version serves no HTTP."),
]
DurabilityWord = Annotated[
    str | None,
    typer.Option(
        "--durability",
        metavar="synced|written|received",
        parser=_as_typed(Durability.from_word),
        help="Of topics that set nothing else [default: synced].",
    ),
]
InMemory = Annotated[
    bool,
    typer.Option(
        "--in-memory",
        help="Keep everything in memory and lose it at the end; how much that is, only the topics' retention bounds.",
    ),
]
LogLevel = Annotated[
    str | None,
    typer.Option("--log-level", metavar="debug|info|warning|error", parser=_read_level, help="[default: info]"),
]
DrainTimeout = Annotated[
    str | None,
    typer.Option(
        "--drain-timeout",
        metavar="DURATION",
        parser=_as_typed(parse_duration_us),
        help="How long requests in flight may take when stopping [default: 30s].",
    ),
]


def serve(
    config: ConfigFile = None,
    data_dir: DataDir = None,
    listen: Listen = None,
    insecure: Insecure = False,
    http: Http = None,
    durability: DurabilityWord = None,
    in_memory: InMemory = False,
    log_level: LogLevel = None,
    drain_timeout: DrainTimeout = None,
) -> int:
    """Run a broker until Ctrl-C or SIGTERM.

    It says `tidelog serving on tidelog://...` on standard output once it serves, and logs to standard error. Flags
    win over the environment (TIDELOG_LOG__DURABILITY=written), the environment over the file.
    """
    del http  # `off` is what it is anyway
    from ..config import ConfigError, load

    if in_memory and data_dir is not None:
        raise typer.BadParameter("expected one of --in-memory and --data-dir, found both")
    flags = [
        ("broker", "data_dir", data_dir),
        ("broker", "listen", listen),
        ("broker", "insecure", insecure or None),
        ("broker", "drain_timeout", drain_timeout),
        ("log", "durability", durability),
        ("logging", "level", log_level),
    ]
    given: dict[str, dict[str, object]] = {}
    for section, key, value in flags:
        if value is not None:
            given.setdefault(section, {})[key] = value
    try:
        return _run(load(config, given), in_memory=in_memory)
    except ConfigError as error:
        return say_all(error)


def _run(config: Config, *, in_memory: bool) -> int:
    import trio

    from ..app import Broker
    from ..clock import SystemClock
    from ..data_folder import open_files
    from ..embedded import refusal_in
    from ..logging import configure, get_logger

    configure(config.logging.level, config.logging.format)
    _take_descriptors()
    broker = Broker(open_files(None if in_memory else config.broker.data_dir), SystemClock(), config)
    try:
        return trio.run(_serve, broker)
    except BaseExceptionGroup as group:
        refusal = refusal_in(group)
        if refusal is not None:
            raise refusal from None
        get_logger().exception("broker failed")
        raise


async def _serve(broker: Broker) -> int:
    """Run until the first signal, then stop cleanly; a second one does not wait for requests in flight."""
    import trio

    code = DONE

    async def stop_on_signals() -> None:
        nonlocal code
        async for number in signals:
            code = INTERRUPTED if number == signal.SIGINT else code
            broker.stop()

    async def run(task_status: trio.TaskStatus[Broker]) -> None:
        await broker.run(task_status=task_status)
        nursery.cancel_scope.cancel()

    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stop_on_signals)
            await nursery.start(run)
            _tune_interpreter()
            _announce(broker.url)
    return code


def _announce(url: str) -> None:
    try:
        print(f"tidelog serving on {url}", flush=True)
    except OSError:  # whoever started the broker does not listen
        return


def _take_descriptors() -> None:
    """Raise the limit of open files to what the process may have: connections and segments each need one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _tune_interpreter() -> None:
    """Keep the garbage collector and the interpreter lock from making the event loop late.

    The process is the broker's own, so it may. A full collection walks all that a start made (100,000 objects, some
    20 ms) each time; frozen, they are left out. A worker that computes gives the lock back after 5 ms unless told
    otherwise, and the sync thread and the loop wait for it meanwhile.
    """
    gc.collect()
    gc.freeze()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
