from setuptools import setup

# The extension uses the limited API: one wheel serves every Python from 3.11 on.
setup(cffi_modules=["src/tidelog/native/build_ffi.py:ffibuilder"], options={"bdist_wheel": {"py_limited_api": "cp311"}})
