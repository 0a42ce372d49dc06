"""The answer to a request to append."""

from __future__ import annotations

from dataclasses import dataclass

from ..protocol.durability import Durability
from ..protocol.messages import BatchResult


@dataclass(frozen=True, slots=True)
class Produced:
    """What became of one request's batches, one result each, and what is promised for those stored."""

    durability: Durability
    results: list[BatchResult]
