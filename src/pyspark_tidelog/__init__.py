"""How Spark finds tidelog: on first use a session imports every top-level module named `pyspark_*`.

One that raises would break the look-up of all data sources, so this one says what is missing as a warning.
"""

from __future__ import annotations

import warnings

try:
    from tidelog.spark import TidelogDataSource
except Exception as error:
    warnings.warn(f'format("tidelog") is not available: {error}', stacklevel=1)
else:

    class DefaultSource(TidelogDataSource):
        """The data source under the name by which Spark looks for it."""
