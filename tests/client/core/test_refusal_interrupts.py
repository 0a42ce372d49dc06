"""What a refused batch was said to be, stored or not, is what it is, wherever Ctrl-C struck while it was told."""

from __future__ import annotations

from itertools import count

import pytest
from tests.client.core.interrupting import interrupted
from tests.client.core.lane_driver import Driver
from tests.client.core.producer_driver import FILES, Producer

from tidelog.protocol.errors import BrokerClosingError, InvalidBatchError, OutcomeUnknownError

CORE = (*FILES, "lane.py", "outbox.py", "parcel.py", "waiter.py")


@pytest.mark.parametrize("reports", [False, True], ids=["", "reporting"])
def test_a_producers_message_that_is_reported_as_not_stored_never_is(*, reports: bool) -> None:
    """Refused once, by a broker that would take it the next time: it failed and is not stored, or it is stored."""
    for number in count(1):
        producer = Producer(reports=reports)
        producer.send()
        producer.cut()
        producer.pump()
        was_struck = interrupted(number, lambda producer=producer: producer.answer(InvalidBatchError("no")), CORE)
        if was_struck:
            producer.wire.clear()
            producer.outbox.lost()
            producer.ledger.is_in_doubt = True
            producer.set_right()
        producer.finish()
        failures, failed = producer.ledger.take_failures()
        lost = [each.record.value for each in failures]
        assert all(each.error.details == {"stored": False} for each in failures)
        assert sorted([*lost, *producer.broker.stored]) == sorted(producer.sent), number
        assert (producer.ledger.delivered, producer.ledger.failed) == (len(producer.sent) - failed, failed)
        assert not producer.ledger.open
        if not was_struck:
            assert (failed > 0, number > 30) == (True, True)
            break


@pytest.mark.parametrize("alone", [False, True], ids=["joined", "alone"])
def test_a_call_that_raised_not_stored_never_is(*, alone: bool) -> None:
    """Single calls that share a batch and batches of their own: those told that nothing is stored are right."""
    for number in count(1):
        driver = Driver()
        driver.submit()
        driver.drain()
        values = [driver.submit(alone=alone) for _ in range(4)]
        driver.act(InvalidBatchError("no"))
        was_struck = interrupted(number, driver.answer, CORE)
        if was_struck:
            driver.cut()
        driver.drain()
        for value in values:
            error = driver.waiting[value].error
            assert driver.waiting[value].done
            assert (error is None) == (value in driver.broker.stored), number
            assert error is None or error.details == {"stored": False}
        assert driver.broker.stored == sorted(driver.broker.stored)
        if not was_struck:
            assert number > 20
            break


def test_without_an_identity_what_was_sent_before_is_not_said_to_be_missing() -> None:
    """A stored batch whose answer was lost, and a broker that then gives out no identity: the outcome is unknown."""
    driver = Driver()
    driver.submit(alone=True)
    driver.act()
    kept, left = driver.submit(alone=True), driver.submit(alone=True)
    for _ in range(3):
        driver.act()
    driver.outbox.withdraw(driver.waiting[left])
    driver.cut()
    assert kept in driver.broker.stored
    driver.outbox.identified(BrokerClosingError("closing"))
    error = driver.waiting[kept].error
    assert isinstance(error, OutcomeUnknownError)
    assert "stored" not in error.details
