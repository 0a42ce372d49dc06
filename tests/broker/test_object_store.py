"""The real stores: a local folder and S3, the same promises of both, and every way in which they refuse."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.helpers.s3_server import BUCKET, S3Server, s3_server

from tidelog.__main__ import main
from tidelog.broker import local_folder, object_store
from tidelog.broker.archive.store import ObjectMissingError
from tidelog.broker.config import ConfigError
from tidelog.broker.object_store import Store, open_store
from tidelog.protocol.errors import ArchiveDeniedError, ArchiveUnavailableError


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    """A local S3."""
    with s3_server() as server:
        yield server


@pytest.fixture(params=["folder", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """A store of each kind, empty."""
    if request.param == "folder":
        return open_store(f"file://{tmp_path}/archive", {})
    server: S3Server = request.getfixturevalue("s3")
    return open_store(f"s3://{BUCKET}/{tmp_path.name}", server.options, part_bytes=5 << 20)


def test_objects_come_back_as_they_were_stored(store: Store) -> None:
    """What is put, in one part or many, streams and reads back byte for byte, and an object is replaced whole."""
    store.put("a/b/small", [b"one", b"two"])
    parts = [bytes([number]) * 1_000_000 for number in range(12)]
    store.put("a/b/large", iter(parts))
    assert b"".join(store.stream("a/b/large")) == b"".join(parts)
    assert store.read_many(["a/b/small", "a/none", "a/b/small"]) == [b"onetwo", None, b"onetwo"]
    assert (store.size("a/b/large"), store.size("a/none")) == (12_000_000, None)
    store.put("a/b/small", [b"3"])
    assert store.read_many(["a/b/small"]) == [b"3"]


def test_a_name_is_created_once(store: Store) -> None:
    """Of two who create a name the second is told, and changes nothing."""
    assert store.create("x/entry.json", b"first") is True
    assert store.create("x/entry.json", b"second") is False
    assert store.read_many(["x/entry.json"]) == [b"first"]


def test_a_walk_sees_what_lies_below_a_folder(store: Store) -> None:
    """All objects below a folder are seen with their sizes, none beside it, and none below one that is not there."""
    for name in ("t/1/0/a", "t/1/0/b", "t/10/0/c"):
        store.put(name, [b"12345"])
    assert sorted((found.name, found.bytes) for found in store.walk("t/1")) == [("t/1/0/a", 5), ("t/1/0/b", 5)]
    assert [found.name for found in store.walk("t/2")] == []
    assert len(list(store.walk(""))) == 3


def test_removing_leaves_the_others(store: Store) -> None:
    """What is removed is gone, what is not there counts as removed, and the rest stays."""
    for name in ("t/a", "t/b", "t/c"):
        store.put(name, [b"1"])
    store.remove(["t/none", "t/a", "t/b"])
    assert [found.name for found in store.walk("t")] == ["t/c"]
    store.remove([])


def test_what_is_missing_is_said(store: Store) -> None:
    """Streaming an object that is not there is its own error."""
    with pytest.raises(ObjectMissingError, match="no object t/none"):
        list(store.stream("t/none"))


def test_a_large_object_goes_to_s3_in_parts(s3: S3Server) -> None:
    """Twelve megabytes in parts of five are three parts, as the ETag says."""
    store = open_store(f"s3://{BUCKET}/parts", s3.options, part_bytes=5 << 20)
    store.put("large", (bytes(1_000_000) for _ in range(12)))
    assert s3.client.head_object(Bucket=BUCKET, Key="parts/large")["ETag"].strip('"').endswith("-3")  # pyright: ignore


def test_a_local_object_is_synced_before_it_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder's objects are fsynced with every folder on the way: a power loss takes none that was confirmed."""
    synced: list[str] = []
    real = local_folder._sync_path
    monkeypatch.setattr(
        local_folder,
        "_sync_path",
        lambda path, flags, sought: (synced.append(str(path)), real(path, flags, sought)),
    )
    store = open_store(f"file://{tmp_path}", {})
    store.put("a/b/c", [b"1"])
    assert synced == [f"{tmp_path}/a/b/c", f"{tmp_path}/a/b", f"{tmp_path}/a", f"{tmp_path}"]
    synced.clear()
    store.create("a/b/d", b"1")
    assert synced[0] == f"{tmp_path}/a/b/d"
    synced.clear()
    assert store.create("a/b/d", b"2") is False
    assert synced[0] == f"{tmp_path}/a/b/d", "who made it may have been killed before it was synced"
    synced.clear()
    store.secure(["a/b/c"])
    assert synced == [f"{tmp_path}/a/b/c", f"{tmp_path}/a/b", f"{tmp_path}/a", f"{tmp_path}"]


def test_an_object_that_could_not_be_synced_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a failed fsync the pages count as clean, so the object is removed and has to be sent anew."""
    store = open_store(f"file://{tmp_path}", {})
    real = os.fsync

    def failing(fd: int) -> None:
        if str(Path(f"/proc/self/fd/{fd}").readlink()).endswith("/a/c"):
            raise OSError(errno.EIO, "Input/output error")
        real(fd)

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(ArchiveUnavailableError, match="Input/output error"):
        store.put("a/c", [b"1"])
    assert store.size("a/c") is None
    with pytest.raises(ArchiveUnavailableError, match="Input/output error"):
        store.create("a/c", b"1")
    assert store.size("a/c") is None


def test_what_fails_in_the_parts_is_not_the_store_s(store: Store) -> None:
    """A bad sector of the local segment is said as what it is, and leaves no object."""

    def parts() -> Iterator[bytes]:
        yield bytes(6 << 20)
        raise OSError(errno.EIO, "Input/output error", "00042.log")

    with pytest.raises(OSError, match=r"Input/output error: '00042.log'"):
        store.put("a/b", parts())
    assert store.size("a/b") is None


KILLED = """
import os, sys
from tidelog.broker.object_store import open_store
def parts():
    for number in range(20):
        yield bytes(1 << 20)
        if number == 10:
            os._exit(9)
open_store(sys.argv[1], {}, part_bytes=1 << 20).put("a/1/c.log", parts())
"""


def test_what_a_killed_put_left_is_swept(tmp_path: Path) -> None:
    """Killed puts leave files that no listing shows; a sweep of their folder removes them and nothing else."""
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", KILLED, f"file://{tmp_path}/s"], check=False)
        assert done.returncode == 9
    store = open_store(f"file://{tmp_path}/s", {})
    store.put("a/1/d.log", [b"1"])
    assert [found.name for found in store.walk("")] == ["a/1/d.log"]
    assert len(list((tmp_path / "s/a/1").iterdir())) == 3
    assert (store.sweep("b"), store.sweep("a"), store.sweep("a")) == (0, 2, 0)
    assert [path.name for path in (tmp_path / "s/a/1").iterdir()] == ["d.log"]


def test_a_listing_goes_over_pages_and_from_a_name_on(store: Store) -> None:
    """More objects than S3 lists in one request are all seen, removed at once, and seen from a name on."""
    names = [f"t/1/{number:020d}.json" for number in range(1_050)]
    store.read_many([])
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: store.create(name, b"1"), names))
    assert sorted(found.name for found in store.walk("t")) == names
    assert sorted(found.name for found in store.walk("t", names[1_020])) == names[1_021:]
    store.remove(names)
    assert list(store.walk("t")) == []


def test_a_store_that_is_not_there_is_unavailable() -> None:
    """Nobody at the endpoint: an error that says so and names the store, in its time."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    options = {"endpoint": f"http://127.0.0.1:{port}", "allow_http": "true", "access_key_id": "x"}
    options |= {"secret_access_key": "y", "region": "us-east-1"}
    store = open_store("s3://bucket/prefix", options, timeout_us=300_000)
    for ask in (lambda: store.size("x"), lambda: store.create("x", b""), lambda: list(store.walk(""))):
        with pytest.raises(ArchiveUnavailableError, match=r"expected s3://bucket/prefix to answer, found: .*S3"):
            ask()


def test_a_store_that_says_nothing_is_unavailable_in_time() -> None:
    """An endpoint that takes the connection and stays silent does not hold anybody longer than the timeout."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        options = {"endpoint": f"http://127.0.0.1:{silent.getsockname()[1]}", "allow_http": "true"}
        options |= {"access_key_id": "x", "secret_access_key": "y", "region": "us-east-1"}
        store = open_store("s3://bucket", options, timeout_us=200_000)
        with pytest.raises(ArchiveUnavailableError):
            store.size("x")


def test_a_bucket_that_is_not_there_is_said(s3: S3Server) -> None:
    """A wrong bucket is no missing object: writing into it fails with what S3 says."""
    store = open_store("s3://nowhere", s3.options)
    for ask in (lambda: store.put("x", [b"1"]), lambda: store.create("x", b"1"), lambda: list(store.walk(""))):
        with pytest.raises(ArchiveUnavailableError, match=r"NoSuchBucket: The specified bucket does not exist"):
            ask()


def test_missing_rights_are_denied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a store forbids is its own error, which says what to mend."""
    from obstore.exceptions import PermissionDeniedError

    def refuse(*_: object, **__: object) -> None:
        raise PermissionDeniedError("Access Denied\n\nDebug source:\nsecret-key-id")

    store = open_store(f"file://{tmp_path}", {})
    monkeypatch.setattr("obstore.put", refuse)
    with pytest.raises(ArchiveDeniedError, match=r"found: Access Denied$"):
        store.put("x", [b"1"])


@pytest.mark.parametrize(
    "said", ["Server returned non-2xx status code: 403 Forbidden: ", "x: <Code>SignatureDoesNotMatch</Code>"]
)
def test_a_refusal_among_general_errors_is_a_refusal(
    said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listing that is forbidden is missing rights too, however obstore puts it."""
    from obstore.exceptions import GenericError

    def refuse(*_: object, **__: object) -> None:
        raise GenericError(said)

    store = open_store(f"file://{tmp_path}", {})
    monkeypatch.setattr("obstore.list", refuse)
    with pytest.raises(ArchiveDeniedError):
        list(store.walk(""))


def test_a_store_without_conditional_requests_is_looked_at_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a store cannot create, a name that is taken is still not overwritten."""
    import obstore
    from obstore.exceptions import NotSupportedError

    real = obstore.put

    def old(*given: object, **options: object) -> object:
        if options.get("mode") == "create":
            raise NotSupportedError("no conditional put")
        return real(*given, **options)  # pyright: ignore

    store = open_store(f"file://{tmp_path}", {})
    monkeypatch.setattr("obstore.put", old)
    assert [store.create("a", b"1"), store.create("a", b"2")] == [True, False]
    assert store.read_many(["a"]) == [b"1"]


@pytest.mark.parametrize(
    ("url", "options", "problem"),
    [
        ("foo://bar", {}, 'archive.url: Generic URL error: Unable to recognise URL "foo://bar"'),
        ("memory:///", {}, "archive.url: expected a store that outlives the broker"),
        ("file://relative/path", {}, "archive.url: expected file:///folder with three slashes"),
        ("file:///tmp/x", {"region": "x"}, "archive.options: expected none for a folder, found region"),
        ("s3://bucket", {"bogus": "1"}, "archive.options: Configuration key: 'bogus' is not valid for store 'S3'."),
    ],
)
def test_what_names_no_store_is_refused_at_the_start(url: str, options: dict[str, str], problem: str) -> None:
    """A wrong url and a wrong option are problems of the configuration, each under its key."""
    with pytest.raises(ConfigError) as caught:
        open_store(url, options)
    assert str(caught.value.problems[0]).startswith(problem)


def test_without_obstore_the_start_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that is to archive and cannot says how to get what is missing."""
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    with pytest.raises(ConfigError, match=r"pip install 'tidelog\[archive\]'"):
        open_store("s3://bucket", {})


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://u:secret@host/x/?token=y", "https://host/x"),
        ("https://u@host/x", "https://host/x"),
        ("s3://key:secret@bucket/p/", "s3://bucket/p"),
        ("abfs://container@account/p", "abfs://container@account/p"),
    ],
)
def test_a_url_is_shown_without_credentials(url: str, shown: str) -> None:
    """What a user wrote into the url is not told to everybody who lists the archive."""
    assert object_store._without_credentials(url) == shown


def test_a_configuration_is_checked_without_making_anything(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """`config check` finds a wrong store and a wrong option, and makes no folder for a right one."""
    path = tmp_path / "c.yaml"
    for url, options, code in [
        (f"file://{tmp_path}/archive", "{}", 0),
        ("foo://bar", "{}", 1),
        ("s3://bucket", "{bogus: 1}", 1),
        ("s3://bucket", "{region: eu-west-1}", 0),
    ]:
        path.write_text(f"archive: {{url: '{url}', options: {options}}}")
        assert main(["config", "check", str(path)]) == code, url
    assert not (tmp_path / "archive").exists()
    assert "archive.options: Configuration key: 'bogus' is not valid" in capfd.readouterr().err


def test_a_secret_is_never_shown(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A configuration with wrong options says which name is wrong, and none of the values."""
    path = tmp_path / "c.yaml"
    for options in ("{secret_access_key: hush, bogus: hush}", "{secret_access_key: [hush]}", "hush"):
        path.write_text(f"archive: {{url: 's3://bucket', options: {options}}}")
        assert main(["config", "check", str(path)]) == 1
    out, err = capfd.readouterr()
    assert "hush" not in out + err
