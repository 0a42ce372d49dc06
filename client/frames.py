"""From Arrow to data frames, with libraries that are only there if the user installed them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa


def require(extra: str) -> None:
    """Load what one of tidelog's extras (arrow, pandas, polars) installs. Raises ImportError that names it."""
    for module in ("pyarrow",) if extra == "arrow" else ("pyarrow", extra):
        try:
            import_module(module)
        except ImportError as error:
            raise ImportError(
                f'expected {module} to be installed, found none: pip install "tidelog[{extra}]"', name=module
            ) from error


def to_pandas(table: pa.Table) -> pd.DataFrame:
    """Return a table as a pandas frame with pandas' usual types: bytes and None as objects, numbers as numpy's."""
    return table.to_pandas()


def to_polars(table: pa.Table) -> pl.DataFrame:
    """Return a table as a polars frame."""
    import polars as pl

    frame = pl.from_arrow(table)  # pyright: ignore[reportUnknownMemberType]
    assert isinstance(frame, pl.DataFrame)
    return frame
