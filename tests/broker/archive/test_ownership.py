"""Only the data directory that made an archive removes anything from it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.helpers.archiving import SECOND, ArchivingCore

from tidelog.broker.app_archive import mark_of
from tidelog.broker.archive.identity import IDENTITY, load_identity
from tidelog.broker.storage.files import DiskFiles
from tidelog.protocol.errors import ArchiveConflictError

NAME = "00112233445566aa"


def archived(mark: str | None = "41") -> tuple[ArchivingCore, list[bytes]]:
    """Return a core that has archived a topic, and removed it from its log."""
    core = ArchivingCore(mark=mark)
    values = core.fill(core.create("orders").partition(0), 27)
    core.advance(2 * SECOND)
    core.expire()
    assert len(core.store.names(".json")) == 4
    return core, values


def test_a_copy_removes_nothing_and_the_original_does() -> None:
    """A copy that takes the original's topics for deleted, or has let its segments go, is refused and told why."""
    core, _values = archived()
    assert core.store.objects[f"{NAME}/owner"] == b"41\n"
    copy = ArchivingCore(store=core.store, mark="42")
    copy.create("others")
    for answer in (
        copy.archive.expire_deleted(dry_run=False),
        copy.archive.expire(copy.topic("others"), 1 << 61, dry_run=False),
    ):
        assert isinstance(answer.error, ArchiveConflictError)
        assert f"memory://archive/{NAME}/owner to name this data directory (42), found 41" in answer.error.message
    assert len(core.store.names(".json")) == 4
    assert copy.archive.expire_deleted(dry_run=True).error is None, "looking is allowed"
    assert core.archive.expire(core.topic("orders"), 1 << 61, dry_run=False).result().segments == 4


def test_an_operator_hands_the_archive_over() -> None:
    """Who goes on in place of the original removes the object, and from then on is the owner."""
    core, _values = archived()
    del core.store.objects[f"{NAME}/owner"]
    restored = ArchivingCore(core.files, core.store, mark="42", clock=core.clock)
    assert restored.archive.expire(restored.topic("orders"), 1 << 61, dry_run=False).result().segments == 4
    assert core.archive.expire_deleted(dry_run=False).error is not None


def test_a_copy_goes_on_archiving_what_it_has() -> None:
    """Adding takes nothing from anybody: segments that the original has not are archived by a copy too."""
    core, _values = archived()
    copy = ArchivingCore(store=core.store, mark="42")
    copy.fill(copy.create("others").partition(0), 7)
    copy.advance(2 * SECOND)
    assert len(core.store.names(".json")) == 5
    assert core.store.objects[f"{NAME}/owner"] == b"41\n"


@pytest.mark.parametrize("how", ["copy", "copytree"])
def test_a_copied_data_directory_has_another_mark(tmp_path: Path, how: str) -> None:
    """The mark stays over a restart and a move within the disk, and no copy has it; elsewhere there is none."""
    data = tmp_path / "data"
    data.mkdir()
    files = DiskFiles(data)
    load_identity(files, lambda: NAME)
    mark = mark_of(str(data), NAME)
    assert mark is not None
    assert mark_of(str(data), NAME) == mark
    if how == "copy":
        (tmp_path / "other/archive").mkdir(parents=True)
        shutil.copy2(data / IDENTITY, tmp_path / "other" / IDENTITY)
    else:
        shutil.copytree(data, tmp_path / "other")
    assert mark_of(str(tmp_path / "other"), NAME) not in (None, mark)
    data.rename(tmp_path / "moved")
    assert mark_of(str(tmp_path / "moved"), NAME) == mark
    assert mark_of(str(tmp_path / "moved"), "f" * 16) is None
    assert mark_of(str(data), NAME) is None
