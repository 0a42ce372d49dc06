"""Where to connect, as people write it: `tidelog://[token@]host[:9440][,host2]/[namespace]`, or just `host:port`.

`tidelogs://` means TLS, `memory://NAME` a broker inside this process. Nothing here resolves a name or opens a
connection.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ...protocol.errors import InvalidTopicError, UnsupportedError
from ...protocol.limits import MAX_NAME_BYTES
from ...protocol.topic_name import DEFAULT_NAMESPACE, MAX_PART_LENGTH, full_name
from .arguments import check_flag, check_text, encoded, listed

DEFAULT_PORT = 9440
DEFAULT_HOST = "localhost"
_MEMORY_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)
_FORM = "tidelog://host:9440/namespace, or host:port"


@dataclass(frozen=True, slots=True)
class Server:
    """One address of a broker."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class MemoryServer:
    """A broker inside this process, by its name in `client.memory`."""

    name: str

    def __str__(self) -> str:
        return f"memory://{self.name}"


@dataclass(frozen=True, slots=True)
class Target:
    """The servers to try, in order, and what to say there."""

    servers: tuple[Server | MemoryServer, ...]
    namespace: str = DEFAULT_NAMESPACE
    token: str | None = None
    tls: bool = False


def parse_server(text: str) -> Server:
    """Read `host`, `host:port`, `[::1]:port`. Raises TypeError, or ValueError that shows the form."""
    check_text("servers", text, '"host:9440"')
    host, port = text.strip(), ""
    if host.startswith("["):
        host, bracket, rest = host[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ValueError(f"expected [address]:port, found {text!r}")
        port = rest[1:]
        has_port = bool(rest)
    elif host.count(":") > 1:  # an IPv6 address without brackets
        has_port = False
    else:
        host, colon, port = host.partition(":")
        has_port = bool(colon)
    if not host or any(character.isspace() or character in "/@?#[]" for character in host):
        raise ValueError(f"expected {_FORM}, found {text!r}")
    if not has_port:
        return Server(host, DEFAULT_PORT)
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ValueError(f"expected a port from 1 to 65535 in {text!r}, found {port!r}")
    return Server(host, int(port))


def parse_url(text: str) -> Target:
    """Read a URL or a bare address. Raises ValueError that shows the form."""
    scheme, separator, rest = text.strip().partition("://")
    if not separator:
        scheme, rest = "tidelog", text.strip()
    if scheme.lower() == "memory":
        return _parse_memory(text, rest)
    if scheme.lower() not in ("tidelog", "tidelogs"):
        raise ValueError(f"expected {_FORM}, found {text!r}")
    authority, _, path = rest.partition("/")
    token, at, hosts = authority.rpartition("@")
    servers = tuple(parse_server(each) for each in hosts.split(",")) if hosts else (Server(DEFAULT_HOST, DEFAULT_PORT),)
    namespace = path.rstrip("/") or DEFAULT_NAMESPACE
    check_namespace(namespace)
    return Target(servers, namespace, token if at else None, scheme.lower() == "tidelogs")


def _parse_memory(text: str, rest: str) -> Target:
    name, _, path = rest.partition("/")
    if not _MEMORY_NAME.fullmatch(name):
        raise ValueError(f"expected memory://NAME as the url of a broker in this process has it, found {text!r}")
    namespace = path.rstrip("/") or DEFAULT_NAMESPACE
    check_namespace(namespace)
    return Target((MemoryServer(name),), namespace)


def check_namespace(namespace: str) -> None:
    """Raise TypeError or ValueError unless topics can be in this namespace."""
    check_text("namespace", namespace, '"shop"')
    try:
        full_name("t", namespace)
    except InvalidTopicError:
        raise ValueError(
            f"expected a namespace of 1 to {MAX_PART_LENGTH} of A-Z a-z 0-9 . _ - (not . or ..), found {namespace!r}"
        ) from None


def target(
    url: str | None,
    *,
    from_environment: str | None,
    servers: Sequence[str] | None = None,
    namespace: str | None = None,
    token: str | None = None,
    tls: bool | None = None,
) -> Target:
    """Return where to connect: the argument, else the environment's TIDELOG_URL, else localhost:9440.

    What is given by name wins over what the URL says. Raises TypeError or ValueError for what cannot be read, and
    UnsupportedError for what this version does not speak.
    """
    if url is not None and not isinstance(url, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"url: expected text such as {_FORM}, found {url!r}")
    if url is not None and servers is not None:
        raise ValueError("expected url or servers, found both")
    if isinstance(servers, str):
        raise TypeError(f'expected a list of servers such as ["{servers}"], found a string')
    addresses = None if servers is None else listed("servers", servers, "addresses")
    found = parse_url(url or (from_environment if servers is None else None) or DEFAULT_HOST)
    if addresses is not None:
        if not addresses:
            raise ValueError("expected at least one server, found none")
        found = Target(tuple(parse_server(each) for each in addresses))
    if namespace is not None:
        check_namespace(namespace)
    if found.tls or (tls is not None and check_flag("tls", tls)):
        raise UnsupportedError("TLS is not there yet: connect with tidelog:// inside a network you trust")
    if token is not None:
        check_text("token", token, "the broker's operator gave you")
    if found.token is not None or token is not None:
        raise UnsupportedError("tokens are not there yet: leave the token out")
    return Target(found.servers, namespace or found.namespace)


def checked_name(client_name: str | None) -> str | None:
    """Return what a client calls itself. Raises TypeError, or ValueError for a name that no greeting holds."""
    if client_name is None:
        return None
    check_text("client_name", client_name, '"billing-7"')
    size = len(encoded(client_name, "client_name"))
    if size > MAX_NAME_BYTES:
        raise ValueError(f"client_name: expected at most {MAX_NAME_BYTES} bytes, found {size}")
    return client_name
