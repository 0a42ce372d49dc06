"""Every error of the whole package, the broker's and the commands' too, can be sent to another process."""

from __future__ import annotations

import copy
import importlib
import pickle
import pkgutil
from typing import Any

import pytest

import tidelog
from tidelog import DeliveryError, TidelogError
from tidelog.broker.config.problems import ConfigError, Problem
from tidelog.protocol.errors import FailedMessage, SentRecord


def _below(kind: type[TidelogError]) -> list[type[TidelogError]]:
    return [kind, *(found for child in kind.__subclasses__() for found in _below(child))]


def all_errors() -> list[type[TidelogError]]:
    """Return the errors of every module of the package."""
    for module in pkgutil.walk_packages(tidelog.__path__, "tidelog."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    found = dict.fromkeys(kind for kind in _below(TidelogError) if kind.__module__.startswith("tidelog."))
    return sorted(found, key=lambda kind: (kind.__module__, kind.__name__))


def made(kind: type[TidelogError]) -> TidelogError:
    """Return one with something in each of its attributes."""
    if kind is ConfigError:
        return ConfigError([Problem("log.segment_bytes", "expected a size"), Problem("", "no such file")])
    if kind is DeliveryError:
        record = SentRecord("t", b"v", None, [("h", None)], 4, 0, None, "id")
        failed = [FailedMessage(record, 7, TidelogError("why", stored=False))]
        return DeliveryError("not delivered", failed=failed, count=3, name="t")
    return kind("expected a, found b", stored=False, offset=7, name="t", none=None)


def seen(thing: Any) -> Any:
    """Return what can be compared: errors are equal to themselves alone."""
    if isinstance(thing, TidelogError):
        return (type(thing), str(thing), seen(vars(thing)), thing.code, thing.number, thing.retriable)
    if isinstance(thing, dict):
        return {name: seen(value) for name, value in thing.items()}
    return [type(thing), *map(seen, thing)] if isinstance(thing, list | tuple) else thing


@pytest.mark.parametrize("kind", all_errors(), ids=lambda kind: kind.__name__)
def test_an_error_arrives_as_it_was(kind: type[TidelogError]) -> None:
    """Its type, text and attributes, by every protocol of pickle and by copying."""
    error = made(kind)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert seen(pickle.loads(pickle.dumps(error, protocol))) == seen(error)
    assert seen(copy.deepcopy(error)) == seen(error)


def test_the_broker_s_and_the_commands_errors_are_among_them() -> None:
    """The walk reaches them all."""
    names = {kind.__name__ for kind in all_errors()}
    assert {"ConfigError", "DataDirLockedError", "CannotListenError", "InputError", "VerificationError"} <= names
