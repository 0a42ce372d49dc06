"""Benchmarks run alone: of two that share a machine neither is measured."""

from __future__ import annotations

import pytest


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Run every benchmark in this process, one after the other."""
    return 0
