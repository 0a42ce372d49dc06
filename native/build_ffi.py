"""Describe the C extension `tidelog.native._native` to cffi (API mode, stable ABI).

setuptools runs this file through `cffi_modules` in setup.py, from the root of a checkout, of an unpacked
sdist or of an isolated copy. The C sources are therefore named relative to the working directory:
setuptools refuses absolute paths when it packs an sdist, and the sources lie beside this file in all three
places.
"""

import os
from pathlib import Path

from cffi import FFI

FOLDER = Path(os.path.relpath(Path(__file__).parent))


def _declarations() -> str:
    header = (FOLDER / "batch_walk.h").read_text(encoding="ascii")
    return header.partition("/* cffi begins */")[2].partition("/* cffi ends */")[0]


ffibuilder = FFI()
ffibuilder.cdef(_declarations())
ffibuilder.set_source(
    "tidelog.native._native",
    '#include "batch_walk.h"',
    sources=[str(FOLDER / "batch_walk.c")],
    depends=[str(FOLDER / "batch_walk.h")],
    include_dirs=[str(FOLDER)],
    extra_compile_args=["-O2", "-std=c99"],
    py_limited_api=True,
)
