"""Remove whole sealed segments, the oldest first, by the age of what was appended and by bytes.

Deciding changes the log at once; the files go when `Expired.run` is called, in a thread. A reader keeps what
it has open.
"""

from dataclasses import dataclass

from ..errors import TidelogError, storage_error
from .files import Files
from .layout import all_index_paths
from .segment import Segment
from .segments import Segments
from .settings import LogSettings


@dataclass(frozen=True, slots=True)
class Expired:
    """Segments that the log no longer holds; their files are removed by `run`."""

    files: Files
    folder: str
    segments: list[Segment]
    start_offset: int  # the log's first offset from now on
    removed_bytes: int

    def run(self) -> TidelogError | None:
        """Remove the files, oldest first; what cannot be removed is there again after a restart."""
        try:
            for segment in self.segments:
                self.files.unlink(segment.path)
                # One by one: a power loss must not leave an older segment without the newer one.
                self.files.sync_folder(self.folder)
                for path in all_index_paths(self.folder, segment.base_offset):
                    self.files.remove_folder(path)
        except OSError as error:
            return storage_error(error, f"removing a segment of {self.folder}")
        return None


def count_expired(segments: Segments, removable: int, now_us: int, *, age_allowed: bool) -> int:
    """Return how many of the first `removable` segments are too old, or too many bytes."""
    settings = segments.settings
    total = sum(map(segments.size_of, segments.all)) if settings.retention_bytes is not None else 0
    count = 0
    for place, segment in enumerate(segments.all[:removable]):
        size = segments.size_of(segment) if settings.retention_bytes is not None else 0
        is_excess = settings.retention_bytes is not None and total > settings.retention_bytes
        if not is_excess and not (age_allowed and _is_old(segments, place, now_us, settings)):
            break
        total -= size
        count += 1
    return count


def _is_old(segments: Segments, place: int, now_us: int, settings: LogSettings) -> bool:
    if settings.retention_us is None:
        return False
    before_us = now_us - settings.retention_us
    known = segments.find_times(segments.all[place])
    if known is not None:
        return known.last_append_us is not None and known.last_append_us < before_us
    # Nothing says how old it is, but what comes after it was appended later.
    following = segments.find_times(segments.all[place + 1])
    return following is not None and following.first_append_us is not None and following.first_append_us < before_us
