"""Spark's reading of the same rows by several sources, in one session: `python -m bench.spark`."""
