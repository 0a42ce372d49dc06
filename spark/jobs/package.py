"""tidelog as one zip of Python files, for clusters whose executors have not installed it: `--py-files tidelog.zip`.

    python -m tidelog.spark.jobs.package tidelog.zip

Everything but the broker. What is compiled is left out, which the client does without; numpy, pyarrow, msgspec, xxhash
and zstandard have to be installed where the executors are, in the driver's version of Python.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from .folder import unfinished_beside

LEFT_OUT = ("broker",)

SAME_TIME = (1980, 1, 1, 0, 0, 0)
"""The same files make the same zip."""


def write_package(path: str | os.PathLike[str]) -> Path:
    """Write the zip and return its path."""
    target = Path(path).absolute()
    unfinished = unfinished_beside(target)
    try:
        with ZipFile(unfinished, "x", ZIP_DEFLATED) as archive:
            for name, file in sorted(_files()):
                archive.writestr(ZipInfo(name, SAME_TIME), file.read_bytes(), ZIP_DEFLATED)
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)
    return target


def _files() -> Iterator[tuple[str, Path]]:
    root = Path(__file__).parent
    while root.name != "tidelog":
        root = root.parent
    for folder, below, names in os.walk(root, followlinks=True):
        at = Path(folder).relative_to(root)
        below[:] = [name for name in below if name != "__pycache__" and not (at == Path() and name in LEFT_OUT)]
        for name in names:
            if name.endswith(".py"):
                yield (Path("tidelog") / at / name).as_posix(), Path(folder) / name


def main(arguments: Sequence[str]) -> int:
    """Write the zip that is named."""
    if len(arguments) != 1:
        print("usage: python -m tidelog.spark.jobs.package FILE.zip", file=sys.stderr)
        return 2
    print(write_package(arguments[0]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
