"""Grade the suite: `python -m tests.planted [NAME ...]` plants each bug in a copy of the project and runs its test.

A bug is found when its test passes on the copy as it is and fails with the bug in it. Exit code 0 when all
are found.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from .bugs import BUGS, Bug

ROOT = Path(__file__).parents[2]
TEST_TIMEOUT_S = 300
_LEFT_OUT = shutil.ignore_patterns(".git", "__pycache__", ".*_cache", ".hypothesis", ".venv", "*.egg-info", "data")


class Copy:
    """A copy of the project in which bugs are planted and tests are run."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "tidelog"
        shutil.copytree(ROOT, self.root, symlinks=True, ignore=_LEFT_OUT)
        self._environment = {**os.environ, "PYTHONPATH": f"{self.root / 'src'}{os.pathsep}{self.root}"}
        found = self._run("-c", "import tidelog; print(tidelog.__file__)").stdout.strip()
        if not found.startswith(str(self.root)):
            raise SystemExit(f"expected the copy to be imported, found {found}")

    def plant(self, bug: Bug) -> None:
        """Put a bug into the copy."""
        path = self.root / bug.file
        text = path.read_text()
        if text.count(bug.before) != 1:
            raise SystemExit(
                f"{bug.name}: expected its place once in {bug.file}, found it {text.count(bug.before)} times"
            )
        path.write_text(text.replace(bug.before, bug.after))

    def restore(self, bug: Bug) -> None:
        """Take it out again."""
        shutil.copyfile(ROOT / bug.file, self.root / bug.file)

    def passes(self, test: str) -> bool:
        """Say whether a test passes; anything but a pass or a failure ends the program."""
        done = self._run("-m", "pytest", "-x", "-p", "no:cacheprovider", "--no-header", test)
        if done.returncode not in (0, 1):
            raise SystemExit(f"{test} could not be run:\n{done.stdout}{done.stderr}")
        return done.returncode == 0

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=self.root,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=TEST_TIMEOUT_S,
        )


def grade(copy: Copy, bug: Bug, known_good: set[str]) -> str:
    """Return "found", or what is wrong."""
    if bug.test not in known_good:
        if not copy.passes(bug.test):
            return "its test fails without the bug too"
        known_good.add(bug.test)
    copy.plant(bug)
    try:
        return "NOT FOUND: its test passes with the bug" if copy.passes(bug.test) else "found"
    finally:
        copy.restore(bug)


def main() -> int:
    """Plant the bugs that are named, or all."""
    names = sys.argv[1:]
    unknown = set(names) - {bug.name for bug in BUGS}
    if unknown:
        print(f"no bug is named {', '.join(sorted(unknown))}; there are {', '.join(bug.name for bug in BUGS)}")
        return 2
    chosen = [bug for bug in BUGS if not names or bug.name in names]
    missed = 0
    known_good: set[str] = set()
    with tempfile.TemporaryDirectory(prefix="tidelog-planted-") as folder:
        copy = Copy(Path(folder))
        for bug in chosen:
            started = time.monotonic()
            verdict = grade(copy, bug, known_good)
            missed += verdict != "found"
            print(f"{bug.name:32} {verdict:12} {time.monotonic() - started:5.1f} s   {bug.what}", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} planted bugs found")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
