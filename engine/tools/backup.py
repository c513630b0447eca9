"""Backups: a pinned set of files copied and verified, and the way back.

A backup is a directory that holds exactly what its manifest lists, every file with its XXH3-128; the manifest is
written last. `verify` believes nothing else: a file that is not listed, a name that no file of a store has, another
length or another digest is refused before anything is written. What comes back is a new store (engine.tools.rebuild),
read through all the checks inside the files too, so that a backup of something damaged is noticed as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from xxhash import xxh3_128

from engine.checkpoint.pin import read_manifest
from engine.errors import StoreDamaged
from engine.formats.export import MANIFEST_NAME, ExportFile, ExportManifest
from engine.formats.manifest import encode_meta
from engine.fs import Fs, OpenMode, create, replace_file, write_whole

_COPY: Final = 1 << 20

Heard = Callable[[float], None]


def back_up(source: Fs, target: Fs, heard: Heard) -> ExportManifest:
    """Copy a pin into an empty directory, read everything back, and write the manifest. Raises `OSError` and
    `StoreDamaged`; without the manifest there is no backup. `source` has the cold tier's files too (`TieredFs`)."""
    manifest = read_manifest(source)
    whole = max(2 * sum(file.bytes for file in manifest.files), 1)
    done = 0

    def moved(length: int) -> None:
        nonlocal done
        done += length
        heard(done / whole)

    made: set[str] = set()
    files = []
    for file in manifest.files:
        _make_parents(target, file.path, made)
        digest = _copy(source, target, file, moved)
        if file.xxh3_128 is not None and digest != file.xxh3_128:
            raise StoreDamaged(f"{file.path}: it is not what the pin lists")
        files.append(ExportFile(path=file.path, bytes=file.bytes, xxh3_128=digest))
    for file in files:
        if digest_of(target, file, moved) != file.xxh3_128:
            raise StoreDamaged(f"{file.path}: what was copied does not read back")
    for directory in sorted(made):
        target.fsync_dir(directory)
    target.fsync_dir("")
    complete = msgspec.structs.replace(manifest, files=files, cold=None)
    replace_file(target, MANIFEST_NAME, encode_meta(complete))
    return complete


def _make_parents(target: Fs, path: str, made: set[str]) -> None:
    parts = path.split("/")[:-1]
    for depth in range(1, len(parts) + 1):
        directory = "/".join(parts[:depth])
        if directory not in made:
            target.mkdir(directory)
            made.add(directory)


def _copy(source: Fs, target: Fs, file: ExportFile, moved: Callable[[int], None]) -> str:
    """Copy one file; its digest."""
    digest, offset = xxh3_128(), 0
    reading = source.open(file.path, OpenMode.READ)
    try:
        writing = create(target, file.path)
        try:
            while offset < file.bytes and (part := source.pread(reading, min(_COPY, file.bytes - offset), offset)):
                digest.update(part)
                write_whole(target, writing, (part,), offset)
                offset += len(part)
                moved(len(part))
            target.fdatasync(writing)
        finally:
            target.close(writing)
    finally:
        source.close(reading)
    if offset != file.bytes:
        raise StoreDamaged(f"{file.path} is {offset} bytes long, the manifest says {file.bytes}")
    return digest.hexdigest()


def digest_of(fs: Fs, file: ExportFile, moved: Callable[[int], None]) -> str:
    """The digest of a file as it is. Raises `StoreDamaged` when its length is another one."""
    digest, offset = xxh3_128(), 0
    handle = fs.open(file.path, OpenMode.READ)
    try:
        size = fs.size(handle)
        if size != file.bytes:
            raise StoreDamaged(f"{file.path} is {size} bytes long, the manifest says {file.bytes}")
        while part := fs.pread(handle, _COPY, offset):
            digest.update(part)
            offset += len(part)
            moved(len(part))
    finally:
        fs.close(handle)
    return digest.hexdigest()


def verify(fs: Fs, names: Sequence[str], heard: Heard) -> ExportManifest:
    """That a directory is exactly what its manifest lists; `names` are all files that are in it, as paths.

    Raises `StoreDamaged` for the first thing that is not, and `OSError`.
    """
    manifest = read_manifest(fs)
    listed = {file.path for file in manifest.files}
    extra = sorted(set(names) - listed - {MANIFEST_NAME})
    if extra:
        raise StoreDamaged(f"{extra[0]!r} is not in {MANIFEST_NAME}, which vouches for nothing else")
    missing = sorted(listed - set(names))
    if missing:
        raise StoreDamaged(f"{missing[0]} is missing")
    whole = max(sum(file.bytes for file in manifest.files), 1)
    done = 0

    def moved(length: int) -> None:
        nonlocal done
        done += length
        heard(done / whole)

    for file in manifest.files:
        if file.xxh3_128 is None:
            raise StoreDamaged(f"{file.path} has no digest in {MANIFEST_NAME}: this is a pin, not a backup")
        if digest_of(fs, file, moved) != file.xxh3_128:
            raise StoreDamaged(f"{file.path} does not have the digest that {MANIFEST_NAME} lists")
    return manifest
