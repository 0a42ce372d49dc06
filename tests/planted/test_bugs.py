"""The planted bugs still fit the code: `python -m tests.planted` can be run at any time."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from .bugs import BUGS, Bug

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_bug_can_be_planted(bug: Bug) -> None:
    """Its place is there once, the file is Python with the bug in it too, and its test exists."""
    text = (ROOT / bug.file).read_text()
    assert text.count(bug.before) == 1
    assert bug.before != bug.after
    ast.parse(text.replace(bug.before, bug.after))
    file, _, test = bug.test.partition("::")
    functions = [
        node.name
        for node in ast.parse((ROOT / file).read_text()).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    assert not test or test.partition("[")[0] in functions


def test_names_are_unique() -> None:
    """Each bug can be named on the command line."""
    assert len({bug.name for bug in BUGS}) == len(BUGS) >= 12
