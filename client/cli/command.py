"""Commands whose flags cost nothing when they are left out.

Typer turns every value into its type by pydantic, None and enumerations' members too, and loading pydantic takes longer
than a small command like `tidelog ping` itself. A value that is what it should be already needs no turning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from functools import partial
from typing import Protocol, cast

import typer
from typer.core import TyperCommand, TyperGroup

Process = Callable[[typer.Context, object], object]


class Parameter(Protocol):
    """What typer knows of an argument or a flag, as far as it matters here."""

    required: bool
    multiple: bool
    nargs: int
    callback: Callable[[typer.Context, Parameter, object], object] | None
    process_value: Process


class Command(TyperCommand):
    """A command."""

    def parse_args(self, ctx: object, args: list[str]) -> list[str]:
        """Read the arguments."""
        context = cast(typer.Context, ctx)
        _spare(self.get_params(context))
        return super().parse_args(context, args)


class Group(TyperGroup):
    """A command that has others below it."""

    def parse_args(self, ctx: object, args: list[str]) -> list[str]:
        """Read the arguments in front of the command's name."""
        context = cast(typer.Context, ctx)
        _spare(self.get_params(context))
        return super().parse_args(context, args)


def example(*lines: str) -> str:
    """Return the end of a command's help: command lines as one would type them, kept as they are."""
    return "\n".join(["\b", "Example:" if len(lines) == 1 else "Examples:", *(f"  {line}" for line in lines)])


def _spare(parameters: Iterable[object]) -> None:
    for each in parameters:
        parameter = cast("Parameter", each)
        is_single = not parameter.multiple and parameter.nargs == 1
        if is_single and not parameter.required and not isinstance(parameter.process_value, partial):
            parameter.process_value = partial(_process, parameter, parameter.process_value)


def _process(parameter: Parameter, process: Process, context: typer.Context, value: object) -> object:
    if value is not None and not isinstance(value, Enum):
        return process(context, value)
    return value if parameter.callback is None else parameter.callback(context, parameter, value)
