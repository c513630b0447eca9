"""What pyproject.toml cannot say: the compiled parts, which may be left out (docs/adr/0039-one-file-of-c.md, and 0064).

Without a compiler, or without Python's headers, topics installs all the same and is the same, only slower.
"""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            name,
            [name.replace(".", "/") + ".c"],
            optional=True,
            py_limited_api=True,
            extra_compile_args=["-std=c11", "-O3"],
        )
        for name in ("engine._scan", "engine._checks", "topics_daemon._straight")
    ]
)
