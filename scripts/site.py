"""The documents as a site: `python -m scripts.site [DIR]` (`make site`); MkDocs with its Material theme does the work.

The pages are laid out in `DIR/pages` under the paths that they have in the repository, with every file that one of them
links to, and built into `DIR/site` (`build/`). So a link is the same on the site and beside the code. A link, an anchor
or a page without a place ends the build (`mkdocs.yml`).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
_LINK: Final = re.compile(r"(?<!\\)\]\((?![a-z]+:|#)([^)#\s]+)")
_FENCE: Final = re.compile(r"^```console make$", re.MULTILINE)
_CELL_CODE: Final = re.compile(r"`[^`\n]*`")


def documents() -> list[Path]:
    """The pages, relative to the repository."""
    return sorted(path.relative_to(ROOT) for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def linked(page: Path) -> set[Path]:
    """The files that a page links to, relative to the repository; those that are not there are left to the build."""
    targets = _LINK.findall((ROOT / page).read_text(encoding="utf-8"))
    paths = {(ROOT / page.parent / target).resolve() for target in targets}
    return {path.relative_to(ROOT) for path in paths if path.is_file() and path.is_relative_to(ROOT)}


def as_mkdocs_reads(text: str) -> str:
    """What GitHub and Python-Markdown read differently: words after a fence, and `|` in the code of a table's cell."""
    lines = [
        _CELL_CODE.sub(lambda code: code[0].replace("\\|", "|"), line) if line.startswith("|") else line
        for line in _FENCE.sub("```console", text).split("\n")
    ]
    return "\n".join(lines)


def lay_out(pages: Path) -> None:
    """Fill the directory `pages`; what was in it goes."""
    shutil.rmtree(pages, ignore_errors=True)
    texts = documents()
    for path in sorted({Path("docs/site.css"), *texts, *(file for page in texts for file in linked(page))}):
        there = pages / path
        there.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            there.write_text(as_mkdocs_reads((ROOT / path).read_text(encoding="utf-8")), encoding="utf-8")
        else:
            shutil.copyfile(ROOT / path, there)


def build(directory: Path) -> subprocess.CompletedProcess[str]:
    """Lay the pages out and build the site below `directory`; what MkDocs said is in the answer."""
    lay_out(directory / "pages")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--clean", "--site-dir", str(directory / "site")]
    environ = {**os.environ, "PAGES": str(directory / "pages"), "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, check=False, cwd=ROOT, env=environ, capture_output=True, text=True)


if __name__ == "__main__":
    place = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build").resolve()
    done = build(place)
    if done.returncode:
        sys.stderr.write(done.stderr)
        sys.exit(1)
    print(f"{place / 'site/index.html'}")
