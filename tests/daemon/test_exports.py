"""Export pins: a consistent set of files that nothing that happens later changes; listed, renewed, expired, removed."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.clock import OsClock
from engine.core import Inspection
from engine.formats.export import ExportManifest
from engine.formats.header import FILE_HEADER_LEN
from engine.formats.manifest import decode_meta
from engine.tools.finding import Finding
from engine.tools.fsck import Fsck
from engine.tools.readonly import ReadOnlyFs
from tests.daemon.kit import Answer, DaemonProcess, clean_environment, daemon_process, request, serving, start

pytestmark = pytest.mark.slow


@pytest.fixture
def daemon() -> Iterator[DaemonProcess]:
    with daemon_process(environ=clean_environment()) as process:
        write(process, "orders", 30)
        write(process, "audit", 5)
        ask(process, "POST", "/v0/topics/orders/delete", {"seqs": [3, 4]})
        yield process


def ask(daemon: DaemonProcess, method: str, path: str, body: dict[str, Any] | None = None) -> Answer:
    return daemon.ask(request(method, path, body))


def write(daemon: DaemonProcess, topic: str, count: int) -> None:
    answer = ask(daemon, "POST", f"/v0/topics/{topic}", {"records": [{"data": n, "tag": "t"} for n in range(count)]})
    assert answer.status in (200, 201)


def pin(daemon: DaemonProcess, body: dict[str, Any] | None = None) -> dict[str, object]:
    answer = ask(daemon, "POST", "/v0/admin/exports", body)
    assert answer.status == 201, answer
    found: dict[str, object] = answer.json
    return found


def manifest(export: dict[str, object]) -> ExportManifest:
    return decode_meta((Path(str(export["path"])) / "manifest.json").read_bytes(), ExportManifest)


def test_a_data_directory_whose_name_is_no_text_has_exports_too(tmp_path: Path) -> None:
    """The name was put into an answer that could not hold it: an export ended the daemon."""
    directory = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    directory.mkdir()
    with serving(directory, environ=clean_environment()) as daemon:
        daemon.write("t", 1)
        export = pin(daemon)
        assert export["path"] == str(tmp_path) + f"/\\xff/data/exports/{export['id']}"
        assert ask(daemon, "GET", "/v0/admin/exports").json["exports"] == [
            {name: value for name, value in export.items() if name != "performance"}
        ]
        assert (directory / "data" / "exports" / str(export["id"]) / "manifest.json").exists()


def counts(export: dict[str, object]) -> dict[str, int]:
    fs = ReadOnlyFs(str(export["path"]))
    found: list[Finding] = []
    summary = Fsck(fs, OsClock(), found.append, lambda *_: None).run()
    assert (found, summary.verdict) == ([], "start")
    inspection = Inspection(fs, OsClock())
    states, _ = inspection.list_topics("", 1000, "")
    inspection.close()
    fs.shut()
    return {state.topic: state.count for state in states}


def test_a_pin_is_a_store_as_of_its_moment(daemon: DaemonProcess) -> None:
    export = pin(daemon)
    assert counts(export) == {"orders": 28, "audit": 5}
    write(daemon, "orders", 10)
    ask(daemon, "DELETE", "/v0/topics/audit")
    for _ in range(3):
        assert ask(daemon, "POST", "/v0/admin/checkpoint").status == 200
    assert counts(export) == {"orders": 28, "audit": 5}
    assert counts(pin(daemon)) == {"orders": 38}


def test_the_manifest_is_enough_to_read_every_live_record(daemon: DaemonProcess) -> None:
    export = pin(daemon, {"topics": ["orders"]})
    found = manifest(export)
    [topic] = found.topics
    assert (topic.name, topic.head_seq, topic.count, topic.deleted) == ("orders", 30, 28, [(3, 4)])
    assert sum(piece.live for piece in topic.pieces) == topic.count
    root = Path(str(export["path"]))
    for piece in topic.pieces:
        data = (root / piece.data).read_bytes()[piece.data_offset :][: piece.data_bytes]
        assert data.startswith(b'{"$seq":%d,' % piece.first_seq)
        assert piece.data_offset >= FILE_HEADER_LEN
        info = (root / piece.index).read_bytes()[piece.index_offset :][:64]
        assert info[56:64][::-1].hex() == piece.check
    listed = {file.path: file.bytes for file in found.files}
    there = {str(path.relative_to(root)): path.stat().st_size for path in root.rglob("*") if path.is_file()}
    assert listed == {path: size for path, size in there.items() if path != "manifest.json"}


def test_pins_are_chosen_listed_renewed_and_deleted(daemon: DaemonProcess) -> None:
    export = pin(daemon, {"prefix": "au", "ttl_ms": 60_000})
    assert counts(export) == {"audit": 5}
    assert [one["id"] for one in ask(daemon, "GET", "/v0/admin/exports").json["exports"]] == [export["id"]]
    renewed = ask(daemon, "POST", "/v0/admin/exports", {"id": export["id"], "ttl_ms": 120_000}).json
    assert int(renewed["expires_ms"]) > int(str(export["expires_ms"]))
    assert ask(daemon, "DELETE", f"/v0/admin/exports/{export['id']}").json["deleted"] is True
    assert ask(daemon, "DELETE", f"/v0/admin/exports/{export['id']}").json["deleted"] is False
    assert ask(daemon, "GET", "/v0/admin/exports").json["exports"] == []
    assert ask(daemon, "POST", "/v0/admin/exports", {"topics": ["nobody"]}).status == 404
    assert ask(daemon, "POST", "/v0/admin/exports", {"id": "0" * 16}).status == 404
    gone_by(Path(str(export["path"])))


def test_the_list_of_pins_is_paged_by_id(daemon: DaemonProcess) -> None:
    made = sorted(ask(daemon, "POST", "/v0/admin/exports", {}).json["id"] for _ in range(3))
    seen: list[str] = []
    path = "/v0/admin/exports?page_size=1"
    for number in range(3):
        page = ask(daemon, "GET", path).json
        seen += [one["id"] for one in page["exports"]]
        assert ("next_cursor" in page) == (number < 2)
        path = f"/v0/admin/exports?page_size=1&cursor={page.get('next_cursor')}"
    assert seen == made
    assert ask(daemon, "GET", "/v0/admin/exports?cursor=%20").status == 400
    assert ask(daemon, "GET", "/v0/admin/exports?page_size=x").status == 400
    for export_id in made:
        ask(daemon, "DELETE", f"/v0/admin/exports/{export_id}")


def test_a_pin_expires(daemon: DaemonProcess) -> None:
    export = pin(daemon, {"ttl_ms": 1})
    gone_by(Path(str(export["path"])))
    assert ask(daemon, "GET", "/v0/admin/exports").json["exports"] == []


def test_a_start_removes_what_an_earlier_process_left(tmp_path: Path) -> None:
    first = start(tmp_path, environ=clean_environment())
    stray = Path(str(pin(first)["path"]))
    other = stray.parent / "not-ours"
    other.mkdir()
    first.process.kill()
    first.process.wait()
    again = start(tmp_path, environ=clean_environment())
    gone_by(stray)
    assert other.exists()
    assert again.stop() == 0


def gone_by(path: Path) -> None:
    over = time.monotonic() + 10
    while path.exists():
        assert time.monotonic() < over, list(path.rglob("*"))
        time.sleep(0.05)
