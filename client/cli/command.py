"""Commands whose flags cost nothing when they are left out.

Typer turns every value into its type by pydantic, None, enumerations' members and text too, and loading pydantic takes
longer than a small command like `tidelog ping` itself. A value that is what it should be already needs no turning, and
text that has a parser of its own needs nothing else.
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
        if not isinstance(parameter.process_value, partial):
            parameter.process_value = partial(_process, parameter, parameter.process_value)


def _process(parameter: Parameter, process: Process, context: typer.Context, value: object) -> object:
    """Return what typer would; what is not plain is left to it."""
    if not value and (parameter.multiple or parameter.nargs != 1):
        return process(context, value) if parameter.required else ()
    is_missing = value is None and parameter.required
    texts = list(_texts(value))
    parse = _parser_of(parameter) if texts else None
    if parse is not None:
        try:
            parsed = [parse(text) for text in texts]
        except ValueError as error:
            raise typer.BadParameter(str(error), ctx=context, param=parameter) from None  # pyright: ignore[reportArgumentType]
        value = parsed[0] if isinstance(value, str) else parsed
    elif is_missing or not (value is None or isinstance(value, Enum)):
        return process(context, value)
    return value if parameter.callback is None else parameter.callback(context, parameter, value)


def _texts(value: object) -> Iterable[str]:
    """Yield the text of one value or of several; of anything else nothing."""
    values = cast("Iterable[object]", value) if isinstance(value, list | tuple) else [value]
    return (each for each in values if isinstance(each, str))


def _parser_of(parameter: Parameter) -> Callable[[str], object] | None:
    """Return what reads the text of a value: its own parser, or nothing to be done where text is wanted."""
    described = getattr(parameter, "type_descriptor", None)
    parse: Callable[[str], object] | None = getattr(getattr(described, "parameter_info", None), "parser", None)
    return str if parse is None and getattr(described, "annotation", None) in (str, list[str]) else parse
