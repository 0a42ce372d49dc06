"""What the broker is told: keys, defaults, and where values come from."""

from .loading import load
from .problems import ConfigError, Problem
from .sections import (
    ArchiveSection,
    BrokerSection,
    Config,
    DeliverySection,
    LoggingSection,
    LogSection,
    TopicsSection,
    TraceSection,
)
from .values import Address

__all__ = [
    "Address",
    "ArchiveSection",
    "BrokerSection",
    "Config",
    "ConfigError",
    "DeliverySection",
    "LogSection",
    "LoggingSection",
    "Problem",
    "TopicsSection",
    "TraceSection",
    "load",
]
