"""At a start: dead letters whose redrive in place was begun, and of which it is not on record that it is done.

Their messages were brought back, or not, by what is on record of them: where they were, their dead letters are
resolved, before anybody could bring them back a second time; also of messages that were given up once more since. Where
they were not, nothing was done. What cannot be told stays pending: the message is not retained, its group is gone or
begins behind it, the disk does not give the copy.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...protocol.errors import TidelogError
from ..delivery.events import Event, Kind
from ..delivery.marks import Mark
from ..delivery.offset_set import OffsetSet, packed_of
from ..delivery.pending_letters import PENDING_GENERATION, PENDING_GROUP
from ..flow import start_flow
from ..groups import Groups
from ..offload import offload_inline
from ..partition import Partition
from ..topics import Topics
from .letters import Letter, read_letters
from .pending import IN_PLACE, announced


def resolve_begun(topics: Topics, groups: Groups) -> None:
    """Resolve those whose message is back; blocks."""
    for topic in topics.all():
        for partition in topic.partitions:
            begun = announced(partition, IN_PLACE)
            if begun:
                _resolve(partition, begun, topics, groups)


def _resolve(partition: Partition, begun: OffsetSet, topics: Topics, groups: Groups) -> None:
    log = partition.delivery.log
    assert log is not None, "what was begun is on record there"
    try:
        letters = start_flow(read_letters(partition, offload_inline, begun)).result()
        back = OffsetSet()
        again: dict[Partition, list[tuple[Letter, int, int]]] = {}
        for letter in letters.found:
            side = _side_of(letter, topics, groups)
            if side is None:
                continue
            where, offset, mark = side
            if mark is None:
                back.add(letter.offset)
            elif mark.redrives:
                again.setdefault(where, []).append((letter, offset, mark.redrives))
        for where, some in again.items():
            back |= _older(where, some)
        if back:
            log.append([Event(Kind.RESOLVED, PENDING_GROUP, PENDING_GENERATION, packed_of(back))])
    except TidelogError:  # pending as before
        return


def _side_of(letter: Letter, topics: Topics, groups: Groups) -> tuple[Partition, int, Mark | None] | None:
    """Return where the message is, and how it was given up: None if it was brought back. None of what nobody knows."""
    original = letter.original
    if original is None:
        return None
    try:
        partition = topics.partition(original.topic_id, original.partition)
    except TidelogError:
        return None
    group, log = groups.find(original.group), partition.delivery.log
    if group is None or log is None or not group.reads(original.topic_id) or original.offset < partition.start_offset:
        return None
    state = log.fold.states.get(group.id)
    if state is None or original.offset < state.begin:
        return None
    is_given_up = original.offset in state.rejected.offsets
    return partition, original.offset, state.rejected.get(original.offset) if is_given_up else None


def _older(partition: Partition, given_up: Sequence[tuple[Letter, int, int]]) -> OffsetSet:
    """Return the dead letters whose messages, which are given up, were brought back since: these were redriven oftener
    than their dead letters say. What a message says of itself, as one that was published anew does, counts in both."""
    wanted = OffsetSet([offset for _letter, offset, _redrives in given_up])
    originals = start_flow(read_letters(partition, offload_inline, wanted)).result()
    own = {each.offset: each.redrives for each in originals.found}
    return OffsetSet(
        [
            letter.offset
            for letter, offset, redrives in given_up
            if offset in own and letter.redrives < own[offset] + redrives
        ]
    )
