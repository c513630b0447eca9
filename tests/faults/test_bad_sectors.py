"""A real block device that stops giving some of its blocks, and gives them again: errors that the kernel makes.

It is a loop device over a file, which is cut short under it: whatever lies behind the cut is EIO. What the machine does
not allow (loop devices, mounting) is skipped, and says so.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.test_real_disk import ask, daemons, start, write
from tests.sim.sigkill import Daemon, read_all
from tests.waiting import until

__all__ = ["daemons"]

pytestmark = pytest.mark.slow

MIB = 1 << 20
BLOCK = 4096
FIBMAP = 1


class Device:
    """A disk of 64 MiB with a file system of one group, so that what is written later lies behind."""

    def __init__(self, directory: Path) -> None:
        self.image = directory / "image"
        self.place = directory / "disk"
        self.place.mkdir()
        self._rest = b""
        with self.image.open("wb") as file:
            file.truncate(64 * MIB)
        options = ["-q", "-F", "-b", str(BLOCK), "-O", "^has_journal", "-E", "lazy_itable_init=0"]
        _run("mkfs.ext4", *options, str(self.image))
        self.mount()
        (self.place / "lost+found").rmdir()
        self.place.chmod(0o700)

    def mount(self, *options: str) -> None:
        _run("mount", "-o", ",".join(("loop", "noatime", *options)), str(self.image), str(self.place))

    def unmount(self) -> None:
        _run("umount", str(self.place))

    def refuse_from(self, offset: int) -> None:
        """From now on nothing behind is read; what the kernel still has in memory is."""
        with self.image.open("r+b") as file:
            file.seek(offset)
            self._rest = file.read()
            file.truncate(offset)

    def mend(self) -> None:
        with self.image.open("r+b") as file:
            file.seek(0, os.SEEK_END)
            file.write(self._rest)


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"this machine does not allow a disk of its own: {' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def blocks_of(path: Path) -> list[int]:
    """Where the blocks of a file lie on the device, as byte offsets."""
    with path.open("rb") as file:
        count = -(-os.fstat(file.fileno()).st_size // BLOCK)
        found = [fcntl.ioctl(file.fileno(), FIBMAP, struct.pack("i", at)) for at in range(count)]
    return [struct.unpack("i", one)[0] * BLOCK for one in found]


def forget(path: Path) -> None:
    """Have the kernel drop what it holds of a file."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Device]:
    if shutil.which("mkfs.ext4") is None or os.geteuid():
        pytest.skip("a disk of its own needs mkfs.ext4 and root")
    made = Device(tmp_path)
    yield made
    made.mend()
    subprocess.run(["umount", str(made.place)], check=True)


def segments(daemon: Daemon, data: Path) -> list[Path]:
    """Data of closed history, once there is some."""
    assert ask(daemon, "POST", "/v0/admin/checkpoint")[0] == 200
    return sorted(data.glob("topics/*/*.data"))


def _segment(data: Path) -> Path:
    return max(data.glob("topics/*/*.data"))


def _log(data: Path) -> Path:
    return max(path for path in data.glob("wal/*/*.log") if any(path.read_bytes()[BLOCK : 2 * BLOCK]))


def _snapshot(data: Path) -> Path:
    return max(data.glob("meta/*.snap"))


@pytest.mark.parametrize("find", [_segment, _log, _snapshot])
def test_F37_recover_saves_all_but_what_the_device_refuses(
    find: Callable[[Path], Path], device: Device, tmp_path: Path, daemons: list[Daemon]
) -> None:
    data = tmp_path / "data"
    daemon = start(daemons, data, tmp_path / "s", "--segment-max-events", "100")
    for _ in range(5):
        assert write(daemon, "t", 100, 200)[0] in (200, 201)
        assert write(daemon, "u", 7)[0] in (200, 201)
        assert segments(daemon, data)
    assert write(daemon, "t", 30, 500)[0] == 200
    daemon.kill()
    victim = find(data)
    # The file that is to be hit is written last, so that all others lie before it.
    old = device.place / "old"
    shutil.copytree(data, old, ignore=lambda where, names: [victim.name] if where == str(victim.parent) else [])
    for path in old.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)
    old.chmod(0o700)
    there = old / victim.relative_to(data)
    os.sync()
    shutil.copyfile(victim, there)
    os.sync()
    hit = blocks_of(there)
    others = [block for path in old.rglob("*") if path.is_file() and path != there for block in blocks_of(path)]
    from_block = hit[min(1, len(hit) - 1)]
    assert max(others) < from_block
    device.unmount()
    device.mount("ro")
    device.refuse_from(from_block)
    with pytest.raises(OSError, match="Input/output error"):
        there.read_bytes()
    command = [sys.executable, "-m", "topics_cli", "recover", str(old), "--to", str(tmp_path / "new")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert f"unread\t{victim.relative_to(data)}" in done.stdout, done.stdout + done.stderr
    assert "Input/output error" in done.stdout
    assert done.returncode in (0, 5), done.stdout + done.stderr
    report = (tmp_path / "new" / "lost" / "report.txt").read_text()
    assert "saved\t2 topics" in report
    daemon = start(daemons, tmp_path / "new", tmp_path / "s2")
    lost = False
    for topic, head in (("t", 530), ("u", 35)):
        records, stones = read_all(daemon.socket_path, topic)
        gaps = {seq for stone in stones for seq in range(stone["gap_from"], stone["gap_to"] + 1)}
        assert {seq for seq, _ in records} | gaps >= set(range(1, head + 1))
        assert len(records) >= head - 130, "no more than what lay there is lost"
        lost = lost or bool(gaps)
    assert lost == (done.returncode == 5)


def test_history_on_a_device_that_fails_for_a_while_is_a_503_and_costs_nothing(
    device: Device, tmp_path: Path, daemons: list[Daemon]
) -> None:
    data = tmp_path / "data"
    first = start(daemons, data, tmp_path / "s0")
    first.process.terminate()
    assert first.process.wait(20) == 0
    device.unmount()
    (data / "topics").mkdir(mode=0o700, exist_ok=True)
    device.place = data / "topics"
    device.mount()
    daemon = start(daemons, data, tmp_path / "s", "--segment-max-events", "100")
    for _ in range(6):
        assert write(daemon, "t", 100, 200)[0] in (200, 201)
        assert segments(daemon, data)
    daemon.kill()
    daemon = start(daemons, data, tmp_path / "s", "--checkpoint-ms", "3600000")
    files = [path for path in data.glob("topics/*/*") if path.is_file()]
    os.sync()
    device.refuse_from(min(block for path in files for block in blocks_of(path)))
    for path in files:
        forget(path)
    for _ in range(3):
        status, answer = ask(daemon, "POST", "/v0/topics/t/diff", {"limit": 1000})
        assert (status, answer["error"]["code"]) == (503, "not_ready")
        assert "topics/" in answer["error"]["message"]
    assert write(daemon, "t", 3)[0] == 200, "nothing else waits for it"
    device.mend()
    records, stones = read_all(daemon.socket_path, "t")
    assert (len(records), stones) == (603, [])
    assert "damage" not in ask(daemon, "GET", "/v0/topics/t")[1]
    until(lambda: "the disk refuses" in daemon.log.read_text())
    assert daemon.log.read_text().count("lost when that lasts") == 1
    daemon.process.terminate()
    assert daemon.process.wait(20) == 0
