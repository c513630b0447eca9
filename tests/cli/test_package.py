"""The wheel: built from the sources, installed, and what it brings is where shells, `man` and systemd look."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
from pathlib import Path

import pytest

from tests.cli.support import ROOT, Daemon
from tests.scan.fuzz import compiler
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


def test_the_wheel_holds_what_was_compiled_and_is_as_good_without(installed: Path, tmp_path: Path) -> None:
    """With a compiler it is used; with none there is another wheel, without a question, and it does the same."""
    ask = (
        "from engine import scan; from topics_daemon import straight; import engine.core, topics_daemon.daemon; "
        "print(scan.is_compiled(), straight.is_built())"
    )
    found = _run(installed / "bin/python3", "-c", ask)
    assert (found.stdout, found.stderr) == ("True True\n" if compiler() is None else "False False\n", "")
    source = installed.parent / "source"
    build = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "wheel", "--no-deps"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"CC": "/bin/false"}
    shutil.rmtree(source / "build", ignore_errors=True)
    done = subprocess.run(
        [*build, "--no-build-isolation", "-w", str(tmp_path), str(source)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    (wheel,) = tmp_path.glob("*.whl")
    shutil.unpack_archive(wheel, tmp_path / "there", "zip")
    assert not list(tmp_path.rglob("*.so"))
    bare = {"PYTHONPATH": f"{tmp_path / 'there'}{os.pathsep}{sysconfig.get_path('purelib')}"}
    found = _run(sys.executable, "-S", "-c", ask, **bare)
    assert (found.stdout, found.stderr) == ("False False\n", "")


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


def _bundle(installed: Path) -> Path:
    (package,) = installed.glob("lib/*/site-packages/topics_cli")
    return package / "__pycache__" / f"quick.{sys.implementation.cache_tag}.bin"


def _modules(installed: Path, shared: Daemon, *words: str) -> tuple[int, dict[str, str]]:
    """Run the script by hand in its way; its exit status, and which loader every module of ours came from."""
    script = (
        "import sys, posix; posix._exit = lambda code: (print({name: type(module.__spec__.loader).__name__ for name, "
        "module in sys.modules.items() if name.startswith('topics_cli.')}), sys.exit(code)); "
        f"sys.argv = {[str(installed / 'bin/topics'), *words]!r}; exec(compile(open(sys.argv[0]).read(), 'x', 'exec'))"
    )
    done = subprocess.run(
        [installed / "bin/python3", "-I", "-S", "-c", script],
        env={"TOPICS_SOCKET": shared.socket},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert not done.stderr, done
    found: dict[str, str] = ast.literal_eval(done.stdout.splitlines()[-1])
    return done.returncode, found


def test_quick_commands_get_all_their_modules_out_of_one_file(installed: Path, shared: Daemon) -> None:
    shared.ok("write", "bundled", "x")
    assert _run(installed / "bin/topics", "get", "bundled", "1", TOPICS_SOCKET=shared.socket).returncode == 0
    assert _bundle(installed).is_file()
    for words in (["get", "bundled", "1"], ["tail", "bundled"], ["write", "bundled", "y"], ["diff", "bundled"]):
        code, found = _modules(installed, shared, *words)
        assert code == 0
        assert set(found.values()) == {"Bundle"}, found
    assert _run(installed / "bin/topics", "get", "bundled", "99", TOPICS_SOCKET=shared.socket).returncode == 3


def test_a_module_that_changed_is_imported_as_usual_and_the_file_made_anew(installed: Path, shared: Daemon) -> None:
    shared.ok("write", "bundled", "x")
    _run(installed / "bin/topics", "get", "bundled", "1", TOPICS_SOCKET=shared.socket)
    (source,) = installed.glob("lib/*/site-packages/topics_cli/commands/get.py")
    text = source.read_text()
    try:
        source.write_text(text.replace("    code = exits.DONE", "    code = 9"))
        for loader in ("SourceFileLoader", "Bundle"):
            code, found = _modules(installed, shared, "get", "bundled", "1")
            assert (code, found["topics_cli.commands.get"]) == (9, loader)
    finally:
        source.write_text(text)


@pytest.mark.parametrize("damage", ["empty", "cut", "foreign", "old", "directory"])
def test_a_file_that_is_none_costs_time_and_nothing_else(installed: Path, shared: Daemon, damage: str) -> None:
    shared.ok("write", "bundled", "x")
    program, path = installed / "bin/topics", _bundle(installed)
    _run(program, "get", "bundled", "1", TOPICS_SOCKET=shared.socket)
    data = path.read_bytes()
    if damage == "directory":
        path.unlink()
        path.mkdir()
    else:
        other = data.replace(sys.version.encode(), b"?" * len(sys.version))
        path.write_bytes({"empty": b"", "cut": data[:100], "foreign": b"\x80no", "old": other}[damage])
    try:
        done = _run(program, "get", "bundled", "1", "--raw", TOPICS_SOCKET=shared.socket)
        assert (done.returncode, done.stdout, done.stderr) == (0, '"x"\n', "")
        if damage != "directory":
            assert path.read_bytes() == data
    finally:
        if path.is_dir():
            path.rmdir()
        assert not list(path.parent.glob("quick.*.bin.*"))


def test_a_source_distribution_holds_the_whole_repository(tmp_path: Path) -> None:
    for path in tracked():
        target = tmp_path / "source" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, target)
    script = f"import setuptools.build_meta as it; it.build_sdist({str(tmp_path)!r})"
    subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path / "source", check=True, capture_output=True, timeout=120
    )
    (built,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(built) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    assert {str(path) for path in tracked()} <= held
