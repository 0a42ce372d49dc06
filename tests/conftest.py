"""Options and fixtures of the whole suite."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import hypothesis
import pytest
from xdist.remote import Producer

from tests.helpers.workers import ByFile, worker_count


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--soak N`: how many times as many random states the crash tests try."""
    parser.addoption(
        "--soak",
        type=int,
        nargs="?",
        const=20,
        default=1,
        metavar="N",
        help="multiply the random states of the crash tests by N (20 when no number is given); raise --timeout with it",
    )


def pytest_configure() -> None:
    """Make hundreds of children cheap: they keep their bytecode where the machine says not to, or each would compile it
    all again, and start no threads for a linear algebra that nobody here uses. Have no example fail by the clock."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # How long an example takes, or its making, says how busy the machine is: what is to be quick counts processor time.
    hypothesis.settings.register_profile(
        "tidelog", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
    )
    hypothesis.settings.load_profile("tidelog")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Share folders of tests among workers, and run files that are named in this process."""
    return worker_count(config)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByFile:
    """Keep the tests of a file on one worker."""
    return ByFile(config, log)


@pytest.fixture(scope="module", autouse=True)
def survivors() -> None:
    """Take what is there before a file's first test, thousands of tests and what others left, from the collector's
    sight: each of the tests that collect, as those do that hold what is left behind, would look through all of it."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def soak(request: pytest.FixtureRequest) -> int:
    """By how much this run multiplies the states of a randomised test; 1 in the default suite."""
    return int(request.config.getoption("soak"))


@pytest.fixture
def children_find_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a child that is not forked import the test's module by its name: it looks where the parent's path says, and
    a `pytest` that is a program of its own has not the project's root on it."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent.parent))
