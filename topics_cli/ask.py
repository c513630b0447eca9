"""Asking a person; never without a terminal."""

from __future__ import annotations

import os
from typing import Any

from topics_cli.session import Session
from topics_cli.signals import POLLIN


def can_ask() -> bool:
    """Whether somebody is there to answer."""
    return os.isatty(0) and os.isatty(2)


def confirmed(session: Session, question: str) -> bool:
    """Whether the person at the terminal says yes; a signal ends the wait."""
    if not can_ask():
        return False
    session.talk.say(f"{question} [y/N]")
    while not session.stop.wait([(0, POLLIN)], None):
        session.stop.check()
    return os.read(0, 256).strip().lower() in (b"y", b"yes")


def agreed(session: Session, values: dict[str, Any], question: str) -> bool:
    """Whether to go on with what was named plainly: with `--yes`, without a terminal, or when its person says yes."""
    if values["yes"] or not can_ask() or confirmed(session, question):
        return True
    session.talk.say("topics: nothing was done")
    return False
