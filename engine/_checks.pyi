"""What `_checks.c` exports; only `engine/scan.py` imports it, and it may be missing."""

from array import array

def checks(data: bytes | bytearray | memoryview, strides: array[int], /) -> bytes | None: ...
