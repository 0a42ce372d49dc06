"""What the broker knows beyond any one partition: topics, producer identities, its epoch, damaged ranges."""

from .facts import (
    DamageRemoved,
    EpochRaised,
    Fact,
    PartitionsMade,
    ProducerIdsReserved,
    ProducerNamed,
    RangeQuarantined,
    TopicAltered,
    TopicCreated,
    TopicDeleted,
    TopicRemoved,
)
from .meta_log import META_FOLDER, META_LOG_ID, MetaLog
from .producer_ids import ProducerIds
from .state import MetaState, NamedProducer, Quarantine, TopicRecord

__all__ = [
    "META_FOLDER",
    "META_LOG_ID",
    "DamageRemoved",
    "EpochRaised",
    "Fact",
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
