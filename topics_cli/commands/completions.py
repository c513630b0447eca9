"""`topics completions`: what a shell needs to complete our words, as it was installed."""

from __future__ import annotations

import os
import sys
from typing import Any, Final

from topics_cli import exits
from topics_cli.exits import Failure, usage
from topics_cli.session import Session

INSTALLED: Final = {
    "bash": "share/bash-completion/completions/topics",
    "zsh": "share/zsh/site-functions/_topics",
    "fish": "share/fish/vendor_completions.d/topics.fish",
}
"""Below the prefix that the package was installed to."""
SOURCES: Final = {"bash": "bash/topics", "zsh": "zsh/_topics", "fish": "fish/topics.fish"}
"""Below `completions/` of a checkout."""


def completions(session: Session, values: dict[str, Any]) -> int:
    """Print the completions of a shell, by default of the one that is used."""
    shell = values["shell"] or os.path.basename(os.environ.get("SHELL", ""))
    if shell not in INSTALLED:
        raise usage(f"there are no completions for {shell or 'no shell'!r}", f"there are: {', '.join(INSTALLED)}")
    checkout = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    prefix = os.path.dirname(os.path.dirname(sys.executable))
    for path in (
        os.path.join(checkout, "completions", SOURCES[shell]),
        os.path.join(prefix, INSTALLED[shell]),
        os.path.join(sys.prefix, INSTALLED[shell]),
    ):
        try:
            with open(path, "rb") as file:
                session.out.write(file.read())
                return exits.DONE
        except OSError:
            continue
    raise Failure("the completions are not where the package puts them", "no_completions", f"looked for {path}")
