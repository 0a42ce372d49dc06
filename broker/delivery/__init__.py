"""Delivery: what becomes of each message in each group, as a fold over a log of events. README.md has the formats.

Plain synchronous code: times, chance and the message log's limits come in as arguments.
"""
