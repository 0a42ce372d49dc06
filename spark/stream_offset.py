"""What Spark keeps of a stream in its checkpoint: the next offset of each partition, and of which topics they are.

    {"orders": {"0": 23, "1": 40},             the next offset to read
     "@topics": {"orders": 1736866800000000},  when each topic was made, in microseconds: one made again is another
     "@epochs": {"orders": {"0": 3, "1": 3}},  in which epoch each log was: what it lost since is told
     "@from": {"orders": {"1": 0}}}            where partitions begin that are first seen here; left out where none is

No topic's name has an `@`. A stream that has not begun is `{}`: its first batch says where it begins, so Spark's own
log holds that before anything is read, and no failure after it finds another beginning. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from .errors import OptionError
from .offsets import Offsets, from_json, to_json
from .places import Place

TOPICS, EPOCHS, FROM = "@topics", "@epochs", "@from"

Json = dict[str, dict[str, int] | dict[str, dict[str, int]]]


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """The end of a batch, and so the start of the next."""

    next: Offsets = field(default_factory=Offsets)
    made: dict[str, int] = field(default_factory=dict[str, int])
    """When each topic was made, in microseconds."""
    begins: Offsets = field(default_factory=Offsets)
    """Where this batch begins in partitions in which it is not where the last one ended."""
    epochs: Offsets = field(default_factory=Offsets)
    """In which epoch each partition's log was."""
    is_new: bool = False
    """Whether nothing was ever logged of the stream."""

    def start_of(self, place: Place, before: StreamOffset) -> int:
        """Return where the batch that ends here begins in a partition."""
        return self.begins.get(place, before.next.get(place, 0))

    def to_json(self) -> Json:
        """Return what Spark is given."""
        if self.is_new:
            return {}
        found: Json = {**to_json(self.next), TOPICS: dict(sorted(self.made.items()))}
        for name, entries in ((EPOCHS, self.epochs), (FROM, self.begins)):
            if entries:
                found[name] = to_json(entries)
        return found

    @classmethod
    def parse(cls, found: Mapping[str, object]) -> StreamOffset:
        """Read what `to_json` wrote. Raises OptionError for anything else, as a checkpoint may be of another source."""
        if not found:
            return NEW
        plain = {name: entry for name, entry in found.items() if name not in (TOPICS, EPOCHS, FROM)}
        begins, epochs = (from_json(_mapping(found.get(name, {}))) for name in (FROM, EPOCHS))
        return cls(from_json(plain), _made_from(found.get(TOPICS, {})), begins, epochs)


NEW = StreamOffset(is_new=True)


def _made_from(found: object) -> dict[str, int]:
    entries = _mapping(found)
    if not all(type(time_us) is int for time_us in entries.values()):
        raise OptionError(
            f'expected {TOPICS} such as {{"orders": 1736866800000000}} in the checkpoint, found {found!r}'
        )
    return cast("dict[str, int]", dict(entries))


def _mapping(found: object) -> Mapping[str, object]:
    if not isinstance(found, dict):
        raise OptionError(f"expected offsets of a tidelog stream in the checkpoint, found {found!r}")
    return cast("dict[str, object]", found)
