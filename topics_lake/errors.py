"""What can go wrong on the way: one exception with a stable code and what to do next."""

from __future__ import annotations

from engine.fs import remedy


def how_to_install(extra: str) -> str:
    """What brings the packages of an extra: a clone has them locked, and its `pip` is rarely the first on the PATH."""
    return f"in a clone: make setup-spark; elsewhere: pip install 'topics[{extra}]'"


class LakeError(Exception):
    """An export or import cannot go on. `what` fits one line, `code` is stable, `hint` says what to do."""

    def __init__(self, what: str, code: str = "export_failed", hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.code = code
        self.hint = hint

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.what, self.code, self.hint)


def unwritten(error: OSError, place: str) -> LakeError:
    """What the system has refused to read or write at `place`, or below it."""
    what = f"{error.filename or place}: {error.strerror or error}"
    return LakeError(what, "io_error", f"what was exported before is whole: {remedy(error)}, and run this again")
