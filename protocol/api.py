"""The numbers of all requests, those of later versions included: a number is never used twice."""

from __future__ import annotations

from enum import IntEnum


class Api(IntEnum):
    """What a frame asks for. Zero is never valid, so an unwritten header cannot be mistaken for a request.

    All are assigned from the start; those that this version does not act on are refused with UNSUPPORTED.
    """

    HELLO = 1
    METADATA = 2
    CREATE_TOPIC = 3
    ALTER_TOPIC = 4
    DELETE_TOPIC = 5
    INIT_PRODUCER = 6
    PRODUCE = 7
    FETCH = 8
    LIST_OFFSETS = 9
    CANCEL = 10
    GET = 11
    STATS = 12
    REOPEN_TOPIC = 13
    PING = 14
    OUTCOME = 20
    CLOCK = 21
    JOIN_GROUP = 30
    HEARTBEAT = 31
    LEAVE_GROUP = 32
    COMMIT_OFFSETS = 33
    FETCH_OFFSETS = 34
    CREATE_GROUP = 35
    ALTER_GROUP = 36
    RESET_GROUP = 37
    DELETE_GROUP = 38
    DESCRIBE_GROUP = 39
    ACQUIRE = 40
    SETTLE = 41
    MESSAGE_STATES = 42
    GROUP_MESSAGES = 43
    COMMIT_SINK = 50
    ABORT_SINK = 51
    INITIAL_POSITION = 52
    SCHEDULE = 60
    DEAD_LETTERS = 61
    TRACE = 62
    REDRIVE = 63
    PURGE = 64
    ATTEMPTS = 65
    LIST_ARCHIVE = 70
    RUN_ARCHIVE = 71
    VERIFY_ARCHIVE = 72
    EXPIRE_ARCHIVE = 73
