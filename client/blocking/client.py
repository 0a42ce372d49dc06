# Generated from client/aio/client.py by client/generate.py: change that, then run it.
"""The client: one connection for requests, and the way to consumers and replays, which open their own."""

from __future__ import annotations

import os
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar, overload

from ...protocol.messages import Metadata, Stats, StatsPlace, StatsReply
from ...protocol.topic_name import MessageId
from ..codec import Codec, checked_codec
from ..core.data import Data
from ..core.record import DedupId, to_partition
from ..core.times import DEFAULT, Duration, Timeout, seconds
from ..core.url import checked_name, target
from ..health import Health, Pong, problems_of
from ..message import AnyMessage, Message, TypedMessage
from ..message_state import MessageState
from ..receipt import Receipt
from ..version import client_version
from .archive import Archive
from .dead_letters import DeadLetters
from .groups import Groups
from .metadata import look_up
from .outcome import find_outcome
from .pinging import ping
from .producing import Producing
from .queueing import Queueing
from .reads import Reads
from .sessions import Sessions
from .states import find_states
from .topics import Topics

if TYPE_CHECKING:
    from typing import Unpack

    from ..core.options import ClientOptions

T = TypeVar("T")

URL_VARIABLE = "TIDELOG_URL"


class Client(Producing[AnyMessage], Reads[AnyMessage], Queueing[AnyMessage]):
    """A broker as seen from a program; any number of threads may call it. Making one does no I/O.

    `url` is `tidelog://host:9440,host2/namespace` or `host:port`; left out, the environment's TIDELOG_URL, else
    localhost:9440. `timeout` is for each call in seconds, None waits for ever; every call takes its own.

    A lost connection is made again by the call that needs it. Calls that only ask are repeated until their timeout;
    `produce` and `produce_many` repeat the same batch, which the broker stores once. After a fork the child's calls
    go over a connection of their own.

    `codec` (see tidelog.codecs) is for all values that are sent and read, unless a call has its own; codec=None in a
    call means bytes.
    """

    @overload
    def __init__(
        self: Client[Message], url: str | None = None, *, codec: None = None, **options: Unpack[ClientOptions]
    ) -> None: ...
    @overload
    def __init__(
        self: Client[TypedMessage[T]], url: str | None = None, *, codec: Codec[T], **options: Unpack[ClientOptions]
    ) -> None: ...
    def __init__(
        self,
        url: str | None = None,
        *,
        servers: Sequence[str] | None = None,
        namespace: str | None = None,
        token: str | None = None,
        tls: bool | None = None,
        client_name: str | None = None,
        timeout: Duration | None = 30.0,
        codec: object = None,
    ) -> None:
        where = target(
            url,
            from_environment=os.environ.get(URL_VARIABLE),
            servers=servers,
            namespace=namespace,
            token=token,
            tls=tls,
        )
        self._namespace = where.namespace
        sessions = Sessions(where, checked_name(client_name) or f"python-{os.getpid()}", client_version())
        super().__init__(sessions, None if timeout is None else seconds("timeout", timeout), checked_codec(codec))
        self._topics = Topics(self)
        self._archive = Archive(self)
        self._groups = Groups(self)
        self._dead_letters = DeadLetters(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.address}>"

    @property
    def topics(self) -> Topics:
        """Create, list, describe, set, reopen and delete topics."""
        return self._topics

    @property
    def archive(self) -> Archive:
        """List, run, verify and expire what of topics is archived."""
        return self._archive

    @property
    def groups(self) -> Groups:
        """Create, list, describe, set, reset and delete groups, and look at their messages."""
        return self._groups

    @property
    def dead_letters(self) -> DeadLetters:
        """List, look at, redrive and purge messages that groups gave up on."""
        return self._dead_letters

    @property
    def address(self) -> str:
        """`host:port` of the broker this client is connected to or tries first."""
        return self._sessions.address

    def __enter__(self) -> Client[AnyMessage]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; calls that wait and all later ones raise ClosedError, but a produce whose message is on
        its way raises OutcomeUnknownError. Consumers and replays made by this client have connections of their own,
        and stay open."""
        self._sessions.close()

    # -- asking ----------------------------------------------------------------------------------------------------

    def ping(self, *, timeout: Timeout = DEFAULT) -> Pong:
        """Ask for a sign of life."""
        return ping(self.open_session().link, self.deadline(timeout))

    def health(self, *, timeout: Timeout = DEFAULT) -> Health:
        """Say whether every partition is undamaged and takes writes."""
        session, deadline = self.open_session(), self.deadline(timeout)
        pong = self.ping(timeout=timeout)
        reply = look_up(session.link, Metadata(details=True), deadline)
        problems = problems_of(reply)
        partitions = sum(len(topic.partitions) for topic in reply.topics)
        return Health(not problems, pong, len(reply.topics), partitions, problems)

    def stats(self, *, timeout: Timeout = DEFAULT) -> dict[str, int | float]:
        """Return the broker's counters and gauges by name. They are read within some milliseconds, of many groups one
        after the other: not at one instant."""
        session, deadline = self.open_session(), self.deadline(timeout)
        values: dict[str, int | float] = {}
        place: StatsPlace | None = StatsPlace()
        while place is not None:
            reply = (session.link.call(Stats(place), deadline)).message
            assert isinstance(reply, StatsReply)
            values |= reply.values
            place = reply.place
        return values

    def outcome(
        self,
        topic: str,
        *,
        dedup_id: DedupId,
        key: Data = None,
        partition: int | None = None,
        timeout: Timeout = DEFAULT,
    ) -> Receipt | None:
        """Return the receipt of the message that was sent with a dedup id, within the topic's `dedup_window`.

        None means that none is stored at this moment: it never arrived, is still on its way, or its window is over.
        `key` or `partition` as in `produce` ask in one partition; without them all are asked.
        """
        place = None if partition is None else to_partition(partition)
        return find_outcome(self.open_session(), topic, dedup_id, key, place, self.deadline(timeout))

    def states(self, message_id: str, *, timeout: Timeout = DEFAULT) -> list[MessageState]:
        """Return what every queue group of its topic makes of a message (`orders/2@45678`), by the groups' names; also
        of one that retention removed. Raises UnknownTopicError, NotFoundError for an id that no message had yet."""
        if not isinstance(message_id, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"message_id: expected text such as orders/2@45678, found {message_id!r}")
        wanted = MessageId.parse(message_id, self._namespace)
        return find_states(self.open_session(), wanted, self.deadline(timeout))
