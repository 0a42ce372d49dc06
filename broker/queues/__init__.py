"""Queue groups at work: who is given which messages, and what becomes of them.

Plain synchronous code over partitions and their delivery logs; what a message may become is decided in `delivery`,
which groups there are in `groups`.
"""
