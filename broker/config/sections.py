"""Every key of the configuration, by section, with its default, its range and its reason.

A key is written as its name without the unit (`drain_timeout: 30s`); in code the unit is part of the name
(`drain_timeout_us`). Zero means zero, never "unlimited": where there may be no limit the key takes `null`.
`config.example.yaml` shows all of them, and a test holds it to what stands here.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from ...protocol import limits
from ...protocol.durability import Durability
from ...protocol.limits import KIB, MIB, BatchLimits
from ...protocol.topic_settings import (
    MAX_DEDUP_IDS,
    MAX_DEDUP_WINDOW_US,
    MAX_LANES_SHARE,
    MAX_SEGMENT_BYTES,
    MIN_LANES_MAX_WAIT_US,
    MIN_LANES_SHARE,
    MIN_RETENTION_US,
    MIN_SEGMENT_AGE_US,
    MIN_SEGMENT_BYTES,
)
from .values import (
    Address,
    DurationUs,
    LaneWeights,
    ListenAddress,
    OptionalCount,
    OptionalDurationUs,
    OptionalSize,
    OptionalUrl,
    Size,
    StringMap,
    read_mapping,
)

GIB = 1024 * MIB
SECOND_US = 1_000_000
DAY_US = 86_400 * SECOND_US

NodeId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{1,64}$")]
BackoffWord = Literal["exponential", "linear", "constant"]
DedupScopeWord = Literal["partition", "topic"]
DurabilityWord = Literal["received", "written", "synced"]
LanesPolicyWord = Literal["strict", "weighted"]
LogLevel = Literal["debug", "info", "warning", "error"]


class Section(BaseModel):
    """A group of keys; an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=False, hide_input_in_errors=True)


class BrokerSection(Section):
    """The process itself and its connections."""

    listen: ListenAddress = Address("127.0.0.1", 9440)
    data_dir: str = Field(default="./data", min_length=1)
    node_id: NodeId = "node-1"
    insecure: bool = False
    """Allows `listen` beyond this machine, although nothing is encrypted and nobody is asked for credentials."""
    drain_timeout_us: DurationUs = Field(default=30 * SECOND_US, alias="drain_timeout", ge=0)
    """How long a stopping broker lets requests in flight finish."""

    max_connections: int = Field(default=10_000, ge=1, le=1_000_000)
    max_frame_bytes: Size = Field(default=limits.MAX_FRAME_BYTES, ge=128 * KIB, le=GIB)
    max_requests_in_flight: int = Field(default=limits.MAX_REQUESTS_IN_FLIGHT, ge=1, le=65_536)
    max_connection_bytes: Size = Field(default=96 * MIB, ge=128 * KIB, le=4 * GIB)
    """What one connection may hold in memory: its receive buffer, requests that wait, replies not yet sent."""
    max_memory_bytes: Size = Field(default=GIB, ge=128 * KIB)
    """The same for all connections together; beyond it connections wait their turn to be read."""
    send_buffer_bytes: Size = Field(default=MIB, ge=4 * KIB, le=64 * MIB)
    """SO_SNDBUF of a connection: what the kernel may hold of replies (it doubles the figure for itself)."""
    hello_timeout_us: DurationUs = Field(default=limits.HELLO_TIMEOUT_US, alias="hello_timeout", ge=1_000)
    """A connection that has not said Hello by then is closed."""
    idle_timeout_us: DurationUs = Field(default=600 * SECOND_US, alias="idle_timeout", ge=1_000)
    """A connection that finished no request for so long, and waits for none, is closed."""


class LogSection(Section):
    """What is stored, how durably and for how long; the defaults of topics that set nothing else."""

    durability: DurabilityWord = "synced"
    segment_bytes: Size = Field(default=64 * MIB, ge=MIN_SEGMENT_BYTES, le=MAX_SEGMENT_BYTES)
    segment_age_us: OptionalDurationUs = Field(default=None, alias="segment_age", ge=MIN_SEGMENT_AGE_US)
    """After it a segment is closed although it is not full; `null`: a quarter of the retention."""
    index_interval_bytes: Size = Field(default=4 * KIB, ge=256, le=16 * MIB)
    retention_us: OptionalDurationUs = Field(default=7 * DAY_US, alias="retention", ge=MIN_RETENTION_US)
    retention_bytes: OptionalSize = Field(default=None, ge=0)
    retention_check_interval_us: DurationUs = Field(default=30 * SECOND_US, alias="retention_check_interval", ge=10_000)
    """How often old segments are looked for."""
    max_unsynced_bytes: Size = Field(default=256 * MIB, ge=MIB, le=16 * GIB)
    """What all logs together may hold that is not yet synced; produce waits there."""
    sync_interval_us: DurationUs = Field(default=SECOND_US, alias="sync_interval", ge=1_000, le=60 * SECOND_US)
    """How far behind the writer a log is synced that nobody waits for."""
    max_batch_bytes: Size = Field(default=limits.MAX_BATCH_BYTES, ge=64 * KIB)
    """A stored batch, header included."""
    max_batch_payload_bytes: Size = Field(
        default=limits.MAX_BATCH_PAYLOAD_BYTES, alias="max_batch_payload", ge=64 * KIB
    )
    """The columns of a batch after decompression."""

    @property
    def durability_number(self) -> Durability:
        """The default durability as it stands on the wire."""
        return Durability.from_word(self.durability)


class TopicsSection(Section):
    """What topics there may be and what a message may be."""

    auto_create: bool = True
    partitions: int = Field(default=6, ge=1, le=1_000_000)
    max_topics: int = Field(default=10_000, ge=1, le=10_000_000)
    max_partitions_per_topic: int = Field(default=1_000, ge=1, le=1_000_000)
    max_partitions: int = Field(default=20_000, ge=1, le=10_000_000)
    """Of all topics together: each open partition costs a few descriptors and some memory."""
    max_message_bytes: Size = Field(default=limits.MAX_MESSAGE_BYTES, ge=1, le=limits.MAX_MESSAGE_BYTES)
    dedup_window_us: DurationUs = Field(default=600 * SECOND_US, alias="dedup_window", ge=0, le=MAX_DEDUP_WINDOW_US)
    """How long a second message with the same dedup id is left out; 0: never, and no id is remembered."""
    dedup_scope: DedupScopeWord = "partition"
    """In what a dedup id is unique."""
    dedup_max_ids: int = Field(default=1_000_000, ge=1, le=MAX_DEDUP_IDS)
    """Ids remembered in one partition, about 200 bytes each; beyond it the oldest are forgotten early."""


class ArchiveSection(Section):
    """Where sealed segments are copied before retention removes them. Without a `url` there is no archive."""

    url: OptionalUrl = None
    options: StringMap = Field(default_factory=dict, repr=False)
    """Credentials, endpoint and the like by obstore's names; what is not here comes from the store's own variables."""
    topics: bool = True
    """Whether topics are archived that do not say so themselves."""
    interval_us: DurationUs = Field(default=10 * SECOND_US, alias="interval", ge=10_000)
    """How often sealed segments are looked for."""
    concurrency: int = Field(default=2, ge=1, le=64)
    """Segments copied at a time."""
    part_bytes: Size = Field(default=8 * MIB, ge=5 * MIB, le=GIB)
    """In parts of this size a large segment is sent; two are in memory for each that is copied. S3 takes no smaller."""
    request_timeout_us: DurationUs = Field(default=30 * SECOND_US, alias="request_timeout", ge=100_000)
    """How long one request to the store may take."""
    max_backoff_us: DurationUs = Field(default=300 * SECOND_US, alias="max_backoff", ge=SECOND_US)
    """The longest that a store which does not answer is left alone."""
    cache_bytes: Size = Field(default=GIB, ge=0)
    """Archived segments kept on the local disk for readers; one is kept whatever its size."""


class BackoffSection(Section):
    """How long a message waits after a failed attempt, for groups that do not say so."""

    kind: BackoffWord = "exponential"
    initial_us: DurationUs = Field(default=SECOND_US, alias="initial", ge=1_000, le=limits.MAX_BACKOFF_MS * 1_000)
    """After the first attempt."""
    max_us: DurationUs = Field(default=600 * SECOND_US, alias="max", ge=1_000, le=limits.MAX_BACKOFF_MS * 1_000)
    """After however many."""
    multiplier: float = Field(default=2.0, ge=1, le=limits.MAX_BACKOFF_MULTIPLIER)
    """Of `exponential`: how much longer each wait is than the one before."""
    jitter: float = Field(default=0.2, ge=0, le=limits.MAX_JITTER_PERCENT / 100)
    """A share of the wait, by which it is drawn to be shorter or longer."""


class LanesSection(Section):
    """How messages of several priorities take turns in queue groups, for topics that do not say so."""

    policy: LanesPolicyWord = "strict"
    """Always the highest that has something, or each by its weight."""
    weights: LaneWeights = None
    """Of `weighted`: of every sum of weights a priority gets its own; one that is not named has 1."""
    max_wait_us: OptionalDurationUs = Field(default=None, alias="max_wait", ge=MIN_LANES_MAX_WAIT_US)
    """A message that has been available longer may go before its turn."""
    max_wait_share: int = Field(default=5, ge=MIN_LANES_SHARE, le=MAX_LANES_SHARE)
    """Of so many deliveries one."""


class DeliverySection(Section):
    """What holds for queue groups that set nothing else, and what a broker holds of groups."""

    visibility_timeout_us: DurationUs = Field(
        default=30 * SECOND_US, alias="visibility_timeout", ge=SECOND_US, le=12 * 3600 * SECOND_US
    )
    """After it a message whose worker was not heard of is given to another."""
    max_attempts: int = Field(default=4, ge=1, le=limits.MAX_ATTEMPTS)
    """The first delivery and three retries; then a message is given up."""
    backoff: Annotated[BackoffSection, BeforeValidator(read_mapping)] = BackoffSection()
    lanes: Annotated[LanesSection, BeforeValidator(read_mapping)] = LanesSection()
    max_in_flight: OptionalCount = Field(default=None, ge=1, le=1_000_000)
    """Messages leased to all members of a group together."""
    dead_letter: bool = True
    """Whether what is given up is kept as a copy in a dead-letter topic, or dropped."""
    dead_letter_retention_us: OptionalDurationUs = Field(
        default=30 * DAY_US, alias="dead_letter_retention", ge=MIN_RETENTION_US
    )
    """Of dead-letter topics that the broker makes: the setting `retention` that they are given."""
    max_error_bytes: Size = Field(default=2 * KIB, ge=64, le=64 * KIB)
    """Of an error that a member gives for a message, so much is kept of its text, and of the end of its traceback."""
    max_groups: int = Field(default=10_000, ge=1, le=1_000_000)


class TraceSection(Section):
    """What can be told of the past."""

    retention_us: DurationUs = Field(default=7 * DAY_US, alias="retention", ge=MIN_RETENTION_US)
    """How long it is kept what became of messages, once it means nothing to their state any more."""


class LoggingSection(Section):
    """What the broker says about itself, on stderr."""

    level: LogLevel = "info"
    format: Literal["console", "json"] = "console"


class Config(Section):
    """The whole configuration of a broker."""

    broker: BrokerSection = BrokerSection()
    log: LogSection = LogSection()
    topics: TopicsSection = TopicsSection()
    archive: ArchiveSection = ArchiveSection()
    delivery: DeliverySection = DeliverySection()
    trace: TraceSection = TraceSection()
    logging: LoggingSection = LoggingSection()

    @property
    def batch_limits(self) -> BatchLimits:
        """What one record batch may be."""
        return BatchLimits(
            max_message_bytes=self.topics.max_message_bytes,
            max_batch_bytes=self.log.max_batch_bytes,
            max_payload_bytes=self.log.max_batch_payload_bytes,
        )
