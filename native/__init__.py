"""The loops that are too hot for Python, in C behind small typed wrappers."""
