"""The command line that our own benchmark and every peer's driver share: same options, same lines."""

from __future__ import annotations

import argparse
import math
import signal
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from .conditions import SMALLEST_VALUE_BYTES, Conditions
from .errors import NotInstalledError, VerificationError
from .result import Result, results_table

EXIT_NO_FIGURE = 1
EXIT_NOT_INSTALLED = 3

Measure = Callable[[Conditions], Iterator[tuple[str, float]]]
"""Runs one round of a family, verifies it, and only then yields its figures by name."""


@dataclass(frozen=True, slots=True)
class Command:
    """What can be measured of one system."""

    module: str
    about: str | None
    label: Callable[[], str]
    """The system's name and version; raises NotInstalledError."""
    durabilities: tuple[str, ...]
    """Its words, the usual one first."""
    families: Mapping[str, Measure]

    def main(self, arguments: Sequence[str] | None = None) -> int:
        """Print the figures asked for; 1 when something is not as it was sent, 3 when the system is not installed."""
        leave_on_sigterm()
        options = self._parser().parse_args(arguments)
        unknown = set(options.families) - set(self.families)
        if unknown:
            self._parser().error(f"expected {', '.join(self.families)}, found {', '.join(sorted(unknown))}")
        results: list[Result] = []
        try:
            label = self.label()
            for family in options.families or self.families:
                for result in self._family(family, label, options):
                    results.append(result)
                    if not options.markdown:
                        print(result.line(), flush=True)
        except VerificationError as error:
            print(f"no figure: {error}", file=sys.stderr)
            return EXIT_NO_FIGURE
        except NotInstalledError as error:
            print(error, file=sys.stderr)
            return EXIT_NOT_INSTALLED
        if options.markdown:
            print(results_table(results))
        return 0

    def _family(self, name: str, label: str, options: argparse.Namespace) -> Iterator[Result]:
        for size in options.size:
            for durability in options.durability:
                samples: dict[str, list[float]] = defaultdict(list)
                for number in range(options.rounds):
                    conditions = Conditions(
                        messages=options.messages,
                        size=size,
                        durability=durability,
                        calls=options.calls,
                        seconds=options.seconds,
                        warm_up=options.warm_up,
                        backlog=options.backlog,
                        gib=options.gib,
                        round=options.first_round + number,
                    )
                    for figure, value in self.families[name](conditions):
                        samples[figure].append(value)
                for figure, values in samples.items():
                    yield Result(label, figure, size, durability, tuple(values))

    def _parser(self) -> argparse.ArgumentParser:
        parser = argparse.ArgumentParser(prog=f"python -m {self.module}", description=self.about)
        families = ", ".join(self.families)
        parser.add_argument("families", nargs="*", metavar="FAMILY", help=f"of {families}; all when none is named")
        add_load_options(parser)
        parser.add_argument("--size", type=_value_size, nargs="+", default=[100], help="bytes of one value")
        parser.add_argument("--rounds", type=_positive, default=5)
        parser.add_argument("--first-round", type=int, default=0, help=argparse.SUPPRESS)
        parser.add_argument(
            "--durability", choices=self.durabilities, nargs="+", default=[self.durabilities[0]], metavar="WORD"
        )
        parser.add_argument("--markdown", action="store_true", help="a table at the end instead of JSON lines")
        return parser


def add_load_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how much is sent."""
    parser.add_argument("--messages", type=_positive, default=1_000_000, help="messages of a figure that is a rate")
    parser.add_argument("--calls", type=_positive, default=4_000, help="calls that are timed one by one")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long a paced run takes")
    parser.add_argument("--warm-up", type=_positive, default=300_000, help="messages before a rate is measured")
    parser.add_argument("--backlog", type=_positive, default=1_000_000, help="messages that are to be overtaken")
    parser.add_argument("--gib", type=_amount, default=1.0, help="GiB of a log that is large")


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected 1 or more, found {number}")
    return number


def _amount(text: str) -> float:
    number = float(text)
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"expected more than 0, found {number:g}")
    return number


def _value_size(text: str) -> int:
    size = int(text)
    if size < SMALLEST_VALUE_BYTES:
        raise argparse.ArgumentTypeError(f"expected {SMALLEST_VALUE_BYTES} or more, found {size}")
    return size


def leave_on_sigterm() -> None:
    """Let SIGTERM end the process by an exception, so that every `with` ends the server it started."""
    signal.signal(signal.SIGTERM, _leave)


def _leave(_number: int, _frame: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the first is being obeyed
    raise SystemExit(128 + signal.SIGTERM)
