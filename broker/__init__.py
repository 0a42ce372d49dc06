"""The broker: one process that keeps logs and serves them."""
