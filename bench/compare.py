"""Measure tidelog and Kafka alternately, in rounds, and compare: `python -m bench.compare [FAMILY ...]`.

In each round and for each family one system after the other starts its server, warms up, is timed, is read back and
compared, and stops; which one is first changes from round to round. A round of either that does not verify ends the
comparison without figures.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from .command import add_load_options, leave_on_sigterm
from .comparison import Key, Row, Share, comparison_table, rows_of, shares_of
from .result import Result
from .targets import TARGETS

ROOT = Path(__file__).parent.parent
PEER_MODULE = "bench.peers.kafka"
OUR_MODULE = "bench.e2e.log"
DEFAULT_PEER_PYTHON = Path("~/.cache/tidelog-peers/v/bin/python")
STOP_SECONDS = 60.0

FAMILIES = tuple(dict.fromkeys(target.family for target in TARGETS))


class RunError(Exception):
    """One side ended without its figures."""

    def __init__(self, module: str, exit_code: int) -> None:
        super().__init__(f"{module} ended with exit code {exit_code}")
        self.exit_code = exit_code


@dataclass(frozen=True, slots=True)
class Turn:
    """What one system measures at a time."""

    module: str
    python: str
    family: str
    durability: str
    sizes: tuple[int, ...] = ()

    def run(self, options: Sequence[str]) -> list[Result]:
        """Measure it in a process of its own. Raises RunError."""
        sizes = [str(size) for size in self.sizes]
        command = [self.python, "-m", self.module, self.family, "--rounds", "1", "--size", *sizes]
        command += ["--durability", self.durability, *options]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        try:
            output, _ = process.communicate()
        finally:
            if process.poll() is None:  # leave it the time to end the server that it started
                process.terminate()
                process.wait(STOP_SECONDS)
        if process.returncode:
            raise RunError(self.module, process.returncode)
        return [Result.of_line(line) for line in output.splitlines()]


def turns(families: Sequence[str], peer_python: str) -> Iterator[list[Turn]]:
    """Yield what is measured side by side: everything that is compared with the same family of the peer."""
    together: dict[str, dict[Turn, set[int]]] = defaultdict(lambda: defaultdict(set))
    for target in TARGETS:
        if target.family in families:
            group = together[target.peer_family]
            group[Turn(OUR_MODULE, sys.executable, target.family, target.durability)].add(target.size)
            group[Turn(PEER_MODULE, peer_python, target.peer_family, target.peer_durability)].add(target.size)
    for group in together.values():
        yield [replace(turn, sizes=tuple(sorted(sizes))) for turn, sizes in group.items()]


def measure(options: argparse.Namespace) -> tuple[list[Row], list[Share], set[str]]:
    """Run all rounds; return the rows, shares of our own figures, and the names of the systems."""
    ours: dict[Key, list[float]] = defaultdict(list)
    peers: dict[Key, list[float]] = defaultdict(list)
    labels: set[str] = set()
    load = ["--messages", options.messages, "--calls", options.calls]
    load += ["--seconds", options.seconds, "--warm-up", options.warm_up, "--gib", options.gib]
    load += ["--backlog", options.backlog]
    for number in range(options.rounds):
        passed = [*map(str, load), "--first-round", str(number)]
        for group in turns(options.families, options.peer_python):
            for turn in group if number % 2 == 0 else reversed(group):
                for result in turn.run(passed):
                    side = ours if turn.module == OUR_MODULE else peers
                    side[result.figure, result.size, result.durability] += result.samples
                    labels.add(result.system)
                    print(f"round {number + 1}: {result.line()}", file=sys.stderr, flush=True)
    return rows_of(ours, peers, options.families), shares_of(ours), labels


def machine() -> dict[str, object]:
    """Return what the figures depend on."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": models[0] if models else platform.machine(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 2),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare; 1 when a side did not verify or broke, 3 when the peer is not installed."""
    leave_on_sigterm()
    options = _options(arguments)
    before = machine()
    try:
        rows, shares, labels = measure(options)
    except RunError as error:
        print(f"no comparison: {error}", file=sys.stderr)
        return error.exit_code if error.exit_code > 0 else 1
    peer = next((label for label in labels if not label.startswith("tidelog")), "Kafka")
    print(comparison_table(rows, peer))
    for share in shares:
        print(f"\n{share.line}")
    if options.json is not None:
        kept = {
            "date": datetime.now(UTC).isoformat(timespec="minutes"),
            "systems": sorted(labels),
            "machine": before,
            "rounds": options.rounds,
            "messages": options.messages,
            "rows": [row.as_json() for row in rows],
            "shares": [share.line for share in shares],
        }
        options.json.write_text(json.dumps(kept, indent=1) + "\n")
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.compare", description=__doc__)
    parser.add_argument("families", nargs="*", metavar="FAMILY", help=f"of {', '.join(FAMILIES)}; all by default")
    add_load_options(parser)
    parser.add_argument("--rounds", type=int, default=5, help="at least five for a figure that counts")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep everything there, for bench.chart")
    found = DEFAULT_PEER_PYTHON.expanduser()
    default = str(found) if found.exists() else sys.executable
    parser.add_argument("--peer-python", default=default, help="the Python that has confluent-kafka")
    options = parser.parse_args(arguments)
    unknown = set(options.families) - set(FAMILIES)
    if unknown:
        parser.error(f"expected {', '.join(FAMILIES)}, found {', '.join(sorted(unknown))}")
    options.families = options.families or list(FAMILIES)
    return options


if __name__ == "__main__":
    sys.exit(main())
