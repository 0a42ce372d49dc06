"""Imports run one way: this holds the layers of the project, and that `import tidelog` stays light."""

from __future__ import annotations

import ast
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.test_tidy import FILES, tree

PURE_STDLIB_REFUSED = frozenset({"socket", "time", "random", "secrets", "asyncio", "selectors", "threading", "select"})
"""What the pure core may not know: sockets, clocks, chance."""

TRIO_MODULES = (
    "broker/app.py",
    "broker/background",
    "broker/cli/serve.py",
    "broker/embedded.py",
    "broker/server.py",
    "broker/session",
    "broker/stepping.py",
    "client/aio/runtime.py",
)
"""The broker's edge, the only code of it that may import Trio; everything else is plain synchronous code. And where the
client starts a task beside its caller, which AnyIO has no name for."""

HEAVY = ("trio", "fastapi", "typer", "pyarrow", "pandas", "polars", "pydantic", "pyspark", "rich", "tidelog.broker")


@dataclass(frozen=True)
class Import:
    """One import of a file: the dotted name and where it stands."""

    name: str
    place: str


def module_name(file: str) -> str:
    """The dotted name a file has when imported."""
    path = file.removeprefix("src/tidelog/").removeprefix("src/").removesuffix(".py")
    parts = [part for part in path.split("/") if part != "__init__"]
    return ".".join(parts if file.startswith("tests/") else ["tidelog", *parts])


def package_of(file: str) -> list[str]:
    """The package that a file's relative imports start from."""
    parts = module_name(file).split(".")
    return parts if file.endswith("__init__.py") else parts[:-1]


def imports_of(file: str) -> list[Import]:
    """Every import of a file in full dotted names, those inside functions and TYPE_CHECKING included."""
    found: list[Import] = []
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package_of(file)[: len(package_of(file)) - node.level + 1] if node.level else []
            stem = ".".join([*base, *([node.module] if node.module else [])])
            names = [f"{stem}.{alias.name}" for alias in node.names]
        else:
            continue
        found += [Import(name, f"{file}:{node.lineno}") for name in names]
    return found


def within(name: str, *packages: str) -> bool:
    """Whether a dotted name is one of the packages or lies inside one."""
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def files_of(*folders: str) -> list[str]:
    """The files of some folders, or some files."""
    return [file for file in FILES if any(file == folder or file.startswith(f"{folder}/") for folder in folders)]


ALLOWED: dict[str, tuple[str, ...]] = {
    "protocol": ("tidelog.protocol", "tidelog.native.column"),
    "native": ("tidelog.native",),
    "broker/storage": ("tidelog.broker.storage", "tidelog.protocol", "tidelog.native", "tidelog.broker.errors"),
    "broker/delivery": (
        "tidelog.broker.delivery",
        "tidelog.broker.errors",
        "tidelog.broker.storage.fold",
        "tidelog.native",
        "tidelog.protocol",
    ),
    "client": ("tidelog.client", "tidelog.protocol", "tidelog.native.column"),
    "spark": (
        "tidelog.spark",
        "tidelog.client.arrow",
        "tidelog.client.blocking.client",
        "tidelog.client.blocking.consumer",
        "tidelog.client.blocking.producer",
        "tidelog.client.cli",
        "tidelog.client.core.url",
        "tidelog.client.delivery",
        "tidelog.client.errors",
        "tidelog.client.message",
        "tidelog.client.message_batch",
        "tidelog.client.receipt",
        "tidelog.client.topic",
        "tidelog.protocol.batch",
        "tidelog.protocol.segment_header",
    ),
}
"""What of tidelog a layer may import; the standard library and third parties are not meant here. The Spark connector is
a user of the client: it has its public names, and reads stored batches and segments by itself."""


@pytest.mark.parametrize("layer", ALLOWED)
def test_a_layer_imports_only_what_lies_below(layer: str) -> None:
    """No import points upwards or sideways, not even inside a function."""
    wrong = [
        f"{used.place} imports {used.name}"
        for file in files_of(layer)
        for used in imports_of(file)
        if within(used.name, "tidelog") and not within(used.name, *ALLOWED[layer])
    ]
    assert not wrong


EDGE = (
    "app",
    "background",
    "cli",
    "config",
    "data_folder",
    "embedded",
    "faults",
    "handlers",
    "inspection",
    "local_folder",
    "object_store",
    "server",
    "rehearsal",
    "session",
    "stepping",
)
"""The broker's edge by the beginnings of its module names; everything else of the broker is its core."""

ABOVE: dict[str, tuple[str, ...]] = {
    "broker/clock.py": ("services", "group_commit", "meta", "partition", "storage", "topics"),
    "broker/timers.py": ("services", "group_commit", "meta", "partition", "storage", "topics"),
    "broker/group_commit.py": ("services", "meta", "partition", "topics"),
    "broker/groups": ("queues",),
    "broker/meta": ("administration", "groups", "queues", "partition", "start", "topic", "topics"),
    "broker/moving": ("administration", "dead_letters", "groups", "meta", "queues.queues", "start", "topics"),
    "broker/partition.py": ("administration", "meta", "start", "topic", "topics"),
    "broker/topic.py": ("administration", "start", "topics"),
}
"""What lies above some parts of the core."""


def is_edge(file: str) -> bool:
    """Whether a file belongs to the broker's edge."""
    return file.startswith(tuple(f"broker/{name}" for name in EDGE))


@pytest.mark.parametrize("layer", ABOVE)
def test_the_core_imports_downwards(layer: str) -> None:
    """Clocks, facts, partitions and topics stand on one another in this order."""
    refused = tuple(f"tidelog.broker.{name}" for name in ABOVE[layer])
    assert files_of(layer)
    assert not [used.place for file in files_of(layer) for used in imports_of(file) if within(used.name, *refused)]


def test_the_core_does_not_know_its_edge() -> None:
    """Partitions, topics and what lies below never import the code that serves, configures or starts them."""
    core = [file for file in files_of("broker") if not is_edge(file)]
    assert "broker/partition.py" in core
    wrong = [
        used.place
        for file in core
        for used in imports_of(file)
        if used.name.startswith(tuple(f"tidelog.broker.{name}" for name in EDGE))
    ]
    assert not wrong


def test_handlers_do_not_reach_into_storage() -> None:
    """A handler asks partitions and topics; logs and files are theirs."""
    wrong = [
        used.place
        for file in files_of("broker/handlers")
        for used in imports_of(file)
        if within(used.name, "tidelog.broker.storage")
    ]
    assert not wrong


def test_only_the_edge_knows_trio() -> None:
    """The decisions are plain code: Trio is imported by the named modules of the edge alone."""
    wrong = [
        used.place
        for file in files_of("protocol", "native", "broker", "client")
        for used in imports_of(file)
        if within(used.name, "trio") and not file.startswith(TRIO_MODULES)
    ]
    assert not wrong


PURE = [
    file
    for file in files_of("protocol", "native", "broker", "client/core")
    if not is_edge(file)
    and not file.startswith(("broker/storage/files", "broker/clock.py", "broker/logging.py"))
    and file != "native/build_ffi.py"
]


@pytest.mark.parametrize("file", PURE)
def test_the_core_is_pure(file: str) -> None:
    """The core knows no socket, clock, chance or operating system: time is an argument, files are a seam."""
    wrong = [
        f"{used.place} imports {used.name}"
        for used in imports_of(file)
        if used.name.split(".")[0] in PURE_STDLIB_REFUSED | {"os", "trio", "anyio"}
    ]
    assert not wrong


PLAIN_SPARK = tuple(f"spark/{name}.py" for name in ("bounds", "given", "offsets", "option_table", "places"))


@pytest.mark.parametrize("file", PLAIN_SPARK)
def test_what_the_connector_decides_about_offsets_is_plain(file: str) -> None:
    """It knows no Spark, no broker, no clock: of tidelog errors alone."""
    refused = PURE_STDLIB_REFUSED | {"os", "pyspark", "pyarrow", "numpy"}
    wrong = [
        f"{used.place} imports {used.name}"
        for used in imports_of(file)
        if used.name.split(".")[0] in refused
        or (within(used.name, "tidelog") and not within(used.name, "tidelog.spark", "tidelog.client.errors"))
    ]
    assert files_of(file) == [file]
    assert not wrong


def test_relative_imports_inside_the_packages() -> None:
    """Inside the packages imports are relative, so that a folder can be read without knowing its outer name."""
    wrong = [
        f"{file}:{node.lineno}"
        for file in files_of("protocol", "native", "broker", "client", "spark")
        for node in ast.walk(tree(file))
        if (isinstance(node, ast.ImportFrom) and not node.level and within(node.module or "", "tidelog"))
        or (isinstance(node, ast.Import) and any(within(alias.name, "tidelog") for alias in node.names))
    ]
    assert not wrong


def modules_after(*arguments: str) -> list[str]:
    """The modules that a fresh interpreter loads with these arguments, as -X importtime reports them."""
    run = subprocess.run(
        [sys.executable, "-X", "importtime", *arguments],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parent,
    )
    return [line.rsplit("|", 1)[1].strip() for line in run.stderr.splitlines() if line.startswith("import time:")]


def test_import_tidelog_is_light() -> None:
    """`import tidelog` loads no server, no command line and no data frames."""
    loaded = modules_after("-c", "import tidelog")
    assert "tidelog" in loaded
    assert not [name for name in loaded if within(name, *HEAVY)]


def test_the_client_is_light() -> None:
    """Taking the client out of the front door loads no server, no command line and no data frames either."""
    loaded = modules_after("-c", "from tidelog import Client")
    assert "tidelog.client.blocking.connection" in loaded
    assert not [name for name in loaded if within(name, *HEAVY)]


def test_the_command_line_is_light() -> None:
    """Building the whole command line loads neither the broker nor the client, nor what they need."""
    loaded = modules_after("-m", "tidelog", "--help")
    assert "tidelog.client.cli.options" in loaded
    refused = (
        "numpy",
        "pydantic",
        "trio",
        "rich",
        "yaml",
        "xxhash",
        "tidelog.native",
        "tidelog.client.blocking",
        "tidelog.broker.app",
    )
    assert not [name for name in loaded if within(name, *refused)]
