"""Benchmarks: commands that measure and verify."""
