"""How large replies become: those that tell a place to go on are a page and what was put in last; the others have a
largest size, by the limits that a broker comes with."""

from __future__ import annotations

from tidelog.broker.groups.settings import GroupDefaults
from tidelog.broker.topic_defaults import TopicDefaults, TopicLimits
from tidelog.protocol.limits import MAX_CONTROL_BYTES, MAX_NAME_BYTES, PAGE_BYTES
from tidelog.protocol.messages import (
    AttemptInfo,
    BackoffInfo,
    DescribeGroupsReply,
    ErrorInfo,
    GroupBegin,
    GroupError,
    GroupInfo,
    GroupMessagesReply,
    GroupPartitionInfo,
    GroupPlace,
    GroupSettings,
    GroupStart,
    GroupTopicInfo,
    JoinGroupReply,
    LaneInfo,
    ListOffsetsReply,
    MemberInfo,
    MessageAttemptsReply,
    MessageState,
    MessageStatesReply,
    MetadataReply,
    OffsetAnswer,
    OutcomePlace,
    OutcomeReply,
    PartitionInfo,
    ReopenTopicReply,
    ResetGroupReply,
    SettleError,
    TopicInfo,
    TopicPlace,
    encode,
)
from tidelog.protocol.topic_settings import MAX_AWAITED_GROUPS

NAME = "n" * 120 + "/" + "t" * 120
"""The longest full name of a topic or a group: two parts of 116 characters, each with `.dlq` behind it."""

NODE = "n" * 64
OFFSET = (1 << 62) - 1
INDEX = (1 << 30) - 1
ID = (1 << 31) - 1
ERROR = ErrorInfo(40, "m" * 1_000, {"name": NAME, "start": OFFSET, "end": OFFSET})
"""What keeps a partition from serving: its message has a path and names in it."""


def whole_group() -> GroupInfo:
    """A group with all that is not a list as long as it can be."""
    settings = GroupSettings(OFFSET, 65_535, BackoffInfo("exponential", OFFSET, OFFSET), 1_000_000, True, "d" * 256)
    counters = {f"tidelog_queue_{'c' * 40}_total_{number:02}": OFFSET for number in range(20)}
    start = GroupStart("earliest", OFFSET)
    return GroupInfo(NAME, ID, "queue", ID, OFFSET, start, settings, settings, counters=counters)


def test_the_largest_page_of_groups() -> None:
    """A page that was all but full when a group with the longest names, its topic and a partition with two errors of a
    kilobyte came: 7 KiB more, a fourth of what a frame takes."""
    group = whole_group()
    partition = GroupPartitionInfo(
        INDEX, OFFSET, OFFSET, OFFSET, OFFSET, OFFSET, OFFSET, OFFSET, OFFSET, ERROR, OFFSET, OFFSET, ERROR
    )
    lanes = [LaneInfo(priority, OFFSET, OFFSET) for priority in range(10)]
    group.topics = [GroupTopicInfo(ID, NAME, [partition], lanes)]
    member = MemberInfo(OFFSET, "c" * MAX_NAME_BYTES, ID, True)
    ends = DescribeGroupsReply([], [GroupError(NAME, ERROR)], OFFSET, GroupPlace(NAME, ID, ID, INDEX, OFFSET))
    added = len(encode(group)) + len(encode(member)) + len(encode(ends))
    assert added == 7_591
    assert PAGE_BYTES + added < MAX_CONTROL_BYTES


def test_the_largest_page_of_topics() -> None:
    """A page that was all but full when a topic came that waits for 16 groups with the longest names, with a partition
    that cannot be archived; of damaged ranges a partition would have to have 150,000."""
    settings: dict[str, str | int | None] = {f"setting_of_a_topic_{number:02}": OFFSET for number in range(16)}
    settings["retention_waits_for"] = ", ".join([NAME] * MAX_AWAITED_GROUPS)
    one = PartitionInfo(
        INDEX, NODE, ID, OFFSET, OFFSET, OFFSET, OFFSET, OFFSET, OFFSET, True, [], OFFSET, OFFSET, OFFSET, ERROR
    )
    topic = TopicInfo(NAME, ID, ID, OFFSET, [one], settings, sorted(settings))
    ends = MetadataReply(OFFSET, [], [], TopicPlace(NAME, ID, INDEX))
    added = len(encode(topic)) + len(encode(ends))
    assert added == 6_755
    assert PAGE_BYTES + added + 150_000 * 19 < MAX_CONTROL_BYTES


def test_the_largest_page_of_begins() -> None:
    """A page and one entry more."""
    one = GroupBegin(ID, NAME, INDEX, OFFSET, OFFSET)
    assert len(encode(one)) == 272
    assert PAGE_BYTES + 272 + len(encode(ResetGroupReply([], (ID, INDEX)))) < MAX_CONTROL_BYTES


def test_the_largest_page_of_what_was_said_of_messages() -> None:
    """A page and one entry more, whose error is as long as a broker can be told to keep them."""
    error = SettleError("k" * 1_000, "t" * 30_536, "b" * 34_000)
    assert len(error.kind + error.text + error.traceback) == 64 * 1_024
    state = MessageState(NAME, INDEX, OFFSET, "expired-by-retention", ID, OFFSET, OFFSET, error, NAME, ERROR)
    attempt = AttemptInfo("acknowledged", ID, OFFSET, OFFSET, OFFSET, error)
    states = MessageStatesReply([state], ID)
    messages = GroupMessagesReply([state], (ID, INDEX, OFFSET))
    sizes = [len(encode(reply)) for reply in (states, messages, MessageAttemptsReply([attempt], False))]
    assert sizes == [67_380, 67_395, 65_596]
    assert PAGE_BYTES + max(sizes) < MAX_CONTROL_BYTES


def test_without_pages_they_would_be_too_large() -> None:
    """At the limits that a broker comes with: 20,000 partitions of all topics, which one group may read, 10,000 topics
    and 10,000 groups."""
    limits = TopicLimits()
    assert (limits.max_topics, limits.max_partitions, GroupDefaults().max_groups) == (10_000, 20_000, 10_000)
    settings = TopicDefaults().in_force({}).on_wire()
    sizes = {
        "begins": limits.max_partitions * len(encode(GroupBegin(ID, NAME, INDEX, OFFSET, OFFSET))),
        "topics": limits.max_topics * len(encode(TopicInfo(NAME, ID, ID, OFFSET, [], settings))),
        "one group": limits.max_partitions * len(encode(GroupPartitionInfo(INDEX, 0, OFFSET, problem=ERROR))),
        "all groups": GroupDefaults().max_groups * len(encode(whole_group())),
    }
    assert sizes == {"begins": 5_440_000, "topics": 5_430_000, "one group": 26_140_000, "all groups": 23_990_000}
    assert min(sizes.values()) > MAX_CONTROL_BYTES


def test_replies_about_one_topic_fit() -> None:
    """A topic has 1,000 partitions at most, unless its broker is told otherwise: what is said of each of them is below
    4 MiB, also where each has an error."""
    assert TopicLimits().max_partitions_per_topic == 1_000
    reopened = ReopenTopicReply([INDEX] * 1_000)
    found = OutcomeReply(OFFSET, [OutcomePlace(INDEX, OFFSET, OFFSET)] * 1_000, ERROR)
    offsets = ListOffsetsReply(OFFSET, [OffsetAnswer(OFFSET, OFFSET, OFFSET, ID, ERROR)] * 1_000)
    assert [len(encode(reply)) for reply in (reopened, found, offsets)] == [5_004, 25_295, 1_315_013]


def test_who_joins_is_told_no_list() -> None:
    """The reply to a join names no topics."""
    assert len(encode(JoinGroupReply(whole_group(), True, OFFSET))) < 3_000
