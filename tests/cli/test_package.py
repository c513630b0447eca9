"""The wheel: built from the sources, installed, and what it brings is where shells, `man` and systemd look."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from tests.cli.support import ROOT, Daemon
from tests.style.sources import tracked

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with nothing but the wheel, and our dependencies within reach of the full program."""
    place = tmp_path_factory.mktemp("package")
    for path in tracked():
        target = place / "source" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, target)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", str(place), str(place / "source")]
    subprocess.run(build, check=True, env=environment, timeout=120, capture_output=True)
    (wheel,) = place.glob("*.whl")
    venv.create(place / "env", with_pip=False)
    install = [*pip, "--python", str(place / "env"), "install", "--no-deps", str(wheel)]
    subprocess.run(install, check=True, env=environment, timeout=120, capture_output=True)
    library = place / "env/lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
    (library / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return place / "env"


def _run(program: Path | str, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program, *words], cwd="/", env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def test_everything_is_where_it_is_looked_for(installed: Path) -> None:
    for path in (
        "bin/topics",
        "bin/topicsd",
        "share/man/man1/topics.1",
        "share/man/man1/topics-tail.1",
        "share/man/man5/topics.toml.5",
        "share/man/man8/topicsd.8",
        "share/bash-completion/completions/topics",
        "share/zsh/site-functions/_topics",
        "share/fish/vendor_completions.d/topics.fish",
        "lib/systemd/system/topicsd.service",
        "lib/systemd/system/topicsd.socket",
        "lib/systemd/user/topicsd.service",
        "lib/sysusers.d/topics.conf",
        "lib/tmpfiles.d/topics.conf",
    ):
        assert (installed / path).is_file(), path


def test_the_script_starts_isolated_and_works(installed: Path, shared: Daemon, tmp_path: Path) -> None:
    """From its place, by a link as pipx makes it, by name, and from a directory that holds modules of our names."""
    shared.ok("create", "from-a-wheel")
    (tmp_path / "topics_cli.py").write_text("raise SystemExit('not this one')")
    link = tmp_path / "topics"
    link.symlink_to(installed / "bin/topics")
    environment = {"TOPICS_SOCKET": shared.socket, "PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin"}
    for number, program in enumerate((str(installed / "bin/topics"), str(link), "topics"), 1):
        path = f"{installed / 'bin'}:/usr/bin:/bin"
        done = subprocess.run(
            [program, "write", "from-a-wheel", f"hi {number}"],
            cwd=tmp_path,
            env=environment | {"PATH": path},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, f"from-a-wheel {number}-{number}\n", "")


def test_the_script_falls_through_to_the_full_program(installed: Path) -> None:
    done = _run(installed / "bin/topics", "tail", "--help", PATH="/usr/bin:/bin")
    assert done.returncode == 0, done.stderr
    assert "--follow" in done.stdout
    wrong = _run(installed / "bin/topics", "tial", PATH="/usr/bin:/bin")
    assert wrong.returncode == 2
    assert "did you mean tail?" in wrong.stderr


def test_the_daemon_of_the_wheel_says_its_version(installed: Path) -> None:
    done = _run(installed / "bin/topicsd", "--version", PATH="/usr/bin:/bin")
    assert done.returncode == 0, done.stderr
