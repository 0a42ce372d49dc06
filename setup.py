from setuptools import Extension, setup

# Both extensions use the limited API: one wheel serves every Python from 3.11 on.
setup(
    cffi_modules=["src/tidelog/native/build_ffi.py:ffibuilder"],
    ext_modules=[
        Extension(
            "tidelog.native._column",
            ["src/tidelog/native/column.c"],
            extra_compile_args=["-O2", "-std=c99"],
            py_limited_api=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
