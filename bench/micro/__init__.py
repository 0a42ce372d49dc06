"""Benchmarks of single functions, by pytest-benchmark: `pytest bench/micro`. Each asserts what it computed."""
