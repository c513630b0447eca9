"""The report of a run: one HTML file that needs nothing else, no network and no script.

On top the verdict and the figures that one looks for first; then what was reconciled, question by question; then how it
went, as charts; then everything that it was made from. It follows the reader's choice of light or dark, and fits a
telephone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from html import escape
from itertools import pairwise
from typing import Any, Final

from topics_cli.harness.charts import Line, chart
from topics_cli.harness.scenario import WORK, Scenario

Sample = dict[str, Any]

MARKED: Final = ("killed", "stopped", "started again")
"""Events that charts show."""
STYLE: Final = """
:root{color-scheme:light dark;--ground:#fff;--ink:#1b1f24;--quiet:#5c6670;--rule:#dfe3e8;--card:#f5f7f9;
--c1:#2668c5;--c2:#d2620f;--c3:#188a6b;--c4:#8a4fc9;--c5:#b3307a;--c6:#7a6a00;--good:#157347;--bad:#b42318;
--good-ground:#e6f4ec;--bad-ground:#fdebe9}
@media(prefers-color-scheme:dark){:root{--ground:#14171a;--ink:#e6e9ec;--quiet:#9aa4ae;--rule:#30363c;--card:#1c2125;
--c1:#6ea8ff;--c2:#ff9a4d;--c3:#4fd0a8;--c4:#c39bff;--c5:#ff86c0;--c6:#d9c64a;--good:#5fd39a;--bad:#ff8f85;
--good-ground:#12301f;--bad-ground:#3a1714}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1320px;padding:20px 16px 48px;background:var(--ground);color:var(--ink);
font:15px/1.45 system-ui,"Segoe UI",Roboto,"Noto Sans",sans-serif}
h1{font-size:1.5rem;margin:0}h2{font-size:1.1rem;margin:36px 0 10px}h3{font-size:.92rem;margin:0 0 4px}
small,.quiet,dt{color:var(--quiet);font-weight:400}p{margin:4px 0}
.verdict{margin:14px 0;padding:12px 14px;border-left:5px solid;border-radius:4px;font-size:1.05rem}
.verdict.good{background:var(--good-ground);border-color:var(--good)}
.verdict.bad{background:var(--bad-ground);border-color:var(--bad)}
.verdict ul{margin:6px 0 0;padding-left:20px;font-size:.95rem}
.cards{display:grid;grid-template-columns:repeat(4,1fr);gap:10px;margin:14px 0 0}
.cards div{background:var(--card);border-radius:6px;padding:10px 12px}.cards dt{font-size:.82rem}
.cards dd{margin:2px 0 0;font-size:1.25rem;font-variant-numeric:tabular-nums}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(340px,100%),1fr));gap:22px 20px}
figure{margin:0;min-width:0}svg{display:block;width:100%;height:auto;overflow:visible}
.grid{stroke:var(--rule);stroke-width:1;fill:none}.axis{fill:var(--quiet);font-size:12px}
.mark{stroke:var(--bad);stroke-width:1.5;stroke-dasharray:3 3;fill:none}
.line{fill:none;stroke-width:2;stroke-linejoin:round}.dashed{stroke-dasharray:5 3}
.s1{stroke:var(--c1)}.s2{stroke:var(--c2)}.s3{stroke:var(--c3)}.s4{stroke:var(--c4)}.s5{stroke:var(--c5)}
.s6{stroke:var(--c6)}.dot{fill:var(--ground);stroke-width:2}
.column{fill:transparent}.column:hover{fill:var(--ink);fill-opacity:.07}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:2px 14px;margin:4px 0 0;padding:0 0 0 6px;font-size:.85rem}
.legend i{display:inline-block;width:14px;height:0;border-top:3px solid;margin-right:6px;vertical-align:middle}
.legend i.dashed{border-top-style:dashed}
.k1{color:var(--c1)}.k2{color:var(--c2)}.k3{color:var(--c3)}.k4{color:var(--c4)}.k5{color:var(--c5)}.k6{color:var(--c6)}
.wide{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:.9rem}
th,td{text-align:left;padding:5px 12px 5px 0;border-bottom:1px solid var(--rule);vertical-align:top}
th{color:var(--quiet);font-weight:500}td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
td.mark-good,td.mark-bad{white-space:nowrap;font-weight:600}
.mark-good{color:var(--good)}.mark-bad{color:var(--bad)}td.said{overflow-wrap:anywhere}
pre{background:var(--card);padding:12px;border-radius:6px;overflow-x:auto;font-size:.82rem}
details{margin:10px 0}summary{cursor:pointer}.none{color:var(--quiet)}
@media(max-width:560px){.checks thead{display:none}.checks tr{display:block;padding:7px 0;border-bottom:1px solid
var(--rule)}.checks td{display:inline;border:0;padding:0 8px 0 0}.checks td.said{display:block}
.cards{grid-template-columns:1fr 1fr}}
"""


def page(scenario: Scenario, summary: dict[str, Any], samples: list[Sample], events: list[dict[str, Any]]) -> str:
    """The whole file."""
    is_good = summary["verdict"] == "reconciled"
    environment = summary["environment"]
    facts = (
        f"{environment['begun']} · topics {environment['daemon']} {environment['daemon_is']}, {environment['way']} · "
        f"{environment['cpus']} cores, {environment['memory_gib']} GiB"
    )
    about = f"<p>{escape(scenario.about)}</p>" if scenario.about else ""
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        '<meta name=viewport content="width=device-width,initial-scale=1">',
        f"<title>{escape(scenario.name)}: {summary['verdict']}</title><style>{STYLE}</style>",
        f"<h1>{escape(scenario.name)}</h1>{about}<p class=quiet>{escape(facts)}</p>",
        _verdict(summary, is_good),
        _cards(scenario, summary, samples),
        "<h2>What was reconciled</h2>",
        _checks(summary["checks"]),
        "<h2>How it went</h2>",
        f"<div class=charts>{''.join(_charts(scenario, samples, events))}</div>",
        _events(events),
        "<h2>Who did what</h2>",
        _groups(summary["groups"]),
        "<h2>What it was made from</h2>",
        _pairs(environment),
        "<details><summary>The scenario, every default filled in</summary>",
        f"<pre>{escape(json.dumps(scenario.as_object(), indent=1, ensure_ascii=False))}</pre></details>",
        (
            "<p class=quiet>Beside this file: summary.json, samples.ndjson (every sample, all metrics of the daemon), "
            "ledger/ (what each client sent and read), scenario.toml, resolved.json, environment.json.</p></html>"
        ),
    ]
    return "\n".join(part for part in parts if part) + "\n"


def _verdict(summary: dict[str, Any], is_good: bool) -> str:
    ended = " The run was ended early by a signal." if summary["interrupted"] else ""
    if is_good:
        said = "✓ Reconciled: what clients sent and read is what the daemon holds and counts."
        return f"<div class='verdict good'>{said}{ended}</div>"
    wrong = [check for check in summary["checks"] if not check["is_good"]]
    items = "".join(f"<li>{escape(check['subject'])}: {escape(check['said'])}</li>" for check in wrong)
    return f"<div class='verdict bad'>✗ It does not add up.{ended}<ul>{items}</ul></div>"


def _cards(scenario: Scenario, summary: dict[str, Any], samples: list[Sample]) -> str:
    groups = summary["groups"].values()
    written = sum(group["records"] for group in groups if group["kind"] == "producer")
    read = sum(group["records"] for group in groups if group["kind"] == "reader")
    slowest = max((group["latency_ms"]["p99"] for group in groups if group["kind"] == "producer"), default=0.0)
    cpu_s = _rise(samples, "process_cpu_seconds_total")
    resident = [sample["server"].get("process_resident_memory_bytes", 0.0) for sample in samples if sample["server"]]
    cards = [
        ("written", f"{written:,} records"),
        ("a second", f"{written / scenario.duration_s:,.0f} records"),
        ("read", f"{read:,} records"),
        ("write p99", f"{slowest:,.1f} ms"),
        ("daemon's CPU", f"{cpu_s:,.1f} s"),
        ("CPU a record moved", f"{cpu_s / max(1, written + read) * 1e6:,.1f} µs"),
        ("resident at most", f"{max(resident, default=0) / 1e6:,.0f} MB"),
        ("restarts", str(summary["restarts"])),
    ]
    return (
        "<dl class=cards>" + "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in cards) + "</dl>"
    )


def _checks(checks: list[dict[str, Any]]) -> str:
    ended = [check for check in checks if check["question"] == "whole"]
    if all(check["is_good"] for check in ended):
        said = f"all {len(ended)} ledgers have their end"
        checks = [
            {"subject": "every client", "question": "whole", "is_good": True, "said": said},
            *checks[len(ended) :],
        ]
    rows = "".join(
        f"<tr><td class=mark-{'good' if check['is_good'] else 'bad'}>{'✓' if check['is_good'] else '✗'}</td>"
        f"<td>{escape(check['subject'])}</td><td class=quiet>{escape(check['question'])}</td>"
        f"<td class=said>{escape(check['said'])}</td></tr>"
        for check in sorted(checks, key=lambda check: bool(check["is_good"]))
    )
    head = "<thead><tr><th></th><th>of</th><th>question</th><th>answer</th></tr></thead>"
    return f"<div class=wide><table class=checks>{head}<tbody>{rows}</tbody></table></div>"


def _charts(scenario: Scenario, samples: list[Sample], events: list[dict[str, Any]]) -> list[str]:
    if not samples:
        return ["<p class=none>The run was too short for a sample.</p>"]
    if len(samples) > 2 and samples[-1]["t"] - samples[-2]["t"] < scenario.sample_s / 2:
        samples = samples[:-1]  # Rates over so short a time say nothing; what it counts is in the sums.
    xs = [float(sample["t"]) for sample in samples]
    spans = [xs[0], *(after - before for before, after in pairwise(xs))]
    marks = [(event["t"], event["event"]) for event in events if event["event"] in MARKED]
    producers = [producer.name for producer in scenario.producers]
    readers = [reader.name for reader in scenario.readers]
    followers = [reader.name for reader in scenario.readers if reader.kind != WORK]

    def rate(name: str, part: str, factor: float = 1.0) -> list[float | None]:
        return [
            sample["groups"][name][part] * factor / max(span, 0.001)
            for sample, span in zip(samples, spans, strict=True)
        ]

    def latency(name: str, part: str) -> list[float | None]:
        return [sample["groups"][name][part] if sample["groups"][name]["requests"] else None for sample in samples]

    def lag(name: str) -> list[float | None]:
        return [
            sample["groups"][name].get("delay_ms") if sample["groups"][name]["records"] else None for sample in samples
        ]

    def plot(title: str, unit: str, lines: Sequence[Line]) -> str:
        return chart(title, unit, xs, lines, marks=marks)

    found = [
        plot("Written", "records/s", [(name, rate(name, "records")) for name in producers]),
        plot("Write latency, p99", "ms", [(name, latency(name, "p99")) for name in producers]),
    ]
    if readers:
        found.append(plot("Read or done", "records/s", [(name, rate(name, "records")) for name in readers]))
    if followers:
        found.append(plot("From written to read", "ms", [(name, lag(name)) for name in followers]))
    trouble = [(said, _all(samples, part)) for said, part in (("refused", "refused"), ("connections lost", "lost"))]
    if any(any(line) for _, line in trouble):
        found.append(plot("Requests sent again", "a sample", trouble))
    server = _server(samples, spans)
    found += [
        plot(
            "CPU",
            "% of a core",
            [("daemon", server("process_cpu_seconds_total", 100)), ("clients", _cpu(samples, spans))],
        ),
        plot(
            "Resident memory of the daemon", "MB", [("daemon", _gauge(samples, "process_resident_memory_bytes", 1e-6))]
        ),
        plot("The daemon's log", "MB/s", [("log", server("topics_wal_bytes_total", 1e-6))]),
        plot("Syncs of the log", "a second", [("syncs", server("topics_wal_syncs_total", 1))]),
        plot("Pressure", "0 to 1", [("pressure", _gauge(samples, "topics_pressure", 1))]),
    ]
    return found


def _server(samples: list[Sample], spans: list[float]) -> Callable[[str, float], list[float | None]]:
    """Rates of the daemon's counters; none across a restart or while it was away."""

    def rates(name: str, factor: float) -> list[float | None]:
        found: list[float | None] = [None]
        for (before, after), span in zip(pairwise(samples), spans[1:], strict=True):
            pair = before["server"] and before["server"].get(name), after["server"] and after["server"].get(name)
            rose = None if pair[0] is None or pair[1] is None else pair[1] - pair[0]
            found.append(None if rose is None or rose < 0 else rose * factor / max(span, 0.001))
        return found

    return rates


def _gauge(samples: list[Sample], name: str, factor: float) -> list[float | None]:
    return [None if not sample["server"] else sample["server"].get(name, 0.0) * factor for sample in samples]


def _all(samples: list[Sample], part: str) -> list[float | None]:
    return [float(sum(group[part] for group in sample["groups"].values())) for sample in samples]


def _cpu(samples: list[Sample], spans: list[float]) -> list[float | None]:
    used = [sample["clients"]["cpu_s"] for sample in samples]
    pairs = zip(pairwise(used), spans[1:], strict=True)
    return [None, *(max(0.0, after - before) * 100 / max(span, 0.001) for (before, after), span in pairs)]


def _rise(samples: list[Sample], name: str) -> float:
    """How far a counter of the daemon rose over all samples; one that was started again counts from 0."""
    total, before = 0.0, None
    for sample in samples:
        if sample["server"] and name in sample["server"]:
            value = float(sample["server"][name])
            total += value if before is None or value < before else value - before
            before = value
    return total


def _events(events: list[dict[str, Any]]) -> str:
    rows = "".join(f"<tr><td class=n>{event['t']:.1f} s</td><td>{escape(event['event'])}</td></tr>" for event in events)
    return f"<details open><summary>Events</summary><table>{rows}</table></details>" if events else ""


def _groups(groups: dict[str, dict[str, Any]]) -> str:
    names = ("records", "requests", "bytes", "refused", "lost")
    head = "<th>who</th><th>as</th>" + "".join(f"<th class=n>{name}</th>" for name in names)
    head += "".join(f"<th class=n>{name} ms</th>" for name in ("p50", "p90", "p99", "p99.9", "max"))
    rows = []
    for name, group in groups.items():
        cells = "".join(f"<td class=n>{group[part]:,}</td>" for part in names)
        took = group["latency_ms"]
        cells += "".join(f"<td class=n>{took[part]:,.2f}</td>" for part in ("p50", "p90", "p99", "p999", "max"))
        rows.append(f"<tr><td>{escape(name)}</td><td class=quiet>{group['kind']}</td>{cells}</tr>")
    note = (
        "<p class=quiet>Latency of producers is from when a request was due (or sent) to its answer; of readers from "
        "the daemon's time stamp to here; of workers from asking for jobs to the answer of their ack.</p>"
    )
    return f"<div class=wide><table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>{note}"


def _pairs(values: dict[str, Any]) -> str:
    rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(str(value))}</td></tr>" for name, value in values.items())
    return f"<div class=wide><table>{rows}</table></div>"
