"""At a start: dead letters whose redrive in place was begun, and of which it is not on record that it is done.

Their messages are available again, or not, by what is on record of them: where they are, their dead letters are
resolved, before anybody could bring them back a second time. Where they are not, nothing was done. What cannot be told
(the message is not retained, its group is gone or begins behind it, the disk does not give the copy) stays pending.
"""

from __future__ import annotations

from ...protocol.errors import TidelogError
from ..delivery.events import Event, Kind
from ..delivery.offset_set import OffsetSet, packed_of
from ..delivery.pending_letters import PENDING_GENERATION, PENDING_GROUP
from ..flow import start_flow
from ..groups import Groups
from ..offload import offload_inline
from ..partition import Partition
from ..topics import Topics
from .letters import Letter, read_letters
from .pending import IN_PLACE


def resolve_begun(topics: Topics, groups: Groups) -> None:
    """Resolve those whose message is back; blocks."""
    for topic in topics.all():
        for partition in topic.partitions:
            begun = _begun(partition)
            if begun:
                _resolve(partition, begun, topics, groups)


def _begun(partition: Partition) -> OffsetSet:
    log, found = partition.delivery.log, OffsetSet()
    state = None if log is None or log.log.fenced else log.fold.states.get(PENDING_GROUP)
    for intent in () if state is None else state.moves.intents.values():
        if intent.target_log == IN_PLACE:
            found |= intent.offsets
    found.remove_range(0, partition.start_offset)
    return found


def _resolve(partition: Partition, begun: OffsetSet, topics: Topics, groups: Groups) -> None:
    log = partition.delivery.log
    assert log is not None, "what was begun is on record there"
    try:
        letters = start_flow(read_letters(partition, offload_inline, begun)).result()
        back = OffsetSet([letter.offset for letter in letters.found if _is_back(letter, topics, groups)])
        if back:
            log.append([Event(Kind.RESOLVED, PENDING_GROUP, PENDING_GENERATION, packed_of(back))])
    except TidelogError:  # pending as before
        return


def _is_back(letter: Letter, topics: Topics, groups: Groups) -> bool:
    """Whether a message was made available again since it was given up."""
    original = letter.original
    if original is None:
        return False
    try:
        partition = topics.partition(original.topic_id, original.partition)
    except TidelogError:
        return False
    group, log = groups.find(original.group), partition.delivery.log
    if group is None or log is None or not group.reads(original.topic_id) or original.offset < partition.start_offset:
        return False
    state = log.fold.states.get(group.id)
    return state is not None and original.offset >= state.begin and original.offset not in state.rejected.offsets
