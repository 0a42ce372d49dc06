"""`tidelog.Broker`: a real broker inside the program, for as long as a block.

It has a thread and an event loop of its own. Clients of the same program reach it through memory (`broker.client()`,
or its `memory://` URL); `listen=` opens a port for others. Nothing of the broker is loaded before it starts.
"""

from __future__ import annotations

import atexit
import os
import warnings
import weakref
from collections.abc import Mapping
from threading import RLock
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar, cast, overload

from .client import memory
from .client.errors import ClosedError, ForkedError
from .client.process import generation

if TYPE_CHECKING:
    import socket
    from typing import Self, Unpack

    from .broker.clock import Clock
    from .broker.config import Config
    from .broker.embedded import EmbeddedBroker
    from .broker.rehearsal import Rehearsal
    from .client.aio.client import AsyncClient
    from .client.blocking.client import Client
    from .client.codec import Codec
    from .client.core.options import ClientOptions
    from .client.message import Message, TypedMessage
    from .client.virtual_clock import VirtualClock

T = TypeVar("T")

ANY_PORT = "127.0.0.1:0"
"""What `listen=True` means: this machine, a port that is free."""

Sections = Mapping[str, Mapping[str, object]]


class Broker:
    """A broker that runs in this process from `start`, or the beginning of a `with` block, to `close`, or its end.

    `data_dir` is its folder, made where it is missing; None keeps everything in memory, which is bounded by the
    topics' retention alone. `listen` is `"HOST:PORT"`, True for any free port of this machine, or None: only this
    process reaches it. What else is configured stands in `config`, a mapping of sections as in `config.example.yaml`,
    or in sections by name: `Broker(topics={"partitions": 1}, log={"retention": "1h"})`. The environment
    (`TIDELOG_LOG__RETENTION`) counts where neither says anything.

    Raises ConfigError that names every key that is wrong. Any thread may call any method.
    """

    _reads_environment = True

    def __init__(
        self,
        data_dir: str | os.PathLike[str] | None = None,
        *,
        listen: str | bool | None = None,
        config: Sections | None = None,
        **sections: Mapping[str, object],
    ) -> None:
        self._data_dir = None if data_dir is None else _folder(data_dir)
        self._listen = _listen(listen)
        self._config = self._checked(config, sections)
        self._lock = RLock()
        self._embedded: EmbeddedBroker | None = None
        self._made = generation()
        self._name: str | None = None
        self._is_closed = False
        self._end: weakref.finalize[..., Broker] | None = None

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "not started" if self._embedded is None else self.url
        return f"<{type(self).__name__} {state}>"

    # -- life --------------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Return once it serves. Raises DataDirLockedError, CannotListenError, or why the data cannot be opened."""
        from .broker.data_folder import open_files
        from .broker.embedded import EmbeddedBroker
        from .broker.logging import configure

        self._check_process()
        with self._lock:
            if self._is_closed or self._embedded is not None:
                raise ClosedError("expected a broker that was never started: make another one")
            if self._logs:
                configure(self._config.logging.level, self._config.logging.format)
            embedded = EmbeddedBroker(
                open_files(self._data_dir),
                self._make_clock(),
                self._config,
                listen=self._listen is not None,
                rehearsal=self._rehearsal(),
            )
            embedded.start()
            self._embedded = embedded
            self._name = memory.enter(_Place(embedded, self._clock_of(embedded)))
            _running[self._name] = embedded
            self._end = weakref.finalize(self, _dropped, self._name, generation())
            self._end.atexit = False
        return self

    def close(self) -> None:
        """Stop cleanly: requests in flight are answered, all is synced, the folder is unlocked. A second call does
        nothing, and neither does one in a forked child."""
        if self._made != generation():
            return
        with self._lock:
            self._is_closed = True
            embedded, end, name = self._embedded, self._end, self._name
            if embedded is None or end is None or name is None or end.detach() is None:
                return
            _running.pop(name, None)
            memory.leave(name)
            embedded.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        from anyio.to_thread import run_sync

        return await run_sync(self.start)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        from anyio import CancelScope
        from anyio.to_thread import run_sync

        with CancelScope(shield=True):
            await run_sync(self.close)

    # -- ways in -----------------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """What `Client(url)`, `AsyncClient(url)` and `TIDELOG_URL` take: `memory://...`, which this process alone
        reaches, or with `listen=` the address of its port."""
        embedded = self._running()
        return self._memory_url if self._listen is None else embedded.broker.url

    @overload
    def client(self, *, codec: None = None, **options: Unpack[ClientOptions]) -> Client[Message]: ...
    @overload
    def client(self, *, codec: Codec[T], **options: Unpack[ClientOptions]) -> Client[TypedMessage[T]]: ...
    def client(self, *, codec: object = None, **options: Unpack[ClientOptions]) -> object:
        """Return a new blocking Client of this broker, through memory; it takes what Client takes. Close it."""
        from .client.blocking.client import Client

        self._running()
        return Client(self._memory_url, codec=cast("Codec[object]", codec), **options)

    @overload
    def async_client(self, *, codec: None = None, **options: Unpack[ClientOptions]) -> AsyncClient[Message]: ...
    @overload
    def async_client(self, *, codec: Codec[T], **options: Unpack[ClientOptions]) -> AsyncClient[TypedMessage[T]]: ...
    def async_client(self, *, codec: object = None, **options: Unpack[ClientOptions]) -> object:
        """Return a new AsyncClient of this broker, through memory; it takes what AsyncClient takes. Close it."""
        from .client.aio.client import AsyncClient

        self._running()
        return AsyncClient(self._memory_url, codec=cast("Codec[object]", codec), **options)

    # -- inside ------------------------------------------------------------------------------------------------------

    @property
    def _memory_url(self) -> str:
        return f"{memory.SCHEME}://{self._name}"

    def _running(self) -> EmbeddedBroker:
        self._check_process()
        if self._embedded is None or self._is_closed:
            raise ClosedError(f"the broker {'is closed' if self._is_closed else 'was not started'}: use it in `with`")
        return self._embedded

    def _check_process(self) -> None:
        if self._made != generation():
            raise ForkedError("this broker was made before a fork and runs in the parent; make a new one in the child")

    def _rehearsal(self) -> Rehearsal | None:
        """Return what of it a test decides."""
        return None

    def _make_clock(self) -> Clock:
        from .broker.clock import SystemClock

        return SystemClock()

    def _clock_of(self, embedded: EmbeddedBroker) -> VirtualClock | None:
        return None

    def _checked(self, config: Sections | None, sections: Sections) -> Config:
        from .broker.config import load

        if config is not None and not isinstance(config, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"config: expected a mapping of sections, found {config!r}")
        given: dict[str, dict[str, object]] = {}
        for source in (config or {}, sections):
            for section, keys in source.items():
                given.setdefault(_text(section), {}).update(_keys(section, keys))
        self._logs = "logging" in given
        place = given.setdefault("broker", {})
        for key, value in (("data_dir", self._data_dir), ("listen", self._listen)):
            if value is not None and key in place:
                raise ValueError(f"{key}: expected it once, found it as an argument and in the section broker")
            if value is not None:
                place[key] = value
        if "data_dir" in place:
            self._data_dir = str(place["data_dir"])
        if "listen" in place:
            self._listen = str(place["listen"])
        return load(None, given, environment=self._reads_environment)


class _Place:
    """A running broker as its clients find it."""

    def __init__(self, embedded: EmbeddedBroker, clock: VirtualClock | None) -> None:
        self._embedded = embedded
        self.clock = clock

    def connect(self) -> socket.socket:
        """Return a connected socket."""
        return self._embedded.connect()


_running: dict[str, EmbeddedBroker] = {}
"""By name; a forked child has the parent's here too, and they are not running there."""


def _dropped(name: str, made: int) -> None:
    """Nobody refers to a broker any more, and nobody closed it. Called by the garbage collector, wherever that runs:
    it does not wait for the end."""
    embedded = _running.pop(name, None)
    memory.leave(name)
    if made == generation() and embedded is not None and embedded.is_running:
        _warn()
        embedded.stop()


def _close_all() -> None:
    """The program ends."""
    while _running:
        name, embedded = _running.popitem()
        memory.leave(name)
        if embedded.is_running:
            _warn()
            embedded.close(at_once=True)


def _warn() -> None:
    warnings.warn("a tidelog.Broker was never closed; use it in a `with` block", ResourceWarning, stacklevel=3)


atexit.register(_close_all)


def _folder(data_dir: object) -> str:
    try:
        found = os.fspath(cast("str", data_dir))
    except TypeError:
        raise TypeError(f"data_dir: expected a path, or None for memory, found {data_dir!r}") from None
    if not isinstance(found, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"data_dir: expected text or a pathlib.Path, found {data_dir!r}")
    return found


def _listen(listen: object) -> str | None:
    if listen is None or listen is False:
        return None
    if listen is True:
        return ANY_PORT
    if not isinstance(listen, str):
        raise TypeError(f'listen: expected "HOST:PORT", True or None, found {listen!r}')
    return listen


def _text(section: object) -> str:
    if not isinstance(section, str):
        raise TypeError(f"config: expected names of sections, found {section!r}")
    return section


def _keys(section: str, keys: object) -> dict[str, object]:
    if not isinstance(keys, Mapping):
        raise TypeError(f'{section}: expected keys with their values, such as {{"retention": "1h"}}, found {keys!r}')
    return {_text(key): value for key, value in cast("Mapping[object, object]", keys).items()}
