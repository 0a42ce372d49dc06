"""Drive a log by hand: batches with known values, syncs done at once, everything read back."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.broker.errors import CorruptError
from tidelog.broker.storage.files import Files, MemoryFiles
from tidelog.broker.storage.fold import Fold
from tidelog.broker.storage.log import Appended, Log
from tidelog.broker.storage.settings import LogSettings
from tidelog.protocol.batch import decode_batch, encode_batch, iterate_headers, verify_body

FOLDER = "log"
LOG_ID = (1 << 32) | 1
SMALL = LogSettings(segment_bytes=8192, index_interval_bytes=512)


def open_log(
    files: Files | None = None,
    settings: LogSettings = SMALL,
    *,
    epoch: int | None = 1,
    now_us: int = 1,
    fold: Fold | None = None,
    log_id: int = LOG_ID,
) -> Log:
    """Open the log in `FOLDER`, by default a new one in memory."""
    files = MemoryFiles() if files is None else files
    return Log.open(files, FOLDER, log_id=log_id, settings=settings, epoch=epoch, now_us=now_us, fold=fold)


def batch(*values: bytes, timestamps_us: Sequence[int] | None = None) -> bytearray:
    """Encode one batch; without timestamps all are 7."""
    if timestamps_us is None:
        return encode_batch(list(values), timestamp_us=7)
    return encode_batch(list(values), timestamps_us=list(timestamps_us))


def append(log: Log, *values: bytes, now_us: int = 1, timestamps_us: Sequence[int] | None = None) -> Appended:
    """Append one batch."""
    return append_all(log, batch(*values, timestamps_us=timestamps_us), now_us=now_us)


def append_all(log: Log, *batches: bytes | bytearray, now_us: int = 1) -> Appended:
    """Append encoded batches in one run."""
    data = bytearray(b"".join(batches))
    return log.append(data, [header for _, header in iterate_headers(data)], now_us=now_us)


def sync(log: Log) -> None:
    """Run the sync that is due and hand it back."""
    task = log.begin_sync()
    if task is not None:
        log.finish_sync(task, task.run())


def upkeep(log: Log, now_us: int = 1) -> list[str]:
    """Run the upkeep that is due; returns the names of its steps."""
    task = log.begin_upkeep(now_us, now_us)
    if task is None:
        return []
    task.run()
    log.finish_upkeep(task)
    return [step.name for step in task.steps]


def read_values(log: Log, start: int | None = None, *, max_bytes: int = 1000, upto: int | None = None) -> list[bytes]:
    """Read all values from an offset on, checking that offsets follow one another and bodies are intact."""
    offset = log.start_offset if start is None else start
    end = log.end_offset if upto is None else upto
    values: list[bytes] = []
    while offset < end:
        found = log.read(offset, max_bytes=max_bytes, upto=end)
        assert found.next_offset > offset
        for piece in found.slices:
            data = piece.file.read_at(piece.position, piece.length)
            for position, header in iterate_headers(data):
                assert verify_body(data, position)
                assert header.base_offset <= offset or header.is_control
                records = decode_batch(data[position : position + header.batch_length]).values.to_list()
                values += [value or b"" for value in records[offset - header.base_offset :]]
                offset = max(offset, header.end_offset)
        assert offset == found.next_offset
    return values


def read_readable(log: Log) -> dict[int, bytes]:
    """Read every offset that can be read as a client does: over damage, asking for a check where a body is bad."""
    found: dict[int, bytes] = {}
    offset = log.start_offset
    while offset < log.end_offset:
        try:
            piece = log.read(offset, max_bytes=1)
            data = b"".join(part.file.read_at(part.position, part.length) for part in piece.slices)
            if not all(verify_body(data, position) for position, _ in iterate_headers(data)):
                task = log.begin_verify(offset, max_bytes=1)
                task.run()
                assert log.finish_verify(task) != []
                continue
        except CorruptError as error:
            following = error.details["next"]
            assert isinstance(following, int)
            assert following > offset
            offset = following
            continue
        for at, value in enumerate(read_values(log, offset, max_bytes=1, upto=piece.next_offset)):
            found[offset + at] = value
        offset = piece.next_offset
    return found


def contents(files: MemoryFiles, folder: str = "") -> dict[str, bytes | None]:
    """Return every file's bytes by path; None stands for a folder."""
    found: dict[str, bytes | None] = {}
    for name in files.list_folder(folder):
        path = f"{folder}/{name}" if folder else name
        try:
            found[path] = files.read(path)
        except FileNotFoundError:
            found[path] = None
            found.update(contents(files, path))
    return found


def restored(saved: dict[str, bytes | None]) -> MemoryFiles:
    """Return files with this content."""
    files = MemoryFiles()
    for path in sorted(saved):
        data = saved[path]
        if data is None:
            files.make_folder(path)
        else:
            files.write(path, data)
    return files
