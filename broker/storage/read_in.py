"""A file's bytes in memory of their own, for reading what nobody knows to have been written.

A hole that is read through a map is filled with a page on tmpfs, and where there is no room for it the process
dies of SIGBUS; so it does of a bad sector. Read, a hole takes nothing and a bad sector is an error.
"""

import mmap

from .files import File
from .scan import written


def read_in(file: File, start: int) -> memoryview:
    """Return a file's bytes from `start` on at their places; what lies before is zeros."""
    size = file.size()
    if size == 0:
        return memoryview(b"")
    data = memoryview(mmap.mmap(-1, size))  # takes memory only where something is put
    for begin, end in written(file.data_from, start, size):
        found = file.read_at(begin, end - begin)
        data[begin : begin + len(found)] = found
    return data
