"""What a benchmark's account notices: each kind of fault, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from tidelog.client.cli.bench.account import Account, Faults, Places
from tidelog.client.cli.bench.payload import SMALLEST_BYTES, Payloads

RUN = b"this-run"

Read = tuple[int, int, bytes | None]
"""Partition, offset, value."""


def sent() -> tuple[Payloads, Places, list[Read]]:
    """Two callers with three messages each, taking turns in one partition, and how they read back."""
    payloads, places = Payloads(RUN, 40), Places([3, 3])
    read: list[Read] = []
    for number in range(3):
        for caller in range(2):
            offset = len(read)
            places.tell(caller, number, np.array([offset], np.int64), np.array([0], np.int32))
            read.append((0, offset, payloads.make(caller, number)))
    return payloads, places, read


def faults_of(read: list[Read]) -> Faults:
    """The account of such a reading."""
    payloads, places, _ = sent()
    account = Account(payloads, places)
    for message in read:
        account.take(*message)
    return account.close()


def test_what_comes_back_as_sent_is_without_fault() -> None:
    """Everything once, in order, where the receipts say: no fault."""
    _, _, read = sent()
    assert faults_of(read) == Faults()
    assert not faults_of(read).any


def test_a_missing_message_is_lost() -> None:
    """A message that is not read is counted as lost."""
    _, _, read = sent()
    assert faults_of(read[:2] + read[3:]) == Faults(lost=1)
    assert faults_of([]) == Faults(lost=6)


def test_a_second_copy_is_repeated() -> None:
    """A message that is read twice is counted as repeated, wherever its copy is."""
    _, _, read = sent()
    assert faults_of([*read, (0, 6, read[2][2])]) == Faults(repeated=1)


def test_a_message_behind_a_later_one_is_reordered() -> None:
    """Messages of one caller that change places are reordered; those of two callers have no order."""
    _, _, read = sent()
    assert faults_of([read[1], read[0], *read[2:]]) == Faults()
    assert faults_of([read[2], read[1], read[0], *read[3:]]) == Faults(reordered=1)


@pytest.mark.parametrize("at", [12, 20, 39])
def test_a_changed_byte_is_altered(at: int) -> None:
    """A value that differs from what was sent is altered, whichever byte it is."""
    _, _, read = sent()
    value = bytearray(read[0][2] or b"")
    value[at] ^= 1
    assert faults_of([(0, 0, bytes(value)), *read[1:]]).altered == 1


def test_another_place_than_the_receipt_says_is_misplaced() -> None:
    """A message at another offset or in another partition than its receipt says is misplaced."""
    _, _, read = sent()
    assert faults_of([(1, 0, read[0][2]), *read[1:]]) == Faults(misplaced=1)
    assert faults_of([*read[:5], (0, 9, read[5][2])]) == Faults(misplaced=1)


def test_what_others_send_is_passed_over() -> None:
    """Messages of another run, and any others of the topic, do not count."""
    _, _, read = sent()
    others: list[Read] = [(0, 7, None), (0, 8, b""), (0, 9, b"short"), (0, 10, Payloads(b"that-run", 40).make(0, 0))]
    assert faults_of(others + read) == Faults()


def test_values_have_the_size_that_was_asked_for() -> None:
    """Each value is as long as it should be, from the smallest size on, and no two are the same."""
    for size in (SMALLEST_BYTES, 21, 100, 1024):
        values = [Payloads(RUN, size).make(caller, number) for caller in range(3) for number in range(300)]
        assert {len(value) for value in values} == {size}
        assert len(set(values)) == 900
