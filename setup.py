"""What pyproject.toml cannot say: the one compiled part, which may be left out (docs/adr/0039-one-file-of-c.md).

Without a compiler, or without Python's headers, topics installs all the same and is the same, only slower.
"""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "engine._scan",
            ["engine/_scan.c"],
            optional=True,
            py_limited_api=True,
            extra_compile_args=["-std=c11", "-O3"],
        )
    ]
)
