"""Options as Spark hands them over, names in lower case and every value text, read by type."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from .errors import OptionError

_SIZE = re.compile(r"([0-9]+)\s*(|b|k|kb|kib|m|mb|mib|g|gb|gib)", re.IGNORECASE)
_POWERS = {"": 0, "b": 0, "k": 10, "m": 20, "g": 30}
_DURATION = re.compile(r"([0-9]+)\s*(|ms|s|m|min|h|d)", re.IGNORECASE)
_SECONDS = {"": 0.001, "ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}

MAX_NUMBER = (1 << 62) - 1
"""As far as offsets go."""


class Given:
    """Typed access to options; every method raises OptionError that names the option and what it may be."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = {name.lower(): str(value) for name, value in options.items()}

    def text(self, name: str) -> str | None:
        """Return a text that is not blank, or None where it is not given."""
        found = self.options.get(name.lower())
        if found is not None and not found.strip():
            raise OptionError(f"{name}: expected a value, found an empty one")
        return None if found is None else found.strip()

    def word(self, name: str, words: Sequence[str]) -> str:
        """Return one of some words; the first where it is not given."""
        found = (self.text(name) or words[0]).lower()
        if found not in words:
            raise OptionError(f"{name}: expected {', '.join(words[:-1])} or {words[-1]}, found {found!r}")
        return found

    def flag(self, name: str, default: bool) -> bool:
        """Return true or false."""
        found = (self.text(name) or str(default)).lower()
        if found not in ("true", "false"):
            raise OptionError(f"{name}: expected true or false, found {found!r}")
        return found == "true"

    def names(self, name: str, *, may_repeat: bool = True) -> tuple[str, ...]:
        """Return a comma-separated list, each entry once; empty where it is not given."""
        text = self.text(name)
        found = [] if text is None else [entry.strip() for entry in text.split(",")]
        if "" in found:
            raise OptionError(f"{name}: expected names with commas between them, found {text!r}")
        names = tuple(dict.fromkeys(found))
        if len(names) < len(found) and not may_repeat:
            raise OptionError(f"{name}: expected each name once, found {text!r}")
        return names

    def count(self, name: str, default: int | None, least: int = 1) -> int | None:
        """Return a whole number."""
        text = self.text(name)
        if text is None:
            return default
        if not (text.isascii() and text.isdigit() and least <= int(text) <= MAX_NUMBER):
            raise OptionError(f"{name}: expected a whole number of {least} or more, found {text!r}")
        return int(text)

    def size(self, name: str, default: int | None) -> int | None:
        """Return a number of bytes, given as such or as `16MiB` or Spark's `16m`."""
        text = self.text(name)
        if text is None:
            return default
        match = _SIZE.fullmatch(text)
        found = 0 if match is None else int(match[1]) << _POWERS[match[2].lower()[:1]]
        if not 1 <= found <= MAX_NUMBER:
            raise OptionError(f"{name}: expected a size of 1 byte or more such as 16MiB, found {text!r}")
        return found

    def seconds(self, name: str, default: float | None, *, may_be_zero: bool = False) -> float | None:
        """Return a duration in seconds, given in milliseconds or as `15m`."""
        text = self.text(name)
        if text is None:
            return default
        match = _DURATION.fullmatch(text)
        found = 0.0 if match is None else int(match[1]) * _SECONDS[match[2].lower()]
        if match is None or not (found > 0 or may_be_zero):
            more = "0 or more" if may_be_zero else "more than 0"
            raise OptionError(f"{name}: expected {more} milliseconds, or a duration such as 15m, found {text!r}")
        return found
