"""The archive's store: a local folder, S3, GCS or Azure, all by obstore; the only code that knows it.

What obstore raises is mapped here. A local folder is synced besides (`local_folder`), which obstore does not do: an
object is durable when a method returns, or retention would remove what a power loss takes from both places.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, cast
from urllib.parse import unquote, urlsplit

from ..protocol.errors import ArchiveDeniedError, ArchiveUnavailableError, TidelogError
from .archive.store import ObjectMissingError, StoredObject
from .config.problems import ConfigError, Problem
from .local_folder import LocalFolder

if TYPE_CHECKING:
    from obstore.store import ClientConfig, S3Config

READERS = 16
"""Small objects read at a time: entries of a catalog, each a round trip."""

PARTS_IN_FLIGHT = 2
"""Parts of one object that are in memory while it is sent."""

REMOVED_AT_ONCE = 1_000
"""What S3 takes in one request."""

LISTED_AT_ONCE = 1_000
"""What S3 lists in one request."""

RANGE_BYTES = 8 << 20
"""So much of an object is asked for at a time: of a local folder obstore's own stream, in small pieces, gives a tenth
of the rate."""


def open_store(
    url: str,
    options: Mapping[str, str],
    *,
    part_bytes: int = 8 << 20,
    timeout_us: int = 30_000_000,
    makes_folder: bool = True,
) -> Store:
    """Return the store at a url. `options` are obstore's own keys (of the store and of its HTTP client).

    Raises ConfigError for a url or option that means nothing, or without obstore.
    """
    check_store(url, options)
    import obstore.store

    folder = _local_folder(url)
    if folder is None:
        return Store(_remote(url, options, timeout_us), _without_credentials(url), None, part_bytes)
    try:
        if makes_folder:
            folder.mkdir(parents=True, exist_ok=True)
        elif not folder.is_dir():
            raise ConfigError([Problem("archive.url", f"expected a folder, found none at {folder}")])
    except OSError as error:
        raise ConfigError([Problem("archive.url", f"cannot be used: {error}")]) from None
    return Store(obstore.store.LocalStore(folder), url.rstrip("/"), LocalFolder(folder), part_bytes)


def check_store(url: str, options: Mapping[str, str]) -> None:
    """Raise ConfigError for what can be told of a store without asking it; makes nothing."""
    try:
        import obstore.store as _  # noqa: F401
    except ImportError:
        raise ConfigError(
            [Problem("archive.url", "needs obstore, which is not installed: pip install 'tidelog[archive]'")]
        ) from None
    if url.lower().startswith("memory:"):
        raise ConfigError(
            [Problem("archive.url", "expected a store that outlives the broker, found one in its memory")]
        )
    if _local_folder(url) is None:
        _remote(url, options, 1)
    elif options:
        found = ", ".join(sorted(options))
        raise ConfigError([Problem("archive.options", f"expected none for a folder, found {found}")])


def _remote(url: str, options: Mapping[str, str], timeout_us: int) -> object:
    """Return obstore's store at a url that is no folder. Raises ConfigError."""
    import obstore.store

    timeout = timedelta(microseconds=timeout_us)
    client: dict[str, object] = {"timeout": timeout, "connect_timeout": timeout}
    client |= {key: options[key] for key in CLIENT_OPTIONS & set(options)}
    try:
        return obstore.store.from_url(
            url,
            config=cast("S3Config", {key: value for key, value in options.items() if key not in CLIENT_OPTIONS}),
            client_options=cast("ClientConfig", client),
            retry_config={"max_retries": 2, "retry_timeout": timeout},
        )
    except Exception as error:  # foreign code: whatever it raises says that it cannot make a store of this
        raise ConfigError([Problem(_key_of(error), _first_line(error))]) from None


CLIENT_OPTIONS = frozenset(
    {"allow_http", "allow_invalid_certificates", "proxy_url", "proxy_ca_certificate", "user_agent"}
)
"""Options that are the HTTP client's, not the store's."""


_WORDS = re.compile(r"<Code>([^<]*)</Code>\s*<Message>([^<]*)</Message>")
"""What S3 and its like answer when they refuse; the rest of that answer may hold key ids."""

_REFUSED = re.compile(
    r"\b40[13] (Forbidden|Unauthorized)|<Code>(AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch)"
)
"""Where obstore keeps a refusal among its general errors, as of listings."""


class Store:
    """An `ObjectStore` by obstore."""

    def __init__(self, store: object, url: str, folder: LocalFolder | None, part_bytes: int) -> None:
        import obstore

        self._obstore = obstore
        self._store = cast("obstore.store.ObjectStore", store)
        self._url = url
        self._folder = folder
        self._part_bytes = part_bytes

    def __repr__(self) -> str:
        return f"<Store {self._url}>"

    @property
    def url(self) -> str:
        """Where it is."""
        return self._url

    def put(self, name: str, parts: Iterable[bytes]) -> None:
        """Store an object; large ones go in parts. What fails in the parts themselves is raised as it is."""
        source = _Source(parts)
        try:
            with self._mapped(name, may_miss=False):
                self._obstore.put(
                    self._store, name, source, chunk_size=self._part_bytes, max_concurrency=PARTS_IN_FLIGHT
                )
                self._sync(name)
        except TidelogError:
            if source.error is not None:
                raise source.error from None
            raise

    def create(self, name: str, data: bytes) -> bool:
        """Store a small object unless the name is taken."""
        from obstore.exceptions import AlreadyExistsError, NotSupportedError

        with self._mapped(name, may_miss=False):
            try:
                self._obstore.put(self._store, name, data, mode="create", use_multipart=False)
            except AlreadyExistsError:
                self._sync(name)  # who wrote it may have been killed before it was
                return False
            except (NotSupportedError, NotImplementedError):  # a store without conditional requests: look, then write
                if self.size(name) is not None:
                    return False
                self._obstore.put(self._store, name, data, use_multipart=False)
            self._sync(name)
        return True

    def secure(self, names: Iterable[str]) -> None:
        """Sync what an earlier process put into a folder; elsewhere objects are durable once they are there."""
        for name in names if self._folder is not None else ():
            with self._mapped(name):
                self._sync(name)

    def sweep(self, prefix: str) -> int:
        """Remove what killed puts left below a folder that is local."""
        if self._folder is None:
            return 0
        with self._mapped(prefix, may_miss=False):
            return self._folder.sweep(prefix)

    def size(self, name: str) -> int | None:
        """Return an object's size."""
        try:
            with self._mapped(name):
                return self._obstore.head(self._store, name)["size"]
        except ObjectMissingError:
            return None

    def stream(self, name: str) -> Iterator[bytes]:
        """Yield an object piece by piece."""
        with self._mapped(name):
            size = self._obstore.head(self._store, name)["size"]
            for start in range(0, size, RANGE_BYTES):
                end = min(start + RANGE_BYTES, size)
                yield bytes(self._obstore.get_range(self._store, name, start=start, end=end))

    def read_many(self, names: Sequence[str]) -> list[bytes | None]:
        """Return small objects, several at a time."""
        if len(names) < 2:
            return [self._read(name) for name in names]
        with ThreadPoolExecutor(min(READERS, len(names))) as pool:
            return list(pool.map(self._read, names))

    def _read(self, name: str) -> bytes | None:
        try:
            with self._mapped(name):
                return bytes(self._obstore.get(self._store, name).bytes())
        except ObjectMissingError:
            return None

    def walk(self, prefix: str, after: str | None = None) -> Iterator[StoredObject]:
        """Yield all objects below a folder, or those whose names come after one."""
        with self._mapped(prefix, may_miss=False):
            pages = self._obstore.list(  # pyright: ignore[reportUnknownMemberType]
                self._store, prefix, offset=after, chunk_size=LISTED_AT_ONCE
            )
            for page in pages:
                for found in page:
                    yield StoredObject(found["path"], found["size"])

    def remove(self, names: Sequence[str]) -> None:
        """Remove objects."""
        for start in range(0, len(names), REMOVED_AT_ONCE):
            some = list(names[start : start + REMOVED_AT_ONCE])
            try:
                with self._mapped(some[0]):
                    self._obstore.delete(self._store, some)
            except ObjectMissingError:  # a folder stops at the first that is not there
                for name in some:
                    self._remove_one(name)

    def _remove_one(self, name: str) -> None:
        try:
            with self._mapped(name):
                self._obstore.delete(self._store, name)
        except ObjectMissingError:
            return

    @contextmanager
    def _mapped(self, name: str, *, may_miss: bool = True) -> Generator[None]:
        """Turn what obstore raises into our errors: it is foreign code, so whatever it raises is.

        Where no object can be missing, what is not found is the store: a bucket that is not there.
        """
        from obstore.exceptions import PermissionDeniedError, UnauthenticatedError

        try:
            yield
        except (TidelogError, GeneratorExit):
            raise
        except FileNotFoundError as error:
            if may_miss:
                raise ObjectMissingError(f"no object {name} in {self._url}") from None
            raise ArchiveUnavailableError(
                f"expected {self._url} to be there, found: {_first_line(error)}; it is tried again"
            ) from None
        except (PermissionDeniedError, UnauthenticatedError, PermissionError) as error:
            raise ArchiveDeniedError(
                f"expected {self._url} to allow what the archive does, found: {_first_line(error)}"
            ) from None
        except Exception as error:
            if _REFUSED.search(str(error)):
                raise ArchiveDeniedError(
                    f"expected {self._url} to allow what the archive does, found: {_first_line(error)}"
                ) from None
            raise ArchiveUnavailableError(
                f"expected {self._url} to answer, found: {_first_line(error)}; it is tried again"
            ) from None

    def _sync(self, name: str) -> None:
        if self._folder is not None:
            self._folder.sync(name)


class _Source:
    """The parts of an object on their way into obstore, which hides what they raise among its own errors."""

    def __init__(self, parts: Iterable[bytes]) -> None:
        self._parts = iter(parts)
        self.error: Exception | None = None

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        try:
            return next(self._parts)
        except StopIteration:
            raise
        except Exception as error:
            self.error = error
            raise


def _local_folder(url: str) -> Path | None:
    """Return the folder of a `file://` url. Raises ConfigError for one that names none."""
    parts = urlsplit(url)
    if parts.scheme != "file":
        return None
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise ConfigError([Problem("archive.url", f"expected file:///folder with three slashes, found {url!r}")])
    return Path(unquote(parts.path))


def _without_credentials(url: str) -> str:
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    if at and ":" not in user and parts.scheme not in ("http", "https"):
        host = parts.netloc  # a container and its account: abfs://container@account
    return f"{parts.scheme}://{host}{parts.path.rstrip('/')}"


def _key_of(error: Exception) -> str:
    from obstore.exceptions import UnknownConfigurationKeyError

    return "archive.options" if isinstance(error, UnknownConfigurationKeyError | TypeError) else "archive.url"


def _first_line(error: BaseException) -> str:
    """Return what an error of obstore says, and the store's own words in it, without the dump that follows."""
    told = str(error).partition("Debug source")[0]
    lines = [line.strip() for line in told.splitlines() if line.strip()]
    text = lines[0].partition(": <?xml")[0] if lines else type(error).__name__
    found = _WORDS.search(told)
    return text if found is None else f"{text}: {found[1]}: {found[2]}"
