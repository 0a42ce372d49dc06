"""Whole-system benchmarks: a real broker process, a real client, everything read back."""
