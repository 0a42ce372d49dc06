"""The offline check of delivery logs: what is recorded of deliveries is read event by event, and missed when it is gone."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.helpers.broker_core import batch
from tests.helpers.queue_core import QueueCore, member_of, notebook, settings, settle, take
from tests.helpers.stored_data import flip, segments_of

from tidelog.broker.inspection import ReadOnlyFiles, check_data
from tidelog.broker.storage.files import DiskFiles
from tidelog.protocol.messages import Settling

DELIVERY = "partitions/1-0/delivery"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """What a broker left that leased five messages and had two acknowledged."""
    (tmp_path / "VERSION").write_text("1\n")
    core = QueueCore(DiskFiles(tmp_path))
    core.create("orders", 1)
    core.produce(core.topic("orders").partition(0), batch(*[b"%d" % number for number in range(10)]))
    book, _events = notebook(core)
    member = member_of(core, book, 1, given=settings())
    take(core, member, 5)
    settle(core, member, Settling.ACCEPT, [0, 1])
    core.topics.close()
    return tmp_path


def found(root: Path) -> list[tuple[str, str]]:
    """Path and text of what a check finds."""
    files = ReadOnlyFiles(root)
    findings = check_data(files)
    files.close()
    return [(finding.path, finding.text) for finding in findings.found]


def test_intact_deliveries_have_no_findings(data: Path) -> None:
    """A delivery log is a log like the others."""
    assert found(data) == []


def test_a_flipped_bit_in_an_event_is_damage(data: Path) -> None:
    """It is found where it is."""
    (segment,) = segments_of(data, DELIVERY)
    flip(segment, 4096 + 150)
    ((path, text),) = found(data)
    assert path == f"{DELIVERY}/{segment.name}"
    assert "1 records are lost" in text


def test_a_lost_delivery_log_is_damage(data: Path) -> None:
    """It is on record that there was one."""
    shutil.rmtree(data / DELIVERY)
    ((path, text),) = found(data)
    assert path == DELIVERY
    assert "which messages were settled is not known" in text
