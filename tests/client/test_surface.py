"""The blocking client and the asynchronous one are one client: same names, arguments, defaults, errors."""

from __future__ import annotations

import inspect
import pickle
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import tidelog
from tests.client.flavours import TWINS
from tidelog.client import generate

needs_the_generator = pytest.mark.skipif(
    find_spec("unasync") is None or find_spec("ruff") is None, reason="needs unasync and ruff: pip install tidelog[dev]"
)

ROOT = Path(__file__).parent.parent.parent


def public(kind: type) -> dict[str, object]:
    """Return what a user may touch of a class."""
    return {
        name: member
        for name, member in inspect.getmembers_static(kind)
        if not name.startswith("_") or name == "__init__"
    }


@pytest.mark.parametrize("kind", TWINS, ids=lambda kind: kind.__name__)
def test_both_clients_have_the_same_surface(kind: type) -> None:
    """Every public name is on both, with the same parameters, defaults, annotations and docstring."""
    blocking, asynchronous = public(kind), public(TWINS[kind])
    assert blocking.keys() == asynchronous.keys()
    for name, member in blocking.items():
        twin = asynchronous[name]
        assert type(member) is type(twin), name
        if not callable(member) or not callable(twin):
            continue
        ours, theirs = inspect.signature(member), inspect.signature(twin)
        assert [*map(str, ours.parameters.values())] == [*map(str, theirs.parameters.values())], name
        assert str(ours.return_annotation).replace("Async", "") == str(theirs.return_annotation).replace("Async", "")
        assert (member.__doc__ or "") == generate.in_text(twin.__doc__ or "")
        assert not inspect.iscoroutinefunction(member)


@needs_the_generator
def test_the_blocking_client_is_what_the_generator_makes() -> None:
    """The committed files equal the generation, and the check says so."""
    assert generate.out_of_date() == []
    check = subprocess.run(
        [sys.executable, "client/generate.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (check.returncode, check.stderr) == (0, "")


@needs_the_generator
def test_the_generator_notices_a_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that was edited, removed, or is no longer generated is out of date."""
    for path in generate.TARGET.glob("*.py"):
        (tmp_path / path.name).write_text(path.read_text())
    monkeypatch.setattr(generate, "TARGET", tmp_path)
    (tmp_path / "link.py").write_text((tmp_path / "link.py").read_text() + "\n# edited\n")
    (tmp_path / "reader.py").unlink()
    (tmp_path / "older.py").write_text("")
    assert generate.out_of_date() == ["link.py", "older.py", "reader.py"]
    assert generate.main() == 0
    assert generate.out_of_date() == []


def test_every_public_name_can_be_had_and_is_listed() -> None:
    """All names of the front door load, `dir` shows them, and another name is an AttributeError."""
    for name in tidelog.__all__:
        assert getattr(tidelog, name) is not None
        assert name in dir(tidelog)
    with pytest.raises(AttributeError, match="has no attribute 'Cleint'"):
        tidelog.Cleint  # type: ignore[attr-defined]  # noqa: B018


def test_all_errors_are_in_the_front_door_and_pickle() -> None:
    """Each error that a client can raise can be caught by its name, and crosses process boundaries whole."""
    told_by_keys = {"ConfigError"}  # made of problems, which it pickles: tests/broker/test_config.py
    kinds = [getattr(tidelog, name) for name in tidelog.__all__ if name.endswith("Error") and name not in told_by_keys]
    assert len(kinds) > 30
    for kind in kinds:
        error = kind("what was expected and found", start=1, end=None)
        copy = pickle.loads(pickle.dumps(error))
        assert (type(copy), str(copy), copy.details) == (kind, str(error), {"start": 1, "end": None})
        assert kind.code
        assert issubclass(kind, tidelog.TidelogError)
