"""What settle requests did, so that a request whose answer was lost can be repeated.

Of each member the last 64 requests (a client has at most 32 in flight), until ten minutes after its last one; of
settles by token the last 10,000.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from ...protocol.messages.queue import BY_TOKEN

REMEMBERED_REQUESTS = 64
REMEMBERED_US = 600_000_000
REMEMBERED_TOKENS = 10_000


class Deed(NamedTuple):
    """One item of a settle: what (`protocol.messages.Settling`) was done to which packed ranges of which lease."""

    lease: int
    what: int
    ranges: bytes


class Remembered:
    """What settles of one group did in one partition."""

    def __init__(self) -> None:
        self.members: dict[int, OrderedDict[int, set[Deed]]] = {}
        self.last_us: dict[int, int] = {}
        """Member -> wall time of its last settle."""
        self.tokens: OrderedDict[Deed, None] = OrderedDict()

    def note(self, member: int, number: int, deed: Deed, wall_us: int) -> None:
        """Remember one item that was done."""
        if member == BY_TOKEN:
            self.tokens[deed] = None
            while len(self.tokens) > REMEMBERED_TOKENS:
                self.tokens.popitem(last=False)
            return
        requests = self.members.setdefault(member, OrderedDict())
        requests.setdefault(number, set()).add(deed)
        self.last_us[member] = wall_us
        while len(requests) > REMEMBERED_REQUESTS:
            requests.popitem(last=False)

    def knows(self, member: int, number: int, deed: Deed) -> bool:
        """Whether exactly this was done by this request."""
        if member == BY_TOKEN:
            return deed in self.tokens
        requests = self.members.get(member)
        return requests is not None and deed in requests.get(number, ())

    def forget_old(self, wall_us: int) -> None:
        """Forget members that settled nothing for long."""
        for member in [member for member, last_us in self.last_us.items() if wall_us - last_us > REMEMBERED_US]:
            del self.members[member], self.last_us[member]
