"""Groups: which there are, what is in force for each, where each begins, and their administration.

What becomes of their messages is `delivery` and `queues`; this package leases nothing and settles nothing.
"""

from .administration import Joined
from .details import GroupDetails, GroupDetailsSource
from .group import Group
from .registry import Groups, Observer
from .settings import GroupDefaults, QueueSettings

__all__ = [
    "Group",
    "GroupDefaults",
    "GroupDetails",
    "GroupDetailsSource",
    "Groups",
    "Joined",
    "Observer",
    "QueueSettings",
]
