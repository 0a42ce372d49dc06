"""What a dead letter is: a full copy of its message, with why it was given up, once for each group that did."""

from __future__ import annotations

import numpy as np
import pytest
from tests.helpers.broker_core import DEFAULTS, SECOND, Core, batch
from tests.helpers.giving_up import BOOM, GivingUp, letter_settings

from tidelog.broker.delivery.events import Event, Kind
from tidelog.broker.delivery.offset_set import OffsetSet, packed_of
from tidelog.broker.partition import Partition
from tidelog.broker.topics import TopicLimits
from tidelog.protocol.batch import Codec, RoutingColumns, decode_batch, encode_batch
from tidelog.protocol.columns import DEDUP_ID, RETRY
from tidelog.protocol.messages import SettleError, SettleItem, Settling
from tidelog.protocol.offset_ranges import pack_ranges
from tidelog.protocol.topic_name import full_name

KIB = 1024
MIB = 1024 * KIB
WALL = "2023-11-14T22:13:20"
"""When the virtual clock begins."""


def begin(*batches: memoryview, **given: int | str) -> tuple[Core, GivingUp, Partition]:
    """A core with a topic of these batches, or of four small messages, and a group that reads it."""
    core = Core()
    orders = core.create("orders", 1, given).partition(0)
    core.produce(orders, *(batches or (batch(b"0", b"1", b"2", b"3"),)))
    giving = GivingUp(core)
    giving.group("g", letter_settings(max_attempts=3))
    return core, giving, orders


def full_batch(codec: Codec = Codec.NONE, priority: int = 7) -> memoryview:
    """Nine messages of every pair of key and value, with headers that repeat, are empty, null or odd."""
    parts = (None, b"", b"x" * 200)
    retries = np.zeros(9, RETRY)
    retries["max_attempts"] = 5
    ids = np.frombuffer(b"".join(bytes([number + 1]) * 16 for number in range(9)), DEDUP_ID)
    return memoryview(
        encode_batch(
            [value for _key in parts for value in parts],
            keys=[key for key in parts for _value in parts],
            headers=[[("x", b"1"), ("y", b""), ("x", b"2"), ("z", None), ("", b"e"), ("ключ🔑", b"\xff")]] * 9,
            timestamps_us=[1_000 + number for number in range(9)],
            priority=priority,
            codec=codec,
            routing=RoutingColumns(retries=retries, dedup_ids=ids),
        )
    )


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_a_copy_has_all_that_its_message_has(codec: Codec) -> None:
    """Keys, values, nulls, headers in their order, priority, time, compression, its own limit of attempts; and not its
    dedup id."""
    core, giving, orders = begin(full_batch(codec))
    giving.reject("g", range(9))
    core.settle()
    letters = giving.letters()
    (original,) = (decode_batch(data) for data in core.read_batches(orders))
    assert original.keys is not None
    assert original.headers is not None
    assert [copy.value for copy in letters] == [*original.values]
    assert [copy.key for copy in letters] == [*original.keys]
    assert [copy.own for copy in letters] == [*original.headers]
    assert [copy.timestamp_us for copy in letters] == [*range(1_000, 1_009)]
    assert {(copy.priority, copy.codec, copy.producer_id) for copy in letters} == {(7, codec, 0)}
    assert [copy.origin for copy in letters] == [(orders.log.log_id, offset) for offset in range(9)]
    (stored,) = (decode_batch(data) for data in core.read_batches(core.topic("orders.dlq").partition(0)))
    assert stored.routing.dedup_ids is None
    assert stored.routing.retries is not None
    assert stored.routing.retries["max_attempts"].tolist() == [5] * 9


@pytest.mark.parametrize("given_up", [[4], [1, 7], [0, 3, 8], [*range(9)]])
def test_of_a_batch_some_are_copied_or_all(given_up: list[int]) -> None:
    """Taken out of it one by one where they are few, and all at once: the copies say the same."""
    core, giving, orders = begin(full_batch())
    giving.reject("g", given_up)
    core.settle()
    (original,) = (decode_batch(data) for data in core.read_batches(orders))
    assert original.keys is not None
    assert original.headers is not None
    assert [(copy.origin[1], copy.value, copy.key, copy.own, copy.timestamp_us) for copy in giving.letters()] == [
        (offset, original.values[offset], original.keys[offset], original.headers[offset], 1_000 + offset)
        for offset in given_up
    ]


def test_a_copy_says_why_it_is_one() -> None:
    """Reason, error, group, place, attempts, first delivery and time, in this order, behind the message's headers."""
    core, giving, _orders = begin(full_batch())
    core.advance(5 * SECOND)
    giving.reject("g", [4])
    core.settle()
    (copy,) = giving.letters()
    assert copy.headers[6:] == [
        ("tidelog.dlq.reason", b"rejected"),
        ("tidelog.dlq.error", b"ValueError: boom\nat line 3"),
        ("tidelog.dlq.group", b"default/g"),
        ("tidelog.dlq.topic", b"default/orders"),
        ("tidelog.dlq.partition", b"0"),
        ("tidelog.dlq.offset", b"4"),
        ("tidelog.dlq.attempts", b"1"),
        ("tidelog.dlq.first_delivered_at", b"2023-11-14T22:13:25.000000Z"),
        ("tidelog.dlq.at", b"2023-11-14T22:13:25.000000Z"),
    ]


def test_the_last_attempt_and_the_end_of_a_lease_are_other_reasons() -> None:
    """At the limit of three: by a release, and by a lease that ended by itself; with all times of it."""
    core, giving, _orders = begin(batch(b"a", b"b"))
    for _ in range(3):
        held = giving.take("g")
        giving.ask("g", giving.items(held, Settling.RELEASE, [0], BOOM))
        if len(held) > 1:
            core.advance(31 * SECOND)  # the other one's lease ends
        core.advance(2 * SECOND)
    for _ in range(10):
        giving.take("g")
        core.advance(33 * SECOND)
    copies = {copy.origin[1]: copy for copy in giving.letters()}
    assert {offset: copy.said("dlq.reason") for offset, copy in copies.items()} == {0: "max-attempts", 1: "expired"}
    assert [copies[0].said(f"dlq.{name}") for name in ("attempts", "first_delivered_at")] == ["3", f"{WALL}.000000Z"]
    assert (copies[1].said("dlq.attempts"), copies[1].said("dlq.error")) == ("3", "")


def test_priorities_that_are_mixed_go_on_in_batches_of_their_own() -> None:
    """Each copy keeps its own, and is where its record says."""
    batches = [memoryview(encode_batch([b"%d" % number], timestamp_us=1, priority=number % 3)) for number in range(12)]
    core, giving, _orders = begin(*batches)
    giving.reject("g", range(12))
    core.settle()
    letters = giving.letters()
    assert {copy.origin[1]: copy.priority for copy in letters} == {number: number % 3 for number in range(12)}
    assert {copy.origin[1]: copy.value for copy in letters} == {number: b"%d" % number for number in range(12)}
    state = giving.part().state
    assert state is not None
    assert [*state.dead_lettered] == [*range(12)]


def test_two_groups_that_give_up_on_a_message_make_two_copies() -> None:
    """Each says whose it is; what one gave up the other still has."""
    core, giving, _orders = begin()
    giving.group("h", letter_settings())
    giving.reject("g", [1])
    giving.reject("h", [1, 2])
    core.settle()
    assert sorted((copy.said("dlq.group"), copy.origin[1]) for copy in giving.letters()) == [
        ("default/g", 1),
        ("default/h", 1),
        ("default/h", 2),
    ]
    assert sorted(giving.take("g")) == [0, 2, 3]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_a_message_of_the_largest_size_has_a_copy(codec: Codec) -> None:
    """With the longest error that is kept; the copy is larger by its own headers, and no more than 64 KiB."""
    value = np.random.default_rng(1).bytes(960 * KIB)
    core, giving, _orders = begin(batch(value, codec=codec), max_message_bytes=960 * KIB)
    error = SettleError("E" * 256, "ä" * (32 * KIB), "t" * (64 * KIB))
    giving.reject("g", [0], error)
    core.settle()
    (copy,) = giving.letters()
    assert copy.value == value
    assert sum(len(name.encode()) + len(said or b"") for name, said in copy.headers) < 64 * KIB
    said = copy.said("dlq.error")
    assert (said[:260], said[-8:]) == ("E" * 256 + ": ää", "... (cut)"[-8:])
    assert len(said.encode()) <= 48 * KIB


def test_a_batch_as_large_as_a_segment_has_copies() -> None:
    """The topic that is made for them has segments into which the copy fits, whatever the default."""
    value = np.random.default_rng(2).bytes(MIB - 4 * KIB - 200)
    core, giving, _orders = begin(batch(value))
    assert DEFAULTS.segment_bytes == MIB
    giving.reject("g", [0], SettleError("E", "x" * (60 * KIB)))
    core.settle()
    assert [copy.value for copy in giving.letters()] == [value]
    assert core.topic("orders.dlq").settings.segment_bytes == MIB + 128 * KIB


@pytest.mark.parametrize("text", ["with\0nul", "two\nlines", "\x1b]52;c;ZWNobw==\x07", "\u202e", "ключ🔑"])
def test_any_error_text_is_kept_as_it_is(text: str) -> None:
    """What it does on a terminal is for whoever shows it."""
    core, giving, _orders = begin()
    giving.reject("g", [0], SettleError("E", text))
    core.settle()
    assert giving.letters()[0].said("dlq.error") == f"E: {text}"


def test_an_attempt_without_an_error_has_none_in_its_copy() -> None:
    """The header is not there, instead of empty."""
    core, giving, _orders = begin()
    giving.reject("g", [0], None)
    core.settle()
    assert "tidelog.dlq.error" not in dict(giving.letters()[0].headers)


def test_ten_thousand_errors_in_one_request() -> None:
    """Each message has its own copy with its own error, in pieces; the group goes on meanwhile."""
    core = Core()
    orders = core.create("orders").partition(0)
    core.produce(orders, batch(*(b"%d" % number for number in range(10_001))))
    giving = GivingUp(core)
    giving.group("g", letter_settings())
    held = giving.take("g", 10_000)
    items = [
        SettleItem(orders.topic_id, *held[offset], Settling.REJECT, pack_ranges([(offset, offset + 1)]), delay_us=0)
        for offset in range(10_000)
    ]
    for offset, item in enumerate(items):
        item.error = SettleError("E", f"error {offset}")
    giving.ask("g", items)
    assert sorted(giving.take("g", 5, member=2)) == [10_000]
    core.settle()
    letters = giving.letters()
    assert [copy.origin[1] for copy in letters] == [*range(10_000)]
    assert [copy.said("dlq.error") for copy in letters] == [f"E: error {offset}" for offset in range(10_000)]
    assert giving.counted() == {"dead_lettered_messages": 10_000, "dropped_messages": 0, "dead_letters_lost": 0}


def test_a_message_that_goes_round_does_not_grow() -> None:
    """Redriven in place and rejected four times: the headers of each time replace those before, and count."""
    core, giving, orders = begin(full_batch())
    sizes: list[int] = []
    for times in range(4):
        giving.reject("g", [0])
        core.settle()
        copy = giving.letters()[-1]
        assert (copy.said("redrives"), copy.said("dlq.attempts")) == ("" if not times else str(times), "1")
        sizes.append(sum(len(name) + len(said or b"") for name, said in copy.headers) - len(copy.said("redrives")))
        ledger = giving.part().ledger
        ledger.append([Event(Kind.REDRIVEN, ledger.group.id, ledger.generation, packed_of(OffsetSet([0])))])
    assert len(giving.letters()) == 4
    assert sizes[1] == sizes[2] == sizes[3]
    assert orders.visible_offset == 9


def test_the_copy_of_a_copy_keeps_its_first_id_and_counts_on() -> None:
    """What the broker said of it before is replaced, by exactly its names; look-alikes are the producer's."""
    own = [("x-tidelog.redrives", b"9"), ("Tidelog.redrives", b"8"), ("tidelog.dlq.other", b"7")]
    old = [("tidelog.redrives", b"2"), ("tidelog.origin_id", b"orders/0@5"), ("tidelog.dlq.reason", b"expired")]
    core, giving, orders = begin()
    data = memoryview(encode_batch([b"again"], headers=[[old[0], *own, *old[1:]]], timestamp_us=1))
    header = decode_batch(data).header
    orders.append_copies(data, [header])
    core.advance(2 * SECOND)
    giving.reject("g", [4])
    core.settle()
    (copy,) = giving.letters()
    assert copy.headers[:3] == own
    assert (copy.said("redrives"), copy.said("origin_id"), copy.said("dlq.reason")) == ("2", "orders/0@5", "rejected")
    assert len(copy.headers) == 3 + 9 + 2


def test_partitions_go_to_their_own_number_modulo_what_there_is() -> None:
    """A topic that is made has as many; one that was there may have fewer."""
    core = Core()
    core.create("few", 2)
    topic = core.create("orders", 3)
    for index in range(3):
        core.produce(topic.partition(index), batch(b"%d" % index))
    giving = GivingUp(core)
    giving.group("g", letter_settings())
    giving.group("h", letter_settings(topic="default/few"))
    for name in ("g", "h"):
        giving.take(name)
        group = giving.group(name)
        for index in range(3):
            part = core.queues.part(group, topic.id, index)
            state = part.state
            assert state is not None
            (lease,) = state.leases
            items = [SettleItem(topic.id, index, lease, Settling.REJECT, pack_ranges([(0, 1)]), delay_us=0)]
            giving.ask(name, items)
    core.settle()
    assert [[copy.value for copy in giving.letters(partition=index)] for index in range(3)] == [[b"0"], [b"1"], [b"2"]]
    assert [sorted(c.value or b"" for c in giving.letters("few", index)) for index in range(2)] == [
        [b"0", b"2"],
        [b"1"],
    ]


def test_the_longest_name_of_a_topic_leaves_room_for_its_letters() -> None:
    """The dead-letter topic of one of 116 characters can be named by whoever reads it."""
    core = Core()
    name = "x" * 116
    core.produce(core.create(name).partition(0), batch(b"0"))
    giving = GivingUp(core, name)
    giving.group("g", letter_settings())
    giving.reject("g", [0])
    core.settle()
    assert core.topics.named(full_name(f"{name}.dlq")).partition(0).visible_offset == 1


def test_the_topic_that_is_made_keeps_its_letters_for_thirty_days() -> None:
    """And whatever else it is, it is by the broker's defaults."""
    core, giving, _orders = begin()
    giving.reject("g", [0])
    core.settle()
    assert core.topic("orders.dlq").given == {"retention": 30 * 86_400 * SECOND, "segment_bytes": MIB + 128 * KIB}


def test_without_dead_letters_what_is_given_up_is_dropped_and_counted() -> None:
    """There is no topic, and the message is settled at once."""
    core, giving, _orders = begin()
    giving.group("h", letter_settings(dead_letter=False))
    giving.reject("h", [0, 1])
    core.settle()
    assert core.topics.find("default/orders.dlq") is None
    assert giving.counted("h") == {"dead_lettered_messages": 0, "dropped_messages": 2, "dead_letters_lost": 0}
    state = giving.part("h").state
    assert state is not None
    assert (state.floor, [*state.rejected.offsets], len(state.dead_lettered)) == (2, [0, 1], 0)


@pytest.mark.parametrize("topic", ["orders.dlq", "failures"])
def test_what_is_given_up_in_a_dead_letter_topic_is_dropped(topic: str) -> None:
    """By its name, or because a group names it: there is no orders.dlq.dlq, and the letter is settled."""
    core, giving, _orders = begin()
    named = None if topic == "orders.dlq" else f"default/{topic}"
    giving.group("h", letter_settings(topic=named))
    giving.reject("h", [0])
    core.settle()
    reader = GivingUp(core, topic)
    reader.group("r", letter_settings())
    reader.reject("r", [0])
    core.settle()
    assert core.topics.find(f"default/{topic}.dlq") is None
    assert reader.counted("r") == {"dead_lettered_messages": 0, "dropped_messages": 1, "dead_letters_lost": 0}
    assert giving.origins(topic) == [0]
    assert not reader.take("r")


def test_moves_are_outside_of_what_a_group_may_have_in_flight() -> None:
    """A copy that cannot be made holds no room: others are leased."""
    core = Core(limits=TopicLimits(max_topics=1))
    core.produce(core.create("orders").partition(0), batch(b"0", b"1", b"2", b"3"))
    giving = GivingUp(core)
    given = letter_settings()
    given.max_in_flight = 2
    giving.group("g", given)
    for offsets in ([0, 1], [2, 3]):
        assert sorted(giving.take("g")) == offsets
        giving.reject_held("g", giving.held)
    gauges = core.gauges()
    assert gauges['tidelog_queue_leased_messages{group="g"}'] == 0
    assert gauges['tidelog_queue_dead_lettering_messages{group="g"}'] == 4
