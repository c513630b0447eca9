"""Directories that a command fills: empty before, and what is said of one that it could not fill."""

from __future__ import annotations

import os

from topics_cli.exits import Failure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from engine.fs import OsFs


def check_empty(target: str, last: str) -> None:
    """Refuse a directory in which there is something; `last` is the file that is written last into such a one."""
    if os.path.exists(target) and (not os.path.isdir(target) or os.listdir(target)):
        hint = "give an empty directory, or one that is not there yet"
        begun = os.path.isdir(f"{target}/meta") or os.path.exists(f"{target}/LOCK")
        if begun and not os.path.exists(f"{target}/{last}"):
            hint = "it holds what a command that did not end has left: remove it, or give another one"
        raise Failure(f"{target} is not empty", "not_empty", hint)


def unfinished(error: OSError, target: str | None, what: str) -> Failure:
    """An error of the disk on the way to a directory with a new store or backup; None: nothing was written yet."""
    from engine.fs import remedy

    where = f" ({error.filename or target})" if error.filename or target else ""
    said = f"{error.strerror}{where}"
    if target is None:
        return Failure(said, "io_error", f"nothing was written: {remedy(error)}")
    return Failure(
        said, "io_error", f"what is in {target} is no {what}: {remedy(error)}, remove it, and run this again"
    )


def made(path: str) -> OsFs:
    """The directory for what is made, made where it is not there."""
    from engine.fs import OsFs

    try:
        return OsFs(path, create=True)
    except OSError as error:
        raise Failure(
            f"{path} cannot be made: {error.strerror}", "bad_out", "give another directory: --to DIR"
        ) from error
