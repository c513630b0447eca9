"""Power cuts on a real file system: ext4 on a loop device, stopped dead under the running daemon.

`EXT4_IOC_SHUTDOWN` without a flush of the journal is what a power failure is to a file system: what it had not written
back by itself or because of a sync is gone. The device is then mounted again (ext4 replays its journal) and the daemon
started on what is left, as after a boot: in a mount namespace of its own, in which the kernel's boot id is another one.

The witness writes batches to a `memory`, a `disk` and an `fsync` topic and notes what was answered. After each cut:

- a batch is there whole, at the seqs that its answer named, or not at all;
- an `fsync` batch that was answered is there;
- of the other classes, answered batches that are gone lie in a `crash` tombstone, and nothing that was answered before
  a batch that is there is missing; what was readable after an earlier cut is readable still;
- no seq has ever meant two records.

The loop device keeps what it was given, so a missing cache flush between file system and disk is not seen here.
"""

from __future__ import annotations

import fcntl
import http.client
import os
import random
import shutil
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.sim.sigkill import Daemon, UnixConnection, ask, daemon_command, read_all, request

CLASSES: Final = ("memory", "disk", "fsync")
IMAGE_BYTES: Final = 256 << 20
_IOC_SHUTDOWN: Final = 0x8004587D
"""_IOR('X', 125, __u32), fs/ext4/ext4.h of Linux."""
_NO_LOG_FLUSH: Final = (2).to_bytes(4, "little")
_BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"


class NotPossibleError(Exception):
    """What this machine does not allow, and why."""


@dataclass(slots=True)
class Batch:
    """One write: what was sent, and the first seq of the answer (0: none came)."""

    texts: list[str]
    first_seq: int = 0


@dataclass(slots=True)
class CutReport:
    """What the cuts showed."""

    cuts: int = 0
    acked: int = 0
    lost: int = 0
    """Answered records of `memory` and `disk` that a `crash` tombstone stands for."""
    wrong: list[str] = field(default_factory=list)


class LoopDisk:
    """An ext4 file system in a file, that can be cut off and mounted again."""

    def __init__(self, place: Path) -> None:
        self.image = place / "image"
        self.root = place / "root"
        self.root.mkdir(parents=True)
        if shutil.which("mkfs.ext4") is None or shutil.which("unshare") is None:
            raise NotPossibleError("mkfs.ext4 or unshare is not installed")
        with self.image.open("wb") as file:
            file.truncate(IMAGE_BYTES)
        _run("mkfs.ext4", "-q", "-F", "-m", "0", str(self.image))
        self.mount()

    def mount(self) -> None:
        """Mount it; ext4 replays its journal."""
        _run("mount", "-o", "loop", str(self.image), str(self.root))

    def cut(self) -> None:
        """The power fails."""
        handle = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(handle, _IOC_SHUTDOWN, _NO_LOG_FLUSH)
        except OSError as error:
            raise NotPossibleError(f"this file system cannot be shut down: {error}") from error
        finally:
            os.close(handle)

    def unmount(self) -> None:
        """Unmount it; its loop device goes with it."""
        _run("umount", str(self.root))


class BootedDaemon(Daemon):
    """A daemon that reads a boot id of our choice."""

    def __init__(self, data: str, socket_path: str, boot_id: Path, options: tuple[str, ...]) -> None:
        self.socket_path = socket_path
        self.log = boot_id.with_name("daemon.log")
        script = f'mount --bind "$0" {_BOOT_ID} && exec "$@"'
        command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, str(boot_id)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, *daemon_command(data, socket_path), *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )


class Witness(threading.Thread):
    """Writes to one topic until the daemon no longer takes it; keeps what was sent and answered."""

    def __init__(self, socket_path: str, topic: str, batches: list[Batch]) -> None:
        super().__init__(daemon=True)
        self.socket_path = socket_path
        self.topic = topic
        self.batches = batches

    def run(self) -> None:
        connection = UnixConnection(self.socket_path)
        try:
            while True:
                number = len(self.batches)
                batch = Batch([f"{self.topic}-{number}-{index}" for index in range(1 + number % 5)])
                self.batches.append(batch)
                body = {"records": [{"data": text} for text in batch.texts]}
                status, answer = request(connection, "POST", f"/v0/topics/{self.topic}", body)
                if status not in (200, 201):
                    return
                batch.first_seq = answer["first_seq"]
        except (OSError, http.client.HTTPException, ValueError):
            return
        finally:
            connection.close()


def power_cuts(directory: Path, count: int, seed: int = 0, options: tuple[str, ...] = ()) -> CutReport:
    """`count` power cuts on one store. `options` are the daemon's. Raises `NotPossibleError`."""
    if os.geteuid() != 0:
        raise NotPossibleError("only root may mount file systems")
    rng = random.Random(seed)
    report = CutReport()
    disk = LoopDisk(directory)
    batches: dict[str, list[Batch]] = {topic: [] for topic in CLASSES}
    known: dict[str, dict[int, str]] = {topic: {} for topic in CLASSES}
    data, socket_path, boot_id = str(disk.root / "data"), str(directory / "socket"), directory / "boot_id"
    try:
        for number in range(count):
            boot_id.write_text(f"{number:08x}-0000-4000-8000-000000000000\n", encoding="ascii")
            daemon = BootedDaemon(data, socket_path, boot_id, options)
            try:
                daemon.wait_ready()
                if number == 0:
                    _create(socket_path)
                for topic in CLASSES:
                    _check(report, topic, batches[topic], known[topic], socket_path)
                if report.wrong:
                    return report
                _live(disk, socket_path, batches, rng)
            finally:
                daemon.kill()
            disk.unmount()
            disk.mount()
            report.cuts += 1
    finally:
        disk.unmount()
    report.acked = sum(len(batch.texts) for topic in CLASSES for batch in batches[topic] if batch.first_seq)
    return report


def _create(socket_path: str) -> None:
    for topic in CLASSES:
        status, answer = ask(socket_path, "PUT", f"/v0/topics/{topic}", {"durability": topic})
        assert status == 201, f"PUT {topic}: {status} {answer}"


def _live(disk: LoopDisk, socket_path: str, batches: dict[str, list[Batch]], rng: random.Random) -> None:
    """Writes, and the end of the power in the middle of them."""
    witnesses = [Witness(socket_path, topic, batches[topic]) for topic in CLASSES]
    for witness in witnesses:
        witness.start()
    time.sleep(rng.uniform(0.02, 0.6))
    disk.cut()
    for witness in witnesses:
        witness.join(15)
        if witness.is_alive():
            raise AssertionError(f"a write to {witness.topic} was never answered after the disk had gone")


def _check(report: CutReport, topic: str, batches: list[Batch], known: dict[int, str], socket_path: str) -> None:
    """Compare what is there with what the witness knows."""
    records, stones = read_all(socket_path, topic)
    there = dict(records)
    lost = [(stone["gap_from"], stone["gap_to"]) for stone in stones]
    wrong = report.wrong
    wrong += [f"{topic}: a {stone['reason']} tombstone" for stone in stones if stone["reason"] != "crash"]
    if len(there) != len(records):
        wrong.append(f"{topic}: a seq was given twice")
    wrong += [
        f"{topic}: seq {seq} was {text!r} after an earlier cut" for seq, text in known.items() if there.get(seq) != text
    ]
    known.update(there)
    at = {text: seq for seq, text in records}
    if len(at) != len(records):
        wrong.append(f"{topic}: a record is there twice")
    gone = 0
    for batch in batches:
        seqs = [at.pop(text, 0) for text in batch.texts]
        if any(seqs):
            first = batch.first_seq or seqs[0]
            if seqs != list(range(first, first + len(seqs))):
                wrong.append(f"{topic}: {batch.texts[0]} was answered as {batch.first_seq}, and is at {seqs}")
        elif batch.first_seq:
            gone += len(seqs)
            last = batch.first_seq + len(seqs) - 1
            if topic == "fsync":
                wrong.append(f"{topic}: seqs {batch.first_seq}-{last} were answered and are gone")
            elif not any(first <= batch.first_seq and last <= end for first, end in lost):
                wrong.append(f"{topic}: seqs {batch.first_seq}-{last} are gone without a tombstone")
    if at:
        wrong.append(f"{topic}: records that nobody wrote: {list(at)[:2]}")
    report.lost = max(report.lost, gone) if topic != "fsync" else report.lost
    del wrong[5:]


def _run(*command: str) -> None:
    done: Any = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise NotPossibleError(f"{command[0]}: {done.stderr.strip()}")
