"""A run of a scenario, from an empty directory to a report.

    topics are made → processes write and read, faults are done, samples are taken → producers end, the daemon is up
    again, readers read on to the heads → everything that is there is read once more → reconciled → summary, report

Whatever happens on the way, what is known by then is written down: a daemon that is killed is part of the plan, a
signal ends the load early, and a process that fails is one of the findings. The topics are dropped afterwards, and a
daemon of ours is stopped and its data removed; if something does not add up, both stay, for they are the evidence.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from array import array
from functools import partial
from pathlib import Path
from typing import Any, Final

from topics_cli import exits
from topics_cli.client import Client, topic_path
from topics_cli.cut import bare_data, seq_of
from topics_cli.exits import Failure, Stopped
from topics_cli.forked import Crew
from topics_cli.harness import ledger, samples
from topics_cli.harness.clients import GRACE_S, ProducerProcess, ReaderProcess, whole_topic
from topics_cli.harness.daemon import Daemon
from topics_cli.harness.payloads import check_of, payloads
from topics_cli.harness.reconcile import ASKED_FOR, Check, Evidence, reconcile, whole, written_by_metrics
from topics_cli.harness.scenario import WORK, Reader, Scenario
from topics_cli.loaded import Endpoint, Seen
from topics_cli.runner import Reports
from topics_cli.session import Session
from topics_cli.signals import POLLIN, Stop

TICK_S: Final = 0.05
LOOK_S: Final = 0.2
"""How often queues are looked at while they are drained."""
SLACK_S: Final = 3.0
"""How long processes may take beyond their own grace."""


class Run:
    """One run."""

    def __init__(self, session: Session, scenario: Scenario, path: str, run: Path, port: int | None) -> None:
        self._session = session
        self._scenario = scenario
        self.directory = run
        self._prefix = f"{scenario.name}-{os.urandom(4).hex()}-"
        self.totals = {name: Seen(name) for name in scenario.groups()}
        self._endpoint = Endpoint(port, list(self.totals.values())) if port is not None else None
        self._windows = {name: Seen(name) for name in self.totals}
        self._more: dict[str, dict[str, Any]] = {}
        self._crew = Crew(session)
        self.events: list[dict[str, Any]] = []
        self.samples: list[dict[str, Any]] = []
        self.signum = 0
        shutil.copyfile(path, run / "scenario.toml")
        self._save("resolved.json", scenario.as_object())
        (run / ledger.DIRECTORY).mkdir()

    def go(self) -> dict[str, Any]:
        """Do it all; the summary, which is also written down with everything else."""
        session, scenario = self._session, self._scenario
        self._daemon = daemon = Daemon(session, scenario, self.directory)
        is_good = False
        made = False
        try:
            environment = samples.environment(daemon.client, scenario.daemon.start)
            self._save("environment.json", environment)
            for name, config in scenario.topics.items():
                body = json.dumps(config).encode()
                made = True
                daemon.client.call(daemon.client.request("PUT", topic_path(self._prefix + name), body))
            base = samples.server(daemon.client)
            self._load()
            checks = self._reconciled(base)
            is_good = all(check.is_good for check in checks)
            summary = self._summary(checks, environment)
            self._save("summary.json", summary)
        finally:
            self._crew.kill()
            session.talk.clear()
            if self._endpoint is not None:
                self._endpoint.server_close()
            if made and not scenario.daemon.start:
                self._drop(is_good)
            daemon.close(keep=not is_good)
        from topics_cli.harness.report import page

        (self.directory / "report.html").write_text(
            page(scenario, summary, self.samples, self.events), encoding="utf-8"
        )
        return summary

    # -- the load --------------------------------------------------------------------------------------------------

    def _load(self) -> None:
        scenario, crew = self._scenario, self._crew
        ends, end = os.pipe()
        begun = self._begun = time.monotonic()
        until = begun + scenario.duration_s
        for reader in scenario.readers:
            crew.start(reader.name, partial(self._reader, reader, ends, end))
        for place, producer in enumerate(scenario.producers):
            crew.start(producer.name, partial(self._producer, place, until))
        self._sample_at = begun + scenario.sample_s
        writing = {producer.name for producer in scenario.producers}
        with (self.directory / "samples.ndjson").open("w") as file:
            self._file = file
            self._sample(begun)
            try:
                self._go_on(until + GRACE_S + SLACK_S, lambda: bool(writing & crew.names()) and not crew.failure)
                if crew.failure is not None:
                    self._end_producers()
                self._note_all(self._daemon.heal())
                self._daemon.wait()
                self._event("the load is over")
                self._drain()
            finally:
                os.close(ends)
                os.close(end)
            self._go_on(time.monotonic() + GRACE_S + SLACK_S, lambda: crew.is_at_work)
            crew.kill()
            self._sample(time.monotonic())

    def _producer(self, place: int, until: float, stop: Stop, far: int) -> None:
        client = self._daemon.client.twin(stop)
        process = ProducerProcess(client, self._scenario, place, self._prefix, self.directory, until)
        process.run(Reports(far))

    def _reader(self, reader: Reader, ends: int, end: int, stop: Stop, far: int) -> None:
        os.close(end)
        process = ReaderProcess(self._daemon.client.twin(stop), reader, self._prefix, self.directory, ends)
        process.run(Reports(far, process.more))

    def _go_on(self, until: float, goes_on: Any) -> None:
        """Hear what processes report, do faults, take samples; until then, or there is no more to wait for."""
        stop, crew, endpoint = self._session.stop, self._crew, self._endpoint
        while goes_on() and time.monotonic() < until:
            if stop.signum:
                self._interrupted()
            watch = crew.watch + ([(endpoint.fileno(), POLLIN)] if endpoint is not None else [])
            ready = stop.wait(watch, TICK_S)
            if endpoint is not None and endpoint.fileno() in ready:
                endpoint.handle_request()
            for name, report in crew.take(ready):
                self._heard(name, report)
            now = time.monotonic()
            self._note_all(self._daemon.faults(now - self._begun))
            if now >= self._sample_at:
                self._sample(now)
                self._sample_at = max(self._sample_at + self._scenario.sample_s, now)
                self._progress(now)

    def _heard(self, name: str, report: dict[str, Any]) -> None:
        for seen in (self.totals[name], self._windows[name]):
            seen.take(report, 0)
        self.totals[name].seconds = time.monotonic() - self._begun
        if "at" in report:
            self._more[name] = {"at": report["at"], "delay_ms": report["delay_ms"]}

    def _interrupted(self) -> None:
        """A signal: producers end now, the rest follows in order; another one ends everything at once."""
        self.signum, self._session.stop.signum = self._session.stop.signum, 0
        self._event("ended by a signal")
        self._end_producers()

    def _end_producers(self) -> None:
        writing = {producer.name for producer in self._scenario.producers}
        for pid, name in self._crew.pids().items():
            if name in writing:
                os.kill(pid, signal.SIGTERM)

    def _drain(self) -> None:
        """Wait until readers have read what there is, and workers have done it, or had time enough."""
        client, scenario = self._daemon.client, self._scenario
        heads = {name: self._state(client, name)["head_seq"] for name in scenario.topics}
        looked_at = 0.0
        is_empty = False

        def behind() -> bool:
            nonlocal looked_at, is_empty
            if self._crew.failure is not None:
                return False
            for reader in scenario.readers:
                at = self._more.get(reader.name, {}).get("at", {})
                if reader.kind != WORK and any(at.get(topic, 0) < heads[topic] for topic in reader.topics):
                    return True
            if time.monotonic() >= looked_at:
                looked_at = time.monotonic() + LOOK_S
                worked = {topic for reader in scenario.readers if reader.kind == WORK for topic in reader.topics}
                is_empty = all(self._state(client, topic)["count"] == 0 for topic in worked)
            return not is_empty

        self._go_on(time.monotonic() + (scenario.drain_s if not self.signum else 1.0), behind)

    def _state(self, client: Client, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(client.get(topic_path(self._prefix + name) + "?touch=false").body)
        return found

    # -- what was seen ---------------------------------------------------------------------------------------------

    def _sample(self, now: float) -> None:
        pids = self._crew.pids()
        clients = [found for pid in pids if (found := samples.process_of(pid)) is not None]
        groups = {}
        for name, seen in self._windows.items():
            took = seen.milliseconds()
            counts = {part: getattr(seen, part) for part in ("requests", "records", "bytes", "refused", "lost")}
            groups[name] = counts | {part: took[part] for part in ("p50", "p99", "max")} | self._more.get(name, {})
        self._windows = {name: Seen(name) for name in self._windows}
        pid = self._daemon.pid
        sample = {
            "t": round(now - self._begun, 3),
            "groups": groups,
            "server": samples.server(self._daemon.client),
            "process": samples.process_of(pid) if pid is not None else None,
            "clients": {
                "cpu_s": sum(found["cpu_s"] for found in clients) + self._crew.cpu_s,
                "resident_bytes": sum(found["resident_bytes"] for found in clients),
            },
            "machine": samples.machine(),
        }
        self.samples.append(sample)
        self._file.write(json.dumps(sample, separators=(",", ":")) + "\n")
        self._file.flush()

    def _event(self, said: str) -> None:
        self.events.append({"t": round(time.monotonic() - self._begun, 3), "event": said})

    def _note_all(self, done: list[str]) -> None:
        for said in done:
            self._event(said)
            self._session.talk.note(f"topics: {self.events[-1]['t']:.1f} s: the daemon was {said}")

    def _progress(self, now: float) -> None:
        if self._session.talk.is_live:
            groups = self.samples[-1]["groups"]
            parts = [f"{name} {group['records'] / self._scenario.sample_s:,.0f}/s" for name, group in groups.items()]
            self._session.talk.progress(f"{self._scenario.name}  {now - self._begun:.0f} s  " + "  ".join(parts))

    # -- what adds up ----------------------------------------------------------------------------------------------

    def _reconciled(self, base: dict[str, float] | None) -> list[Check]:
        client, scenario, run = self._daemon.client, self._scenario, self.directory
        self._session.talk.progress("reconciling")
        final = samples.server(client)
        checks, sents = [], []
        if self._crew.failure is not None:
            checks.append(Check("the load", "whole", False, f"{self._crew.failure.what} ({self._crew.failure.code})"))
        for place, producer in enumerate(scenario.producers):
            found, is_whole = ledger.sent(run, producer.name)
            checks.append(whole(producer.name, is_whole))
            sents += [(place, sent) for sent in found]
        seens = []
        for reader in scenario.readers:
            found_all = list(ledger.seen(run, reader.name, reader.connections, reader.topics))
            unfinished = [stem for stem, seen in found_all if seen is None]
            checks.append(whole(", ".join(unfinished) or reader.name, not unfinished))
            seens += [seen for _, seen in found_all if seen is not None]
        made = [payloads(scenario, place) for place in range(len(scenario.producers))]
        added = 0
        for name, config in scenario.topics.items():
            evidence = self._evidence(client, name, config, sents, seens, made)
            checks += reconcile(evidence)
            added += evidence.added
        rose, why = samples.rise(base, final, "topics_records_written_total")
        checks.append(written_by_metrics(rose, added, is_alone=scenario.daemon.start, why_not=why))
        return checks

    def _evidence(
        self, client: Client, name: str, config: dict[str, Any], sents: Any, seens: Any, made: Any
    ) -> Evidence:
        kept, told, checks = array("Q"), [], array("I")
        for lines, gaps in whole_topic(client, self._prefix + name):
            kept.extend(map(seq_of, lines))
            checks.extend(map(check_of, bare_data(lines)))
            told += gaps
        loses = any(config.get(field) for field in ("ttl_ms", "cap_records", "cap_bytes"))
        return Evidence(
            topic=name,
            is_queue=self._scenario.is_queue(name),
            may_lose=frozenset(ASKED_FOR if loses else ()),
            sent=[(place, sent) for place, sent in sents if sent.topic == name],
            state=self._state(client, name),
            kept=kept,
            kept_checks=checks,
            told=told,
            seen=[seen for seen in seens if seen.topic == name],
            check_of=lambda place, n: check_of(made[place](n)),
        )

    def _summary(self, checks: list[Check], environment: dict[str, Any]) -> dict[str, Any]:
        wrong = [check for check in checks if not check.is_good]
        writers = {producer.name for producer in self._scenario.producers}
        groups = {}
        for name, seen in self.totals.items():
            seen.seconds = min(seen.seconds, self._scenario.duration_s) if name in writers else seen.seconds
            groups[name] = {**seen.as_object(), "kind": "producer" if name in writers else "reader"}
            groups[name].pop("records_per_100ms", None)
        return {
            "scenario": self._scenario.name,
            "about": self._scenario.about,
            "seed": self._scenario.seed,
            "prefix": self._prefix,
            "verdict": "does not add up" if wrong else "reconciled",
            "interrupted": bool(self.signum),
            "checks": [check.as_object() for check in checks],
            "groups": groups,
            "events": self.events,
            "restarts": self._daemon.restarts,
            "environment": environment,
        }

    def _drop(self, is_good: bool) -> None:
        """Topics on a daemon that goes on; what does not add up stays there."""
        client, left = self._daemon.client, []
        for name in self._scenario.topics:
            topic = self._prefix + name
            try:
                if is_good or not self.samples:
                    client.call(client.request("DELETE", topic_path(topic)), through_signals=True)
                else:
                    left.append(topic)
            except (Failure, Stopped):
                left.append(topic)
        if left:
            self._session.talk.say(f"topics: still there: {' '.join(left)}; topics drop removes them")

    def _save(self, name: str, value: dict[str, Any]) -> None:
        (self.directory / name).write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def exit_code(run: Run, summary: dict[str, Any]) -> int:
    """What the command ends with: loss before the signal that ended it early."""
    if summary["verdict"] != "reconciled":
        return exits.LOSS
    return 128 + run.signum if run.signum else exits.DONE
