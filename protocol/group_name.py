"""Names of groups: they follow the rule of topics' names, `name` or `namespace/name`."""

from __future__ import annotations

from .errors import InvalidGroupError, InvalidTopicError
from .topic_name import DEFAULT_NAMESPACE, MAX_PART_LENGTH, full_name


def full_group_name(name: str, namespace: str = DEFAULT_NAMESPACE) -> str:
    """Return `namespace/name` of a group as the user wrote it. Raises InvalidGroupError that states the rule,
    TypeError for what is no string."""
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"group: expected a name as a string, found {name!r}")
    try:
        return full_name(name, namespace)
    except InvalidTopicError:
        raise InvalidGroupError(
            f"expected a group name of 1 to {MAX_PART_LENGTH} of A-Z a-z 0-9 . _ - (not . or ..), "
            f"optionally after a namespace and a slash, found {name!r}"
        ) from None
