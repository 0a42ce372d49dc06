"""The extension of column.c."""

import numpy as np
import numpy.typing as npt

def flatten(entries: list[object], offsets: npt.NDArray[np.int32], limit: int) -> bytes | None: ...
def pick(
    data: bytes, offsets: npt.NDArray[np.int32], rows: npt.NDArray[np.int64], found: npt.NDArray[np.int32]
) -> bytes: ...
