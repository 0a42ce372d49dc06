"""What is wrong with a configuration, all of it at once, each problem with the key it concerns."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from ...protocol.errors import TidelogError
from .sections import Config
from .wording import attribute_of, wording

LATER_SECTIONS = ("auth", "http", "metrics", "quotas", "schedule", "tls")
"""Sections of later versions: refused, so that nobody relies on a setting that does nothing yet."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong; `key` is written as in the file, `log.segment_bytes`."""

    key: str
    text: str

    def __str__(self) -> str:
        return f"{self.key}: {self.text}" if self.key else self.text


class ConfigError(TidelogError):
    """The configuration cannot be used; `problems` names every key that is wrong."""

    code: ClassVar[str] = "INVALID_CONFIG"
    number: ClassVar[int] = 0

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = list(problems)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.problems,)


def keys_of(model: type[BaseModel] = Config) -> dict[str, list[str]]:
    """Return section -> keys, as they are written."""
    return {
        name: [field.alias or key for key, field in section.model_fields.items()]
        for name, section in _sections(model).items()
    }


def _sections(model: type[BaseModel]) -> dict[str, type[BaseModel]]:
    found = {name: field.annotation for name, field in model.model_fields.items()}
    return {name: kind for name, kind in found.items() if isinstance(kind, type) and issubclass(kind, BaseModel)}


def is_nested(section: str, key: str) -> bool:
    """Whether a key of a section has keys of its own."""
    return _model_at((section, key)) is not None


def _model_at(location: Sequence[str]) -> type[BaseModel] | None:
    """Return the section, or the part of one, at a place of the configuration; None when there is none."""
    model: type[BaseModel] | None = Config
    for name in location:
        model = None if model is None else _sections(model).get(name)
    return model


def problems_of(error: ValidationError) -> list[Problem]:
    """Return pydantic's findings in our words."""
    return [_problem(tuple(map(str, found["loc"])), found) for found in error.errors()]


def _problem(location: Sequence[str], found: ErrorDetails) -> Problem:
    key = ".".join(location)
    if found["type"] != "extra_forbidden":
        section = _model_at(location[:-1]) if location else None
        attribute = attribute_of(section, location[-1]) if section is not None else key
        return Problem(key, wording(attribute, found["type"], found["msg"], found["input"], found.get("ctx", {})))
    if len(location) == 1:
        return _unknown_section(location[0])
    return _unknown_key(location[:-1], location[-1])


def _unknown_section(name: str) -> Problem:
    if name in LATER_SECTIONS:
        return Problem(name, "this version has no such section yet; leave it out")
    return Problem(name, f"unknown section{_nearest(name, keys_of())}")


def _unknown_key(place: Sequence[str], key: str) -> Problem:
    homes = [home for home, known in keys_of().items() if key in known]
    model = _model_at(place)
    known = [] if model is None else [field.alias or name for name, field in model.model_fields.items()]
    hint = f"; did you mean {homes[0]}.{key}?" if homes else _nearest(key, known)
    return Problem(".".join((*place, key)), f"unknown key{hint}")


def _nearest(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else ""
