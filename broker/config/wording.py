"""What pydantic finds, said as everything else in the configuration: what was expected, what was found, with units."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel

from ...protocol.quantities import format_duration, format_size

_LITERAL = "literal_error"
_KINDS = {
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "float_parsing": "a number",
    "float_type": "a number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "string_pattern_mismatch": "1 to 64 letters, digits, dots, underscores and dashes",
    "string_too_short": "some text",
    "string_type": "text",
}


def attribute_of(model: type[BaseModel], key: str) -> str:
    """Return the attribute behind a key of a section: it ends with the unit."""
    return next((name for name, field in model.model_fields.items() if key in (field.alias, name)), key)


def wording(attribute: str, kind: str, text: str, found: object, context: Mapping[str, object]) -> str:
    """Return one finding in our words; `attribute` says the unit of a bound."""
    if text.startswith("Value error, "):
        return text.removeprefix("Value error, ")
    if kind == "greater_than_equal":
        return f"expected at least {_shown(attribute, context['ge'])}, found {_shown(attribute, found)}"
    if kind == "less_than_equal":
        return f"expected at most {_shown(attribute, context['le'])}, found {_shown(attribute, found)}"
    if kind == _LITERAL:
        return f"expected {context['expected']}, found {found!r}"
    expected = _KINDS.get(kind)
    return text.replace("Input should", "should") if expected is None else f"expected {expected}, found {found!r}"


def _shown(attribute: str, amount: object) -> str:
    if isinstance(amount, int):
        if attribute.endswith("_us"):
            return format_duration(amount)
        if attribute.endswith("_bytes"):
            return format_size(amount)
    return str(amount)
