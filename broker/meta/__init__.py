"""What the broker knows beyond any one partition: topics, groups, producer identities, its epoch, damaged
ranges."""

from .facts import (
    Begin,
    Begins,
    DamageRemoved,
    DeliveryDegraded,
    DeliveryMade,
    EpochRaised,
    Fact,
    GroupAltered,
    GroupCreated,
    GroupDeleted,
    GroupReset,
    GroupStarted,
    GroupTopicsJoined,
    PartitionsMade,
    ProducerIdsReserved,
    ProducerNamed,
    RangeQuarantined,
    TopicAltered,
    TopicCreated,
    TopicDeleted,
    TopicRemoved,
)
from .groups import GroupRecord
from .meta_log import META_FOLDER, META_LOG_ID, MetaLog
from .producer_ids import ProducerIds
from .state import MetaState, NamedProducer, Quarantine, TopicRecord

__all__ = [
    "META_FOLDER",
    "META_LOG_ID",
    "Begin",
    "Begins",
    "DamageRemoved",
    "DeliveryDegraded",
    "DeliveryMade",
    "EpochRaised",
    "Fact",
    "GroupAltered",
    "GroupCreated",
    "GroupDeleted",
    "GroupRecord",
    "GroupReset",
    "GroupStarted",
    "GroupTopicsJoined",
    "MetaLog",
    "MetaState",
    "NamedProducer",
    "PartitionsMade",
    "ProducerIds",
    "ProducerIdsReserved",
    "ProducerNamed",
    "Quarantine",
    "RangeQuarantined",
    "TopicAltered",
    "TopicCreated",
    "TopicDeleted",
    "TopicRecord",
    "TopicRemoved",
]
