"""How far a replay is, kept in a file of its own: what it copies, what is done, and what is being written.

The step that is being written is in the file before it begins. A run that finds one there cannot know whether all of
it was written, so it writes it again: that is what a crash repeats, and no more.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from ..offsets import Offsets
from ..places import Place
from .errors import JobStateError
from .folder import read_or_none, write_whole

FORMAT = "tidelog-replay"
VERSION = 1


class Copied(msgspec.Struct, frozen=True):
    """What is replayed to where; a progress file is for one of these."""

    source: str
    source_id: int
    target: str
    target_id: int
    starting: str
    ending: str
    by: str
    keeps_partitions: bool
    once: bool


class Step(msgspec.Struct, frozen=True):
    """The next offset of each partition when a step is done, and the end of the target before it began."""

    until: dict[int, int]
    target_end: int


class Progress(msgspec.Struct, frozen=True):
    """Of a replay: offsets by partition of the source, ends exclusive."""

    copied: Copied
    id: str
    """Dedup ids begin with it, so that two replays of the same records are two."""
    starts: dict[int, int]
    ends: dict[int, int]
    done: dict[int, int]
    step: Step | None = None
    written: int = 0
    """Records, without what was repeated."""
    repeated: int = 0
    """Records by which the target grew more than it should have while steps were written again."""
    epochs: dict[int, int] = {}
    """Of the source's partitions when the replay was planned: records that came in a later one are not those."""
    format: str = FORMAT
    version: int = VERSION

    @property
    def is_done(self) -> bool:
        """Whether everything is written."""
        return self.step is None and all(self.done[place] >= end for place, end in self.ends.items())

    @property
    def size(self) -> int:
        """How many offsets the whole replay has."""
        return sum(end - self.starts[place] for place, end in self.ends.items())

    def offsets(self, of: Mapping[int, int]) -> Offsets:
        """Return offsets by partition as those of the source."""
        return {Place(self.copied.source, partition): offset for partition, offset in of.items()}


def load(path: Path) -> Progress | None:
    """Return what is kept; None where there is nothing yet. Raises JobStateError for a file that is something else."""
    data = read_or_none(path)
    if data is None:
        return None
    try:
        found = msgspec.json.decode(data, type=Progress)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise JobStateError(f"{path}: expected the progress of a replay, found something else: {error}") from None
    if (found.format, found.version) != (FORMAT, VERSION):
        raise JobStateError(f"{path}: expected {FORMAT} {VERSION}, found {found.format} {found.version}")
    return found


def save(path: Path, progress: Progress) -> None:
    """Keep progress, all of it and on the disk, or leave what was there."""
    write_whole(path, msgspec.json.format(msgspec.json.encode(progress), indent=1) + b"\n")


def check_same(found: Progress, wanted: Copied, path: Path) -> None:
    """Raise JobStateError, which names what differs, for the progress of another replay."""
    for name in Copied.__struct_fields__:
        here, there = getattr(wanted, name), getattr(found.copied, name)
        if here != there:
            raise JobStateError(
                f"{path}: expected the progress of this replay, found one with {name} {there!r} and not {here!r}:"
                " give each replay a file of its own"
            )
