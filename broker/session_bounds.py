"""What one connection holds, and when that is enough.

held    receive buffer + requests that wait + replies that the kernel has not taken
full    max_requests_in_flight unanswered, or more than max_connection_bytes held: it is not read until less is
before Hello succeeds   8 KiB of requests in all
"""

from __future__ import annotations

from dataclasses import dataclass

from ..protocol.connection import INITIAL_BUFFER_BYTES, FrameBuffer
from ..protocol.errors import ProtocolError
from ..protocol.limits import MAX_UNAUTHENTICATED_BYTES
from .session_memory import MemoryBudget
from .session_output import SessionOutput
from .session_requests import RequestsInFlight


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """What one connection may take; see the keys of the same names in `config.sections.BrokerSection`."""

    max_frame_bytes: int
    max_requests_in_flight: int
    max_connection_bytes: int
    hello_timeout_us: int
    idle_timeout_us: int


class SessionBounds:
    """The bounds of one connection, and its part of the budget that all share."""

    __slots__ = ("_buffer", "_charged_bytes", "_greeting_bytes", "_limits", "_memory", "_output", "_requests")

    def __init__(
        self,
        limits: SessionLimits,
        memory: MemoryBudget,
        buffer: FrameBuffer,
        requests: RequestsInFlight,
        output: SessionOutput,
    ) -> None:
        self._limits = limits
        self._memory = memory
        self._buffer = buffer
        self._requests = requests
        self._output = output
        self._charged_bytes = 0
        self._greeting_bytes = 0

    def __repr__(self) -> str:
        return f"<SessionBounds {self.held_bytes} held{' full' if self.is_full else ''}>"

    @property
    def held_bytes(self) -> int:
        """What the connection keeps in memory."""
        return self._buffer.capacity + self._requests.held_bytes + self._output.held_bytes

    @property
    def is_full(self) -> bool:
        """Whether nothing more may be read from it. One that has nothing in flight is never full."""
        count, limits = self._requests.count, self._limits
        return count >= limits.max_requests_in_flight or (count > 0 and self.held_bytes > limits.max_connection_bytes)

    @property
    def must_wait_for_memory(self) -> bool:
        """Whether the budget of all connections is spent, and this one holds more than its first small buffer."""
        return self._memory.is_spent and self._buffer.capacity > INITIAL_BUFFER_BYTES

    async def wait_for_memory(self) -> None:
        """Wait until the budget lets this connection receive more."""
        await self._memory.wait(self)

    @property
    def has_idle_buffer(self) -> bool:
        """Whether the receive buffer is larger than it has to be while nothing comes."""
        return not self._buffer and self._buffer.capacity > INITIAL_BUFFER_BYTES

    def idle(self) -> None:
        """Let the budget take the large buffer back if nothing comes for long."""
        self._memory.idle(self)

    def busy(self) -> None:
        """Something came."""
        self._memory.busy(self)

    def give_back(self) -> None:
        """Shrink the receive buffer, which is idle."""
        self._buffer.shrink()
        self.charge()

    def charge(self) -> None:
        """Bring what the budget knows of this connection up to date."""
        held_bytes = self.held_bytes
        if held_bytes != self._charged_bytes:
            self._memory.change(self, held_bytes - self._charged_bytes)
            self._charged_bytes = held_bytes

    def leave(self) -> None:
        """Give everything back: the connection is closed."""
        self._memory.change(self, -self._charged_bytes)
        self._memory.leave(self)
        self._charged_bytes = 0

    def count_greeting(self, size: int) -> None:
        """Count a request that came before Hello had succeeded, and left it so. Raises ProtocolError beyond 8 KiB."""
        self._greeting_bytes += size
        if self._greeting_bytes > MAX_UNAUTHENTICATED_BYTES:
            raise ProtocolError(f"expected HELLO to succeed within {MAX_UNAUTHENTICATED_BYTES} bytes, found more")
