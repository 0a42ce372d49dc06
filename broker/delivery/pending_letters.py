"""The group that no user made: which dead letters of a dead-letter topic's partition are pending.

Its states lie in the delivery log of that partition beside those of the topic's own groups, under an id that no group
is given. It begins where the log begins, in the one generation it has; what is available of it is pending, what is
settled (RESOLVED) was redriven or purged. So it needs no fact in `meta`, is in no list, and nobody can join it.
"""

from __future__ import annotations

PENDING_GROUP = (1 << 32) - 1
"""Groups are numbered from 1 on, and a peer can name none from 2^31 on."""

PENDING_GENERATION = 1
