"""Weights of lanes as people write them: `9:50, 4:40, 0:10`. A priority that is not named has 1."""

from __future__ import annotations

from .limits import MAX_PRIORITY

MAX_LANE_WEIGHT = 1_000
UNNAMED_WEIGHT = 1


def parse_lane_weights(text: str) -> tuple[int, ...]:
    """Return the weight of each priority from 0 on. Raises ValueError that shows the form."""
    weights = [UNNAMED_WEIGHT] * (MAX_PRIORITY + 1)
    seen: set[int] = set()
    for part in text.split(","):
        priority, weight = _pair(part.strip(), text)
        if priority in seen:
            raise ValueError(f"expected each priority once, found {priority} twice in {text!r}")
        seen.add(priority)
        weights[priority] = weight
    return tuple(weights)


def format_lane_weights(weights: tuple[int, ...]) -> str:
    """Return weights as `parse_lane_weights` reads them, the highest priority first; those of 1 are left out."""
    named = [(priority, weight) for priority, weight in enumerate(weights) if weight != UNNAMED_WEIGHT]
    named = named or [(MAX_PRIORITY, UNNAMED_WEIGHT)]
    return ", ".join(f"{priority}:{weight}" for priority, weight in reversed(named))


def _pair(part: str, text: str) -> tuple[int, int]:
    priority, colon, weight = part.partition(":")
    priority, weight = priority.strip(), weight.strip()
    if not colon or not all(each.isascii() and each.isdigit() for each in (priority, weight)):
        raise ValueError(f"expected priorities with their weights such as 9:50, 4:40, 0:10, found {text!r}")
    if not 0 <= int(priority) <= MAX_PRIORITY:
        raise ValueError(f"expected priorities of 0 to {MAX_PRIORITY}, found {priority}")
    if not 1 <= int(weight) <= MAX_LANE_WEIGHT:
        raise ValueError(f"expected weights of 1 to {MAX_LANE_WEIGHT}, found {weight}")
    return int(priority), int(weight)
