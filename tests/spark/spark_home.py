"""A folder that Spark takes for its home and starts workers from faster.

Workers put `python/lib/pyspark.zip` of the home in front of their path, and importing from a zip without compiled files
takes a second a worker. This home has the jars and scripts by links, and leaves that zip out: workers then import the
installed pyspark.
"""

from __future__ import annotations

from pathlib import Path

import pyspark


def make_spark_home(folder: Path) -> Path:
    """Fill a folder and return it."""
    source = Path(pyspark.__file__).parent
    for name in ("jars", "bin", "sbin"):
        (folder / name).symlink_to(source / name)
    libraries = folder / "python/lib"
    libraries.mkdir(parents=True)
    for archive in (source / "python/lib").glob("py4j*.zip"):
        (libraries / archive.name).symlink_to(archive)
    return folder
