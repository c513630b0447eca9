"""`backup` and `restore`: what comes back is what was there; what the manifest does not vouch for does not get in."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from engine import Engine
from engine.formats.export import ExportManifest
from engine.formats.manifest import decode_meta, encode_meta
from tests.cli.support import Daemon

pytestmark = pytest.mark.slow


@pytest.fixture
def backup(mortal: Daemon, tmp_path: Path) -> Path:
    """A backup of a daemon's two topics."""
    for topic in ("orders", "audit"):
        mortal.run("write", topic, *(f"{topic} {number}" for number in range(20)), "--tag", "t")
    assert mortal.run("delete", "orders", "--seq", "3-5", "--yes").returncode == 0
    made = mortal.run("backup", "--to", str(tmp_path / "backup"))
    assert made.returncode == 0, made
    assert b"verified" in made.stdout
    return tmp_path / "backup"


def read(path: Path) -> dict[str, list[object]]:
    with Engine(str(path)) as log:
        return {state.topic: [state.epoch, state.head_seq, *log.read(state.topic)] for state in log.topics()}


def test_what_comes_back_is_what_was_there_as_of_the_pin(mortal: Daemon, backup: Path, tmp_path: Path) -> None:
    mortal.run("write", "orders", "later")
    restored = mortal.run("restore", str(backup), "--to", str(tmp_path / "new"))
    assert restored.returncode == 0, restored
    mortal.stop()
    there, back = read(mortal.directory / "data"), read(tmp_path / "new")
    assert back["audit"] == there["audit"]
    assert back["orders"][2:] == there["orders"][2:-1]
    assert back["orders"][:2] == [there["orders"][0], 20]


def test_a_backup_is_a_store_that_the_tools_read(mortal: Daemon, backup: Path) -> None:
    assert mortal.run("fsck", str(backup)).returncode == 0
    assert b"deleted" in mortal.run("explain", "orders", "4", "--dir", str(backup)).stdout
    assert mortal.run("restore", str(backup), "--to", str(backup.parent / "n"), "--dry-run").returncode == 0
    assert not (backup.parent / "n").exists()


def test_explain_without_a_daemon_says_how_it_goes_without_one(mortal: Daemon, backup: Path) -> None:
    mortal.kill()
    done = mortal.run("explain", "orders", "4", "--retry-for", "0")
    assert done.returncode == 69
    assert done.stderr.endswith(b"without one: --dir DIR\n")
    assert mortal.run("explain", "orders", "4", "--dir", str(mortal.directory / "data")).returncode == 3


def test_a_target_that_is_not_empty_is_refused(mortal: Daemon, backup: Path) -> None:
    assert mortal.run("restore", str(backup), "--to", str(backup)).returncode == 1
    assert mortal.run("backup", "--to", str(backup)).returncode == 1
    assert mortal.run("backup").returncode == 2


def test_what_is_no_backup_is_told_from_a_store_and_from_a_damaged_one(mortal: Daemon, tmp_path: Path) -> None:
    mortal.stop()
    os.mkfifo(tmp_path / "pipe")
    for source, advice in (
        (mortal.directory / "data", f"topics recover {mortal.directory}/data --to "),
        (tmp_path, ""),
    ):
        done = mortal.run("restore", str(source), "--to", str(tmp_path / "new"))
        assert done.returncode == 4
        assert f"{source} has no manifest.json: it is no backup".encode() in done.stderr
        assert (advice or "give the directory of a backup").encode() in done.stderr
        assert not (tmp_path / "new").exists()


def test_a_directory_that_cannot_be_made_is_said(mortal: Daemon, backup: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    target = str(tmp_path / "file" / "new")
    for words in (["backup"], ["restore", str(backup)], ["recover", str(backup)], ["export", "orders"]):
        done = mortal.run(*words, "--to", target)
        assert (done.returncode, done.stdout) == (1, b"")
        what, todo = done.stderr.decode().splitlines()
        assert what == f"topics: {target} cannot be made: Not a directory (bad_out)"
        assert "--to DIR" in todo


def test_F70_S20_what_the_manifest_does_not_vouch_for_is_refused(mortal: Daemon, backup: Path, tmp_path: Path) -> None:
    data = next(backup.rglob("tails-*.data"))

    def refused(name: str, change: object) -> None:
        hurt = tmp_path / name
        shutil.copytree(backup, hurt)
        change(hurt)  # type: ignore[operator]  # a function
        target = tmp_path / f"{name}-new"
        answer = mortal.run("restore", str(hurt), "--to", str(target))
        assert answer.returncode == 4, (name, answer)
        assert not target.exists(), name

    def flip(root: Path) -> None:
        path = root / data.relative_to(backup)
        content = bytearray(path.read_bytes())
        content[100] ^= 1
        path.write_bytes(content)

    def listed(path: str) -> object:
        def change(root: Path) -> None:
            manifest = decode_meta((root / "manifest.json").read_bytes(), ExportManifest)
            first = manifest.files[0]
            extra = type(first)(path=path, bytes=first.bytes, xxh3_128=first.xxh3_128)
            manifest.files.append(extra)
            (root / "manifest.json").write_bytes(encode_meta(manifest))

        return change

    refused("flipped", flip)
    refused("cut", lambda root: os.truncate(root / data.relative_to(backup), 50))
    refused("missing", lambda root: (root / data.relative_to(backup)).unlink())
    refused("extra", lambda root: (root / "meta" / "extra").write_bytes(b"x"))
    refused("link", lambda root: (root / "link").symlink_to("/etc/passwd"))
    refused("pipe", lambda root: os.mkfifo(root / "pipe"))
    refused("manifest", lambda root: (root / "manifest.json").write_bytes(b"{}\n"))
    refused("no-manifest", lambda root: (root / "manifest.json").unlink())
    refused("absolute", listed("/etc/passwd"))
    refused("above", listed("../outside"))
    refused("foreign", listed("topics/readme"))
