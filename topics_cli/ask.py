"""Asking a person; never without a terminal."""

from __future__ import annotations

import os

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
