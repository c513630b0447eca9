"""The shell worker: claims jobs, runs a command for each, and tells the queue how it ended.

    claim (as many as there is room for, waiting) ─► run ─► ack, nack, dead letter    one request in flight of each kind
                                                     └───► extend, three times a lease, while it runs

Jobs are claimed only when a command can be started for them at once, so a worker that stops has nothing to give back.
Its stop is a drain: it claims no more, and what runs may end. A daemon that goes away is waited for; leases that were
lost meanwhile are asked for again. When the same job comes back while it still runs here, it is not started a second
time: the run goes on under the new lease. When it comes back after its end, that is told again, under the new lease.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections import deque
from typing import Any, Final

from topics_cli import exits
from topics_cli.board import DRAW_S, Board
from topics_cli.client import Call, topic_path
from topics_cli.commands.claim import WAIT_MS_MAX
from topics_cli.commands.settle import SEQS_MAX, settle_body, skipped_of
from topics_cli.cut import number
from topics_cli.exits import ApiError, Failure
from topics_cli.jobclaims import CLAIM_MAX, JobClaims
from topics_cli.jobstream import JobStream, NoStream
from topics_cli.launch import DEAD_CODE, RETRY_CODE, BadJob, Job, Recipe, Running, said_of
from topics_cli.session import Session

GRACE_MS: Final = 5000
EXTENDS_A_LEASE: Final = 3
UNTOLD_S: Final = 10.0
"""How long a job that is done, but was nobody's when we said so, is waited for to come back."""
READ_BYTES: Final = 1 << 16

Verdict = tuple[str, str, str]
"""What becomes of jobs: (request, what its body says more, what is said about it)."""
ACK: Final[Verdict] = ("ack", "", "done")
UNDONE: Final[Verdict] = ("nack", ',"delivered":false', "given back")


class Plan:
    """How a worker works."""

    def __init__(self, queue: str, node: str, values: dict[str, Any], lease_ms: int) -> None:
        self.queue = queue
        self.node = node
        self.values = values
        self.jobs: int = values["jobs"] or 1
        self.batch: int = values["batch"] or 1
        self.timeout_ms: int | None = values["timeout"]
        self.grace_s: float = (GRACE_MS if values["grace"] is None else values["grace"]) / 1000
        self.retry_codes: set[int] = {RETRY_CODE, *values["retry_code"]}
        self.dead_codes: set[int] = set(values["dead_code"]) or {DEAD_CODE}
        self.delay_ms: int = values["delay"] or 0
        self.once: bool = values["once"]
        self.until_empty: bool = values["until_empty"]
        self.ends = self.once or self.until_empty
        """Whether it has an end, for which one must know that there are no jobs."""
        self.halt: int | None = values["halt"]
        """Failures in a row that mean that it is not the jobs: then nothing more is started."""
        self.extend_s = lease_ms / 1000 / EXTENDS_A_LEASE

    def verdict(self, run: Running) -> Verdict:
        """What becomes of the jobs of a command that has ended."""
        code = run.returncode or 0
        if code == 0 and not run.is_late:
            return ACK
        said = said_of(code, run.is_late, self.timeout_ms or 0)
        reason = f',"reason":{json.dumps(said)}'
        if code in self.dead_codes and not run.is_late:
            return "nack", ',"dead_letter":true' + reason, f"dead ({said})"
        if run.is_late or code in self.retry_codes:
            return "nack", ',"delay":"backoff"' + reason, f"later ({said})"
        return "nack", f',"delay_ms":{self.delay_ms}{reason}', f"failed ({said})"


class Worker:
    """One run of `work`."""

    def __init__(self, session: Session, plan: Plan, recipe: Recipe, board: Board) -> None:
        self._session = session
        self._plan = plan
        self._recipe = recipe
        self._board = board
        self._running: list[Running] = []
        self._pending: deque[Job] = deque()
        """Jobs that wait for a command to end, which they do only when more came back than was expected."""
        self._held: dict[int, Job] = {}
        """Jobs whose leases are ours: running, pending, or with an end that the daemon has not heard of yet."""
        self._untold: dict[int, tuple[Verdict, Job, float]] = {}
        """Jobs that are done, but were nobody's when we said so: they are asked for once more, to say it again."""
        self._verdicts: deque[tuple[Verdict, list[Job]]] = deque()
        self._source: JobClaims | JobStream = self._claims() if plan.ends else self._stream()
        self._settle: Call | None = None
        self._settle_channel = session.client.channel()
        self._settling: tuple[Verdict | None, list[Job]] = (None, [])
        self._sent: list[str] = []
        """The leases that the request in flight names."""
        self._extend_at = 0.0
        self._asked_for: set[int] = set()
        """What of `_untold` the claim in flight may bring."""
        self._failures = 0
        """Commands that have failed since one has not."""
        self._undone: set[int] = set()
        """Jobs that one that runs until the queue is empty has not done, though it tried."""
        self._draining = False
        self._is_dry = False
        """Whether the queue had nothing when it was last asked, and none of our commands has ended since."""
        self._failure: Failure | None = None
        """Why the worker stops, when it is not by itself."""

    def run(self) -> int:
        """Work until there is a reason to stop; returns the exit code."""
        try:
            with self._session.understood():
                self._work_on()
        except Failure:
            self._end_all()
            raise
        finally:
            self._board.clear()
            self._source.close()
            self._settle_channel.close()
        return self._exit_code()

    def _work_on(self) -> None:
        while True:
            self._look_at_signals()
            self._reap()
            self._step_jobs()
            self._step_settle()
            self._start_pending()
            self._end_the_late()
            if self._draining and self._has_drained():
                break
            self._rest()

    def _has_drained(self) -> bool:
        """Whether nothing runs, all has been told, and no more jobs can come."""
        self._source.drain()
        if self._running or self._pending or self._settle or self._verdicts:
            return False
        self._source.finish()
        return self._source.has_ended

    def _exit_code(self) -> int:
        board = self._board
        if self._failure is not None:
            raise self._failure
        if self._session.stop.signum:
            board.note(f"topics: stopped: {board.counts}")
            return 128 + self._session.stop.signum
        if board.is_live and not self._plan.once:
            board.note(f"topics: {self._plan.queue}: {board.counts}")
        if self._plan.once and not (board.done or board.failed or board.dead or board.lost):
            return exits.NOTHING
        if board.lost:
            return exits.STALE
        if self._undone:
            from topics_cli.amounts import counted

            count = len(self._undone)
            board.note(f"topics: {self._plan.queue}: {counted(count, 'job')} {'is' if count == 1 else 'are'} not done")
        return exits.FAILED if self._plan.once and not board.done else exits.DONE

    # -- taking jobs -----------------------------------------------------------------------------------------------

    def _claims(self) -> JobClaims:
        plan = self._plan
        return JobClaims(self._session, plan.queue, plan.node, plan.values, 0 if plan.ends else WAIT_MS_MAX)

    def _stream(self) -> JobStream:
        plan = self._plan
        return JobStream(self._session, plan.queue, plan.node, min(plan.jobs * plan.batch, CLAIM_MAX), plan.values)

    def _step_jobs(self) -> None:
        source = self._source
        if isinstance(source, JobClaims):
            jobs = self._claimed(source)
        else:
            try:
                jobs = source.step()
            except NoStream:
                self._source = self._claims()
                return
            self._give_up_the_untold(time.monotonic() - UNTOLD_S)
        if source.was_lost:
            # What we hold may be nobody's by now: look at once.
            source.was_lost = False
            self._extend_at = 0.0
        self._take(self._told_again(jobs))

    def _claimed(self, claims: JobClaims) -> list[Job]:
        """The jobs of a claim, and whether to go on claiming."""
        plan = self._plan
        self._draining = self._draining or (plan.once and claims.answered > 0)
        if not claims.is_asking and not self._draining and not self._is_dry:
            free = (plan.jobs - len(self._running)) * plan.batch
            lost = sum(job.is_lost for run in self._running for job in run.jobs)
            room = plan.batch if plan.once else free - len(self._pending) + lost + len(self._untold)
            if room > 0:
                claims.ask(room)
                self._asked_for = set(self._untold)
        answered = claims.answered
        jobs = claims.step()
        if claims.answered > answered:
            self._board.ready = claims.ready
            came = {job.seq for job in jobs}
            for seq in self._asked_for & set(self._untold) - came:
                self._give_up(seq)
            if not jobs and plan.until_empty:
                self._is_dry = bool(self._running or self._pending or self._verdicts or self._settle or self._untold)
                self._draining = self._draining or not self._is_dry
        return jobs

    def _told_again(self, jobs: list[Job]) -> list[Job]:
        """Settle what is done already under its new lease; returns the others."""
        others = []
        for job in jobs:
            verdict, _, _ = self._untold.pop(job.seq, (None, None, 0.0))
            if verdict is None:
                others.append(job)
            else:
                self._held[job.seq] = job
                self._decide(verdict, [job])
        return others

    def _give_up_the_untold(self, since: float) -> None:
        for seq in [seq for seq, (_, _, told_at) in self._untold.items() if told_at < since]:
            self._give_up(seq)

    def _give_up(self, seq: int) -> None:
        verdict, _, _ = self._untold.pop(seq)
        self._note_lost(seq, verdict, "somebody else has it")

    def _take(self, jobs: list[Job]) -> None:
        """Put jobs in line; those that are running here already go on under their new leases."""
        for job in jobs:
            known = self._held.get(job.seq)
            if known is None:
                self._held[job.seq] = job
                self._pending.append(job)
            else:
                known.line, known.lease_id, known.deliveries, known.is_lost = (
                    job.line,
                    job.lease_id,
                    job.deliveries,
                    False,
                )

    def _start_pending(self) -> None:
        """Start commands for the jobs in line, or give these back when we stop."""
        pending, plan = self._pending, self._plan
        while pending:
            count = min(plan.batch, len(pending))
            if not self._draining:
                if len(self._running) >= plan.jobs or (count < plan.batch and self._source.is_midway):
                    return
                self._start([pending.popleft() for _ in range(count)])
            else:
                self._decide(UNDONE, [pending.popleft() for _ in range(count)])

    def _start(self, jobs: list[Job]) -> None:
        try:
            taken = {run.slot for run in self._running}
            run = self._recipe.start(jobs, next(slot for slot in range(1, len(taken) + 2) if slot not in taken))
        except BadJob as bad:
            self._board.failed += len(jobs)
            self._board.note(f"topics: {self._plan.queue} {jobs[0].seq} failed: {bad}")
            self._undone.update(job.seq for job in jobs if self._plan.until_empty)
            self._decide(("nack", f',"delay":"backoff","reason":{json.dumps(str(bad))}', "failed"), jobs)
        except Failure as failure:
            # The command is gone or broken: every job would meet the same end, and none has begun.
            self._decide(UNDONE, jobs)
            self._failure = failure
            self._draining = True
        else:
            if not self._running:
                self._extend_at = time.monotonic() + self._plan.extend_s
            self._running.append(run)

    # -- commands --------------------------------------------------------------------------------------------------

    def _reap(self) -> None:
        for run in [run for run in self._running if run.has_ended()]:
            self._running.remove(run)
            self._pass_on(run, last=True)
            verdict = self._plan.verdict(run)
            if verdict is ACK:
                self._board.done += len(run.jobs)
                self._failures = 0
            elif "dead_letter" in verdict[1]:
                self._board.dead += len(run.jobs)
            else:
                self._board.failed += len(run.jobs)
                self._failures += 1
            if not self._board.is_live or verdict is not ACK:
                self._board.ended(run, verdict[2])
            if self._plan.until_empty:
                seqs = {job.seq for job in run.jobs}
                self._undone = self._undone - seqs if verdict is ACK else self._undone | seqs
            self._decide(verdict, run.jobs)
            self._halt_after(verdict)

    def _halt_after(self, verdict: Verdict) -> None:
        """Stop when so many have failed in a row that it is rather the command than the jobs."""
        if self._plan.halt is not None and self._failures >= self._plan.halt and self._failure is None:
            what = f"{self._failures} {'commands have' if self._failures > 1 else 'command has'} failed in a row"
            self._failure = Failure(f"{what}, the last: {verdict[2]}", "halted", "the jobs are in the queue again")
            self._draining = True

    def _pass_on(self, run: Running, last: bool = False) -> None:
        """What a command has printed, where it comes through us."""
        for handle, output in list(run.outputs.items()):
            while True:
                try:
                    data = os.read(handle, READ_BYTES)
                except BlockingIOError:
                    break
                self._board.pass_on(output, data)
                if not data:
                    del run.outputs[handle]
                    break
        if last:
            for output in run.outputs.values():
                self._board.pass_on(output, b"")
            run.close_outputs()

    def _end_the_late(self) -> None:
        now = time.monotonic()
        timeout_ms = self._plan.timeout_ms
        for run in self._running:
            if timeout_ms is not None and not run.is_ending and run.seconds * 1000 >= timeout_ms:
                run.is_late = True
                run.end(self._plan.grace_s)
            if run.is_ending and now >= run.kill_at:
                run.signal(signal.SIGKILL)

    def kill_all(self) -> None:
        """Kill every command, with all that it has started, and say how far we came."""
        for run in self._running:
            run.signal(signal.SIGKILL)
        killed = f", {len(self._running)} killed" if self._running else ""
        self._board.note(f"topics: stopped: {self._board.counts}{killed}")

    def _end_all(self) -> None:
        """Nobody would hear how they end: stop the commands."""
        for run in self._running:
            run.end(self._plan.grace_s)
        while self._running:
            self._end_the_late()
            for run in [run for run in self._running if run.has_ended()]:
                self._running.remove(run)
                self._pass_on(run, last=True)
            self._session.stop.wait([(run.handle, 1) for run in self._running], 0.1)

    # -- what the daemon is told -----------------------------------------------------------------------------------

    def _decide(self, verdict: Verdict, jobs: list[Job]) -> None:
        """Remember what is to be said; what is said alike goes together."""
        if self._verdicts and self._verdicts[-1][0] == verdict and len(self._verdicts[-1][1]) < SEQS_MAX - len(jobs):
            self._verdicts[-1][1].extend(jobs)
        else:
            self._verdicts.append((verdict, list(jobs)))

    def _step_settle(self) -> None:
        if self._settle is None and self._verdicts:
            verdict, jobs = self._verdicts.popleft()
            self._settling = (verdict, jobs)
            self._send(verdict[0], jobs, verdict[1])
        elif self._settle is None and self._running and time.monotonic() >= self._extend_at:
            self._extend_at = time.monotonic() + self._plan.extend_s
            running = (job for run in self._running for job in run.jobs if not job.is_lost)
            jobs = [*running, *self._pending][:SEQS_MAX]
            if jobs:
                lease = self._plan.values["lease"]
                self._settling = (None, jobs)
                self._send("extend", jobs, f',"lease_ms":{lease}' if lease is not None else "")
        if self._settle is None:
            return
        try:
            answer = self._stepped(self._settle)
        except ApiError as error:
            self._refused(error)
            return
        if answer is not None:
            self._settle = None
            self._heard(answer)

    def _send(self, verb: str, jobs: list[Job], more: str) -> None:
        client = self._session.client
        self._sent = [job.lease_id for job in jobs]
        body = settle_body(self._plan.node, [(job.seq, job.lease_id) for job in jobs], more)
        request = client.request("POST", f"{topic_path(self._plan.queue)}/{verb}", body)
        self._settle = client.open(request, self._settle_channel)

    def _heard(self, answer: bytes) -> None:
        """The daemon has answered an ack, a nack or an extend."""
        verdict, jobs = self._settling
        why = dict(skipped_of(answer))
        ready = number(answer, "ready")
        self._board.ready = self._board.ready if ready is None else ready
        if verdict is None:
            for job, sent in zip(jobs, self._sent, strict=True):
                if job.seq in why and job.seq in self._held and job.lease_id == sent:
                    job.is_lost = True
                    if job in self._pending:
                        self._pending.remove(job)
                        del self._held[job.seq]
            return
        self._is_dry = False
        for job, sent in zip(jobs, self._sent, strict=True):
            if job.lease_id != sent:
                # It came back to us while this was on its way: because of this, and then it is run again; or else it
                # is told again, under the new lease.
                if job.seq in why:
                    self._decide(verdict, [job])
                else:
                    self._pending.append(job)
                continue
            self._held.pop(job.seq, None)
            # Repeated after a lost connection, what was done the first time is `gone`, or not leased any more.
            reason = why.get(job.seq, "gone")
            if verdict is ACK and reason in ("not_leased", "expired", "stale_lease") and not self._draining:
                self._untold[job.seq] = (verdict, job, time.monotonic())
            elif reason not in (("gone",) if verdict is ACK else ("gone", "not_leased", "stale_lease")):
                self._note_lost(job.seq, verdict, reason)

    def _note_lost(self, seq: int, verdict: Verdict, reason: str) -> None:
        self._board.lost += 1
        self._board.note(
            f"topics: {self._plan.queue} {seq} was {verdict[2]}, but its lease was lost ({reason}): it is done again"
        )

    def _refused(self, error: ApiError) -> None:
        """A queue without dead letters refuses to move a job there: then it is tried again later."""
        verdict, jobs = self._settling
        if verdict is None or "dead_letter" not in verdict[1] or error.status != 400:
            raise error
        self._settle = None
        self._board.note(f"topics: {error.what} ({error.code}): tried again later instead")
        more = verdict[1].replace(',"dead_letter":true', ',"delay":"backoff"')
        self._verdicts.appendleft(((verdict[0], more, verdict[2]), jobs))

    # -- waiting ---------------------------------------------------------------------------------------------------

    def _stepped(self, call: Call) -> bytes | None:
        """Move a call on; after one that had to be tried again, leases are looked at at once."""
        answer = call.step()
        if answer is None:
            self._session.client.show_wait(call)
            return None
        if call.failing_since:
            self._extend_at = 0.0
        return answer.body

    def _look_at_signals(self) -> None:
        if self._session.stop.signum and not self._draining:
            self._draining = True
            if self._running:
                count = len(self._running)
                self._board.note(f"topics: stopping: {count} running may end; a second signal ends them now")

    def _rest(self) -> None:
        """Wait for a command, an answer, a time or a signal."""
        calls = [one for one in (self._source if self._source.is_asking else None, self._settle) if one is not None]
        watch = [item for call in calls for item in call.watch]
        watch += [(run.handle, 1) for run in self._running]
        watch += [(handle, 1) for run in self._running for handle in run.outputs]
        now = time.monotonic()
        times = [call.timeout_s for call in calls]
        if self._verdicts and self._settle is None:
            times.append(0.0)
        if self._running and self._settle is None:
            times.append(self._extend_at - now)
        for run in self._running:
            if run.is_ending:
                times.append(run.kill_at - now if now < run.kill_at else 0.05)
            elif self._plan.timeout_ms is not None:
                times.append(self._plan.timeout_ms / 1000 - run.seconds)
        if self._board.is_live:
            self._board.draw(self._running, " is stopping" if self._draining else "")
            times.append(DRAW_S)
        self._session.stop.wait(watch, max(0.0, min(times)) if times else 0.0)
        for run in self._running:
            self._pass_on(run)
