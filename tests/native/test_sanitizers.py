"""The C code under ASan and UBSan, on good and on damaged segments; skipped where the compiler has neither."""

import random
import shutil
import subprocess
from pathlib import Path

import pytest

from tidelog.native import batch_walk
from tidelog.protocol import batch

HERE = Path(__file__).parent
SOURCES = Path(batch_walk.__file__).parent
FLAGS = [
    "-std=c99",
    "-O1",
    "-g",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover",
]


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the driver, or skip and say what is missing."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler")
    target = tmp_path_factory.mktemp("sanitized") / "walk"
    sources = [str(HERE / "sanitized_walk.c"), str(SOURCES / "batch_walk.c")]
    command = [compiler, *FLAGS, f"-I{SOURCES}", *sources, "-o", str(target)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    if (built.returncode and "sanitize" in built.stderr + built.stdout) or "-lasan" in built.stderr:
        pytest.skip(f"the compiler has no sanitizers: {built.stderr[-300:]}")
    assert built.returncode == 0, built.stderr
    return target


def good_segment() -> bytearray:
    """Return eight batches as a segment with seed 7 holds them from position 0."""
    data = bytearray()
    for at in range(8):
        part = batch.encode_batch([b"v" * at, None], timestamp_us=at)
        batch.stamp_leader(part, 0, base_offset=2 * at, append_time_us=at, leader_epoch=1)
        batch.stamp_local(part, 0, synced_upto=0, segment_seed=7, segment_position=len(data))
        data += part
    return data


def run(driver: Path, image: bytes) -> str:
    """Run the driver over an image; a finding of a sanitizer fails the test with its report."""
    result = subprocess.run([driver], input=image, capture_output=True, check=False, timeout=60)
    assert result.returncode == 0, result.stderr.decode()[-3000:]
    return result.stdout.decode()


def test_good_headers_are_walked_cleanly(driver: Path):
    """Every start, end and limit within a good segment stays inside its buffer."""
    image = bytes(good_segment())
    assert run(driver, image) == f"{len(image) // 8 + 1 + 1025} walks, 1660 batches\n"


def test_damaged_headers_are_walked_cleanly(driver: Path):
    """Random damage, huge lengths among it, never leads outside the buffer."""
    generator = random.Random(20)
    for _ in range(15):
        image = good_segment()
        for _ in range(generator.randrange(1, 30)):
            image[generator.randrange(len(image))] = generator.choice([0, 1, 0x7F, 0x80, 0xFF])
        assert " walks, " in run(driver, bytes(image))


def test_the_sanitizers_are_on(driver: Path, tmp_path: Path):
    """A driver built the same way that does read beyond its buffer is caught, so the passes above mean something."""
    source = tmp_path / "bad.c"
    source.write_text(
        "#include <stdlib.h>\n"
        "int main(void) { volatile char *p = calloc(8, 1); int bad = p[8]; free((void *)p); return bad & 0; }\n"
    )
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    subprocess.run([str(compiler), *FLAGS, str(source), "-o", str(tmp_path / "bad")], check=True)
    result = subprocess.run([tmp_path / "bad"], capture_output=True, check=False, timeout=60)
    assert result.returncode != 0
    assert b"bad.c:2" in result.stderr
