"""House rules that a reader relies on: small files, small classes, small functions, and a promise on every test."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("protocol", "native", "broker", "client", "spark", "src/tidelog", "bench", "tests", "examples")
GENERATED = "client/blocking/"

MAX_FILE_LINES = 400
MAX_CLASS_LINES = 250
MAX_FUNCTION_LINES = 60

Function = ast.FunctionDef | ast.AsyncFunctionDef


def project_files() -> list[str]:
    """Every Python file of the project by its path from the root; the links in src/ are not followed twice."""
    found: set[str] = set()
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            name = path.relative_to(ROOT).as_posix()
            through_link = any(parent.is_symlink() for parent in path.parents if parent != ROOT)
            if not through_link and "__pycache__" not in name:
                found.add(name)
    return sorted(found)


FILES = project_files()
WRITTEN = [name for name in FILES if not name.startswith(GENERATED) or name == "client/blocking/runtime.py"]
TESTS = [name for name in WRITTEN if name.startswith("tests/") and Path(name).name.startswith("test_")]


@cache
def tree(name: str) -> ast.Module:
    """The syntax tree of one file."""
    return ast.parse((ROOT / name).read_text(), name)


def lines_of(node: ast.ClassDef | Function) -> int:
    """How many lines a class or function takes, its decorators left out."""
    assert node.end_lineno is not None
    return node.end_lineno - node.lineno + 1


def too_long(name: str, kinds: tuple[type[ast.AST], ...], limit: int) -> Iterator[str]:
    """Describe what is longer than it may be."""
    for node in ast.walk(tree(name)):
        if isinstance(node, kinds) and isinstance(node, ast.ClassDef | Function) and lines_of(node) > limit:
            yield f"{name}:{node.lineno} {node.name} has {lines_of(node)} lines"


def test_the_project_is_found() -> None:
    """The rules below look at the real files; an empty list would make every one of them pass."""
    assert "protocol/errors.py" in WRITTEN
    assert "client/cli/times.py" in WRITTEN
    assert "tests/test_tidy.py" in TESTS


@pytest.mark.parametrize("name", WRITTEN)
def test_a_file_holds_one_job(name: str) -> None:
    """No file, class or function grows past what a reader takes in at once."""
    count = len((ROOT / name).read_text().splitlines())
    assert count <= MAX_FILE_LINES, f"{name} has {count} lines"
    assert not list(too_long(name, (ast.ClassDef,), MAX_CLASS_LINES))
    assert not list(too_long(name, (ast.FunctionDef, ast.AsyncFunctionDef), MAX_FUNCTION_LINES))


def test_no_module_is_a_drawer() -> None:
    """A module is named for what it is about; there is no place for leftovers."""
    assert not {Path(name).stem for name in FILES} & {"utils", "util", "common", "helpers", "misc"}


@pytest.mark.parametrize("name", TESTS)
def test_every_test_says_its_promise(name: str) -> None:
    """Each test function has a docstring that begins with what is promised."""
    silent = [
        f"{name}:{node.lineno} {node.name}"
        for node in ast.walk(tree(name))
        if isinstance(node, Function) and node.name.startswith("test_") and not ast.get_docstring(node)
    ]
    assert not silent


@pytest.mark.parametrize("name", [name for name in WRITTEN if not name.startswith("tests/")])
def test_every_module_says_what_it_is(name: str) -> None:
    """Each module of the product begins with a docstring, unless it is empty."""
    module = tree(name)
    assert not module.body or ast.get_docstring(module), name
