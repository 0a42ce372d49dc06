"""Write `blocking/` from `aio/`: the same code without async and await, on the other runtime.

    python client/generate.py            write what is out of date
    python client/generate.py --check    say what is out of date, with exit code 1

`crew.py`, `runtime.py` and `virtual.py` are not generated: they are where the two differ. The result is formatted by
ruff, committed, and held by a test to be what this script makes of `aio/`.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCE = HERE / "aio"
TARGET = HERE / "blocking"
BY_HAND = frozenset({"__init__.py", "crew.py", "runtime.py", "virtual.py"})

NAMES = {
    "AsyncArchive": "Archive",
    "AsyncColumnSending": "ColumnSending",
    "AsyncClient": "Client",
    "AsyncConsumer": "Consumer",
    "AsyncDeadLetters": "DeadLetters",
    "AsyncGroups": "Groups",
    "AsyncProducer": "Producer",
    "AsyncProducing": "Producing",
    "AsyncLeased": "Leased",
    "AsyncQueue": "Queue",
    "AsyncQueueBatch": "QueueBatch",
    "AsyncQueueMessage": "QueueMessage",
    "AsyncQueueing": "Queueing",
    "AsyncSettleable": "Settleable",
    "AsyncTaking": "Taking",
    "AsyncTypedQueueMessage": "TypedQueueMessage",
    "AsyncReads": "Reads",
    "AsyncReplay": "Replay",
    "AsyncTopics": "Topics",
    "AsyncIterator": "Iterator",
}
"""Besides those that unasync knows (__aenter__, __anext__, StopAsyncIteration and the like)."""

PHRASES = {
    r"async (?=with |for )": "",
    r"await ": "",
    "any number of tasks": "any number of threads",
    "one task iterates": "one thread iterates",
    "One task at a time": "One thread at a time",
    "whichever task": "whichever thread",
}
"""What docstrings say of tasks, and the examples in them."""

WORDS = [(re.compile(rf"\b{old}\b"), new) for old, new in NAMES.items()]
WORDS += [(re.compile(rf"\b{old}"), new) for old, new in PHRASES.items()]
NOTICE = "# Generated from client/aio/{name} by client/generate.py: change that, then run it.\n"


def generate() -> dict[str, str]:
    """Return the generated files by name."""
    import unasync  # a tool of development: an installed client does not have it

    names = sorted(path.name for path in SOURCE.glob("*.py") if path.name not in BY_HAND)
    with tempfile.TemporaryDirectory() as folder:
        rule = unasync.Rule(str(SOURCE), folder, additional_replacements=NAMES)
        files = [str(SOURCE / name) for name in names]
        unasync.unasync_files(files, [rule])  # pyright: ignore[reportUnknownMemberType]
        for name in names:
            path = Path(folder, name)
            path.write_text(NOTICE.format(name=name) + in_text(path.read_text()))
        _ruff("check", "--quiet", "--fix", "--select", "I,RUF100", folder)
        _ruff("format", "--quiet", folder)
        return {name: Path(folder, name).read_text() for name in names}


def in_text(source: str) -> str:
    """Replace the names where unasync does not look: in docstrings."""
    for word, replacement in WORDS:
        source = word.sub(replacement, source)
    return source


def _ruff(*arguments: str) -> None:
    command = [sys.executable, "-m", "ruff", *arguments, "--config", str(HERE.parent / "pyproject.toml")]
    subprocess.run(command, check=True)


def out_of_date() -> list[str]:
    """Return the names of files that are not what would be generated, or should not be there."""
    wanted = generate()
    found = {path.name: path.read_text() for path in TARGET.glob("*.py") if path.name not in BY_HAND}
    return sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))


def main() -> int:
    """Write or check."""
    stale = out_of_date()
    if "--check" in sys.argv[1:]:
        for name in stale:
            print(f"client/blocking/{name} is out of date: run python client/generate.py", file=sys.stderr)
        return 1 if stale else 0
    wanted = generate()
    for name in stale:
        if name in wanted:
            (TARGET / name).write_text(wanted[name])
        else:
            (TARGET / name).unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
