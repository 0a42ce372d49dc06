"""Durable logs: segments, indexes, recovery, group commit; written once for all the broker keeps."""
