"""`topics wal-inspect`, `topics segment-inspect`: single files, healthy, damaged or foreign; no daemon is needed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from topics_cli import exits
from topics_cli.exits import Failure
from topics_cli.findings import Sheet
from topics_cli.progress import Progress
from topics_cli.session import Session
from topics_cli.times import show_time

if TYPE_CHECKING:
    from engine.tools.finding import FileReport
    from engine.tools.log_file import LogFrame, LogScan
    from engine.tools.readonly import ReadOnlyFs
    from engine.tools.segment_file import FileLook

HEADER_BYTES = 80
"""Of a frame, what `--hex` shows without `--payload`."""
HEX_BYTES_MAX = 4096
"""Of one frame or damaged place, what `--hex` shows."""


def wal_inspect(session: Session, values: dict[str, Any]) -> int:
    """Show log files; 4 when one is damaged."""
    from engine.tools.log_file import LogScan

    sheet = Sheet(session)
    damage = others = 0
    for path in values["file"]:
        fs, name = _opened(path)
        try:
            scan = LogScan(fs, name, label=path)
            try:
                report = _scanned(sheet, scan, path, values)
            finally:
                scan.close()
        except OSError as error:
            raise Failure(f"{path} cannot be read: {error.strerror}", "unreadable", "", exits.FAILED) from error
        finally:
            fs.shut()
        sheet.report(report)
        if values["hex"]:
            for place in scan.bad:
                _hex(
                    sheet,
                    path,
                    place.offset,
                    place.length if values["payload"] else HEADER_BYTES if place.header else 0,
                )
        damage += sum(finding.severity == "damage" for finding in report.findings)
        others += sum(finding.severity != "damage" for finding in report.findings)
    return sheet.end(damage, others)


def segment_inspect(session: Session, values: dict[str, Any]) -> int:
    """Show files of checkpoints; 4 when one is damaged."""
    from engine.tools.segment_file import FileLook, Relocated

    sheet = Sheet(session)
    damage = others = 0
    for path in values["file"]:
        _check_is_file(path)
        real = os.path.realpath(path)
        fs = Relocated(os.path.dirname(real))
        progress = Progress(session, path)
        try:
            look = FileLook(fs, os.path.basename(real), path, progress.heard)
            report = look.report()
            progress.end()
            if values["records"] or values["at"] is not None:
                _show_rows(sheet, look, values)
        except OSError as error:
            raise Failure(f"{path} cannot be read: {error.strerror}", "unreadable", "", exits.FAILED) from error
        finally:
            progress.end()
            fs.shut()
        sheet.report(report)
        damage += sum(finding.severity == "damage" for finding in report.findings)
        others += sum(finding.severity != "damage" for finding in report.findings)
    return sheet.end(damage, others)


def _show_rows(sheet: Sheet, look: FileLook, values: dict[str, Any]) -> None:
    from engine.tools.segment_file import records_of

    for segment in look.pieces:
        for record in records_of(look, segment):
            if not _is_wanted(record.seq, values):
                continue
            text = record.fragment.decode("utf-8", "replace")
            if sheet.is_data:
                known = {"topic_id": f"{segment.topic_id:x}", "seq": record.seq, "ts": record.ts}
                size = {"offset": record.offset, "bytes": len(record.fragment)}
                sheet.put(
                    "record", {"file": look.label, **known, **size, **({"record": text} if values["payload"] else {})}
                )
            else:
                shown = record.fragment.decode("utf-8", "backslashreplace") if values["payload"] else "(payload hidden)"
                cells = (str(record.offset), f"#{segment.topic_id:x}", f"seq {record.seq}", show_time(record.ts))
                sheet.session.out.line("\t".join((*cells, f"{len(record.fragment)} bytes", shown)))


def _check_is_file(path: str) -> None:
    if not os.path.isfile(path):
        what = "is a directory" if os.path.isdir(path) else "is not there" if not os.path.exists(path) else "is no file"
        hint = "give the files in it; `topics fsck DIR` checks a whole store" if what == "is a directory" else ""
        raise Failure(f"{path} {what}", "not_found", hint, exits.FAILED)


def _opened(path: str) -> tuple[ReadOnlyFs, str]:
    """The directory of a file, to be read only, and the file's name."""
    from engine.tools.readonly import ReadOnlyFs

    _check_is_file(path)
    try:
        return ReadOnlyFs(os.path.dirname(os.path.realpath(path))), os.path.basename(os.path.realpath(path))
    except OSError as error:
        raise Failure(f"{path} cannot be read: {error.strerror}", "unreadable", "", exits.FAILED) from error


def _scanned(sheet: Sheet, scan: LogScan, path: str, values: dict[str, Any]) -> FileReport:
    """Read a file through, showing what was asked for on the way."""
    wants = values["records"] or values["at"] is not None
    progress = Progress(sheet.session, path)
    for frame in scan.items():
        progress.heard(scan.done / max(scan.size, 1))
        if wants:
            _show_frame(sheet, scan, frame, values)
    progress.end()
    return scan.report()


def _show_frame(sheet: Sheet, scan: LogScan, frame: LogFrame, values: dict[str, Any]) -> None:
    from engine.tools.log_file import describe, records_of, type_name

    header = frame.header
    records = [record for record in records_of(frame) if _is_wanted(record.seq, values)]
    if (values["at"] is not None or values["from_seq"] is not None or values["to_seq"] is not None) and not records:
        return
    if sheet.is_data:
        sheet.put(
            "frame",
            {
                "file": scan.label,
                "offset": frame.offset,
                "length": frame.length,
                "frame": type_name(header.type),
                "topic_id": f"{header.topic_id:x}",
                "lsn": header.lsn,
                "order": header.order,
                "ts": header.ts,
                "body": None if records or header.records else describe(frame),
                "records": [
                    {
                        "seq": record.seq,
                        "offset": record.offset,
                        "bytes": len(record.fragment),
                        **({"record": record.fragment.decode("utf-8", "replace")} if values["payload"] else {}),
                    }
                    for record in records
                ],
            },
        )
        return
    sheet.session.out.line(
        "\t".join(
            (
                str(frame.offset),
                type_name(header.type),
                f"#{header.topic_id:x}",
                show_time(header.ts),
                describe(frame),
            )
        )
    )
    for record in records:
        payload = record.fragment.decode("utf-8", "backslashreplace") if values["payload"] else "(payload hidden)"
        sheet.session.out.line(f"  {record.offset}\tseq {record.seq}\t{len(record.fragment)} bytes\t{payload}")


def _is_wanted(seq: int, values: dict[str, Any]) -> bool:
    if values["at"] is not None and seq != values["at"]:
        return False
    first, last = values["from_seq"], values["to_seq"]
    return (first is None or seq >= first) and (last is None or seq <= last)


def _hex(sheet: Sheet, path: str, offset: int, length: int) -> None:
    """The bytes of a place, sixteen a line."""
    with open(path, "rb") as file:
        file.seek(offset)
        data = file.read(min(length, HEX_BYTES_MAX))
    if not data:
        return
    if sheet.is_data:
        sheet.put("hex", {"file": path, "offset": offset, "hex": data.hex()})
        return
    for at in range(0, len(data), 16):
        row = data[at : at + 16]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        sheet.session.out.line(f"{offset + at:010x}  {row.hex(' ', 1):<47}  {text}")
    if length > len(data):
        sheet.session.out.line(f"({length - len(data)} more bytes)")
