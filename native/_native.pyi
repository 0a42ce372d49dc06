"""What cffi generates at build time, as far as this package uses it."""

from typing import Protocol

import numpy as np
import numpy.typing as npt

_Buffer = bytes | bytearray | memoryview | npt.NDArray[np.void]

class CData(Protocol):
    """A C array or pointer, opaque to Python."""

class WalkResult(CData, Protocol):
    count: int
    position: int
    reason: int

class _Ffi(Protocol):
    def new(self, cdecl: str) -> WalkResult: ...
    def from_buffer(self, cdecl: str, buffer: _Buffer) -> CData: ...
    def sizeof(self, cdecl: str) -> int: ...
    def offsetof(self, cdecl: str, field: str) -> int: ...

class _Lib(Protocol):
    def tidelog_walk_batches(
        self,
        data: CData,
        position: int,
        end: int,
        seed: int,
        entries: CData,
        limit: int,
        result: WalkResult,
    ) -> None: ...
    def tidelog_xxh32(self, data: CData, length: int, seed: int) -> int: ...

ffi: _Ffi
lib: _Lib
