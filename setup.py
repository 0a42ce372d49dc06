from setuptools import setup

setup(cffi_modules=["src/tidelog/native/build_ffi.py:ffibuilder"])
