"""Amounts as people read them: how many of what, and sizes."""

BRIEF_FROM = 10_000
"""From here on a size is easier to read in a larger unit."""


def counted(count: int, what: str, many: str = "") -> str:
    """`1 record`, `2 records`; `many` where an s is not enough."""
    return f"{count} {what if count == 1 else many or what + 's'}"


def show_size(count: int) -> str:
    """Bytes, and what that is in larger units."""
    return f"{count} bytes" if count < BRIEF_FROM else f"{count} bytes ({brief_size(count)})"


def brief_size(count: int) -> str:
    """Bytes in the unit that makes them short."""
    if count < BRIEF_FROM:
        return f"{count} bytes"
    size = float(count)
    for unit in ("KiB", "MiB", "GiB"):
        size /= 1024
        if size < 1000:
            return f"{size:.1f} {unit}"
    return f"{size / 1024:.1f} TiB"
