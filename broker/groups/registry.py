"""All groups of one broker: the registry of what may be joined, and the doors to their administration.

What is recorded (`meta`) decides what exists; what is published here is synced, and is what a peer can use.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ...protocol.errors import TidelogError, UnknownGroupError
from ...protocol.messages import GroupSettings, GroupStart
from ...protocol.topic_name import short_name
from ..deferred import Deferred, resolved
from ..meta import Begin, Begins
from ..nearest_name import nearest_name
from ..services import Services
from ..topic import Topic
from ..topics import Topics
from .administration import GroupAdministration, Joined
from .group import Group
from .settings import GroupDefaults

NOTHING_GIVEN = GroupSettings()


class Observer(Protocol):
    """Who serves groups, and is told what becomes of them, once it is synced."""

    def group_changed(self, group: Group, before: Group) -> None:
        """Go on with a group as it is now. A higher generation voids every member of the one before."""
        ...

    def group_gone(self, group: Group) -> None:
        """Serve a group no more: it was deleted."""
        ...


class Groups:
    """The registry of groups."""

    def __init__(self, services: Services, topics: Topics, defaults: GroupDefaults) -> None:
        """Serve the groups that are recorded; their flows have their turn among those of topics."""
        self.defaults = defaults
        self.observers: list[Observer] = []
        self._flows = topics.flows
        self._administration = GroupAdministration(services, topics.meta, topics, self, defaults)
        self._by_id: dict[int, Group] = {}
        self._by_name: dict[str, Group] = {}
        self._names: list[str] | None = None
        """Of all groups, in order; None: to be sorted anew."""
        self._letter_topics: frozenset[str] | None = None
        self._joining: dict[str, Deferred[Joined]] = {}
        """By group: the flow of a join that is under way."""
        for record in topics.meta.state.groups.by_id.values():
            self.publish(Group.of(record, defaults))
        topics.when_gone.append(self.topic_gone)

    def __repr__(self) -> str:
        return f"<Groups {len(self._by_id)} groups>"

    def __len__(self) -> int:
        return len(self._by_id)

    # -- lookups -------------------------------------------------------------------------------------------------

    def all(self) -> list[Group]:
        """Return the live groups by name."""
        if self._names is None:
            self._names = sorted(self._by_name)
        return [self._by_name[name] for name in self._names]

    def find(self, name: str) -> Group | None:
        """Return a group by full name, or None."""
        return self._by_name.get(name)

    def find_id(self, group_id: int) -> Group | None:
        """Return a group by id, or None."""
        return self._by_id.get(group_id)

    def named(self, name: str) -> Group:
        """Return a group by full name. Raises UnknownGroupError that suggests the nearest."""
        group = self._by_name.get(name)
        if group is not None:
            return group
        shown = short_name(name)
        nearest = nearest_name(shown, map(short_name, self._by_name))
        hint = f'; did you mean "{nearest}"?' if nearest else ""
        raise UnknownGroupError(f'no group "{shown}"{hint}', name=shown, nearest=nearest)

    def by_id(self, group_id: int, generation: int | None = None) -> Group:
        """Return a group by id, and in this generation. Raises UnknownGroupError: it is to be joined again."""
        group = self._by_id.get(group_id)
        if group is None:
            raise UnknownGroupError(f"expected the id of a group that exists, found {group_id}: it was deleted")
        if generation is not None and generation != group.generation:
            raise UnknownGroupError(
                f"expected generation {group.generation} of group {short_name(group.name)}, found {generation}: the"
                " group was reset",
                name=short_name(group.name),
                generation=group.generation,
            )
        return group

    def reading(self, topic_id: int) -> list[Group]:
        """Return the groups that read a topic, by name."""
        return [group for group in self.all() if group.reads(topic_id)]

    @property
    def dead_letter_topics(self) -> frozenset[str]:
        """The topics that groups name as theirs for dead letters, by full name."""
        if self._letter_topics is None:
            named = (group.settings.dead_letter_topic for group in self._by_id.values())
            self._letter_topics = frozenset(name for name in named if name is not None)
        return self._letter_topics

    # -- changes -------------------------------------------------------------------------------------------------

    def join(
        self,
        name: str,
        topic_ids: Sequence[int],
        *,
        start: GroupStart | None = None,
        settings: GroupSettings | None = None,
    ) -> Deferred[Joined]:
        """Return the queue group of a full name, made if there is none, reading these topics; synced when it resolves.

        Raises or fails with UnknownTopicIdError, GroupKindError, GroupSettingsError, InvalidGroupError,
        GroupLimitError.
        """
        given = settings or NOTHING_GIVEN
        group = self._administration.as_it_is(name, topic_ids, given)
        if group is not None:
            return resolved(Joined(group, created=False))
        answer: Deferred[Joined] = Deferred()
        before = self._joining.get(name)
        if before is not None:  # a thousand members that come at once need one flow, not one each
            before.on_done(lambda _: self._join_again(answer, name, topic_ids, start, given))
            return answer
        joining = self._joining[name] = self._flows.run(self._administration.join(name, topic_ids, start, given))

        def over(_joining: Deferred[Joined]) -> None:
            del self._joining[name]

        joining.on_done(over)
        answer.follow(joining)
        return answer

    def _join_again(
        self,
        answer: Deferred[Joined],
        name: str,
        topic_ids: Sequence[int],
        start: GroupStart | None,
        given: GroupSettings,
    ) -> None:
        try:
            answer.follow(self.join(name, topic_ids, start=start, settings=given))
        except TidelogError as error:
            answer.fail(error)

    def create(
        self,
        name: str,
        topics: Sequence[str],
        *,
        kind: str = "queue",
        start: GroupStart | None = None,
        settings: GroupSettings | None = None,
        exist_ok: bool = False,
    ) -> Deferred[Joined]:
        """Make a group that reads topics of these full names. Fails as `join` does, and with GroupExistsError."""
        given = settings or NOTHING_GIVEN
        flow = self._administration.create(name, topics, kind, start, given, exist_ok=exist_ok)
        return self._flows.run(flow)

    def alter(self, name: str, settings: GroupSettings, reset: Sequence[str] = ()) -> Deferred[Group]:
        """Change settings. Fails with UnknownGroupError, InvalidGroupError."""
        return self._flows.run(self._administration.alter(name, settings, reset))

    def reset(
        self, name: str, start: GroupStart, *, topic: str | None = None, partition: int | None = None
    ) -> Deferred[Begins]:
        """Move a group; where it begins now. Fails with UnknownGroupError, InvalidGroupError, OffsetOutOfRangeError."""
        return self._flows.run(self._administration.reset(name, start, topic, partition))

    def delete(self, name: str) -> Deferred[int]:
        """Delete a group; its id, which is never used again. Fails with UnknownGroupError."""
        return self._flows.run(self._administration.delete(name))

    def started(self, group: Group, topic_id: int, partition: int, begin: Begin) -> Deferred[None]:
        """Record where a start at a time turned out to be (`starts.time_reached`), if that is still asked.

        Nobody need wait for it: found again, it is the same.
        """
        return self._flows.run(self._administration.started(group.id, topic_id, partition, begin))

    # -- what the flows publish ----------------------------------------------------------------------------------

    def publish(self, group: Group) -> None:
        """Serve a group as it is now."""
        before = self._by_id.get(group.id)
        self._by_id[group.id] = self._by_name[group.name] = group
        self._letter_topics = None
        if before is None:
            self._names = None
        else:
            for observer in self.observers:
                observer.group_changed(group, before)

    def withdraw(self, group: Group) -> None:
        """Serve a group no more."""
        del self._by_id[group.id], self._by_name[group.name]
        self._names = None
        self._letter_topics = None
        for observer in self.observers:
            observer.group_gone(group)

    def topic_gone(self, topic: Topic) -> None:
        """Let no group read a topic that was deleted; a flow of topics calls it, so no flow of groups is under way."""
        for group in self.reading(topic.id):
            self._administration.forget_topic(group)
