"""`topics work`: what the options mean; the work is the worker's.

Before anything is claimed it is made sure that the command is there and the topic is a queue: a mistake in the command
line touches no job.
"""

from __future__ import annotations

import json
import os
import signal
from types import FrameType
from typing import Any

from topics_cli.board import Board
from topics_cli.claimed import holder
from topics_cli.client import topic_path
from topics_cli.exits import Failure, usage
from topics_cli.framing import framing_of
from topics_cli.jobclaims import CLAIM_MAX
from topics_cli.launch import Recipe, find_command
from topics_cli.session import Session, check_name
from topics_cli.worker import Plan, Worker

JOBS_MAX = 1000


def work(session: Session, values: dict[str, Any]) -> int:
    """Work until stopped, or until the options say that it is enough."""
    queue = check_name(values["queue"])
    _check(values)
    find_command(values["command"][0])
    state = json.loads(session.client.get(topic_path(queue) + "?touch=false").body)
    if state["type"] != "queue":
        raise Failure(f"{queue} is a log, not a queue", "not_a_queue", "topics create Q --type queue makes one")
    lease_ms = state["config"]["lease_ms"] if values["lease"] is None else values["lease"]
    plan = Plan(queue, _holder(values), values, lease_ms)
    board = Board(session, queue, plan.jobs)
    captured = tuple(target for target in (1, 2) if board.is_live and os.isatty(target))
    recipe = Recipe(
        queue,
        values["command"],
        files=values["file"],
        raw=values["raw"],
        framing=framing_of(values),
        batch=plan.batch,
        captured=captured,
    )
    worker = Worker(session, plan, recipe, board)
    _end_all_at_a_second_signal(session, worker)
    try:
        return worker.run()
    finally:
        recipe.close()


def _check(values: dict[str, Any]) -> None:
    if values["once"] and values["until_empty"]:
        raise usage("--once and --until-empty are two ends", "give one of them")
    if not 1 <= (1 if values["jobs"] is None else values["jobs"]) <= JOBS_MAX:
        raise usage(f"-j is 1 to {JOBS_MAX}")
    if not 1 <= (1 if values["batch"] is None else values["batch"]) <= CLAIM_MAX:
        raise usage(f"--batch is 1 to {CLAIM_MAX}")
    if values["halt"] is not None and values["halt"] < 1:
        raise usage("--halt is at least 1")
    for code in (*values["retry_code"], *values["dead_code"]):
        if not 1 <= code <= 255:
            raise usage(f"{code} is no exit status of a failure", "it is 1 to 255")
    if set(values["retry_code"]) & set(values["dead_code"]):
        raise usage("an exit status cannot mean both later and never")


def _holder(values: dict[str, Any]) -> str:
    """The worker's name: of several on a machine each has its own, unless one was given."""
    name = holder(values)
    return name if values["node"] else f"{name}/{os.getpid()}"


def _end_all_at_a_second_signal(session: Session, worker: Worker) -> None:
    """The first signal drains; a second one ends the commands with us."""

    def heard(signum: int, _frame: FrameType | None) -> None:
        if session.stop.signum:
            worker.kill_all()
            os._exit(128 + signum)
        session.stop.signum = signum

    for signum in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(signum) != signal.SIG_IGN:
            signal.signal(signum, heard)
