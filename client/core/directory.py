"""What the client knows about topics, and when it must ask again."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...protocol.messages import MetadataReply, TopicInfo
from ...protocol.topic_name import full_name, short_name


@dataclass(frozen=True, slots=True)
class TopicEntry:
    """A topic as of some metadata version."""

    name: str
    """Full name."""
    shown: str
    id: int
    count: int
    partitions: int
    max_message_bytes: int | None
    version: int
    durability: str = ""
    """What is promised where a call names none."""
    id_chooses: bool = False
    """Whether a dedup id chooses the partition even where there is a key, so that it is unique in the topic."""

    @classmethod
    def of(cls, info: TopicInfo, version: int) -> TopicEntry:
        """Take what producing and reading need from the broker's answer."""
        limit = info.settings.get("max_message_bytes")
        return cls(
            info.name,
            short_name(info.name),
            info.id,
            info.count,
            len(info.partitions),
            limit if isinstance(limit, int) else None,
            version,
            str(info.settings.get("durability", "")),
            info.settings.get("dedup_scope") == "topic",
        )


class Directory:
    """Topics by name. Every data reply tells the broker's metadata version; an older entry is not used again."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self.version = 0
        self._entries: dict[str, TopicEntry] = {}
        self._full_names: dict[str, str] = {}

    def full_name(self, name: str) -> str:
        """Return `namespace/name` of a topic as the user wrote it. Raises InvalidTopicError."""
        try:
            found = self._full_names.get(name)
        except TypeError:  # it has no hash, and so is no name
            found = None
        if found is None:
            found = full_name(name, self.namespace)
            if len(self._full_names) >= MAX_NAMES:
                self._full_names.clear()
            self._full_names[name] = found
        return found

    def find(self, full_name: str) -> TopicEntry | None:
        """Return a topic if what is known of it is the latest."""
        entry = self._entries.get(full_name)
        return entry if entry is not None and entry.version >= self.version else None

    def learn(self, reply: MetadataReply) -> list[int]:
        """Take over what the broker answered; return the ids that have no name any more."""
        self.seen(reply.version)
        before = [self._entries.get(info.name) for info in reply.topics]
        before += [self._entries.pop(missing.name, None) for missing in reply.errors]
        for info in reply.topics:
            self._entries[info.name] = TopicEntry.of(info, reply.version)
        named = {info.id for info in reply.topics}
        return [entry.id for entry in before if entry is not None and entry.id not in named]

    def seen(self, version: int) -> None:
        """Take note of the metadata version in a reply."""
        self.version = max(self.version, version)

    def forget(self, full_name: str) -> None:
        """The broker said that what is known of this topic is out of date."""
        entry = self._entries.get(full_name)
        if entry is not None:
            self._entries[full_name] = replace(entry, version=-1)  # its id is known until another has the name

    def reconnected(self) -> None:
        """Another broker, or a restored one, may answer from here on: versions do not compare with earlier ones."""
        self.version = 0
        for name in self._entries:
            self.forget(name)


MAX_NAMES = 10_000
"""Names kept as the user wrote them; more than any program uses, less than what matters to memory."""
