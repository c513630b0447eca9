"""The documents as a site: every page is there, every link and anchor leads somewhere, nothing is from elsewhere."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from scripts import site
from tests.style.sources import ROOT

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built from the documents as they are."""
    if not os.environ.get("DOCS_REQUIRED"):
        pytest.importorskip("mkdocs", reason="mkdocs is not installed: make site installs it (and .ci/run)")
    directory = tmp_path_factory.mktemp("site")
    done = site.build(directory)
    assert done.returncode == 0, done.stderr
    return directory / "site"


def test_the_site_has_every_document(built: Path) -> None:
    missing = [page for page in site.documents() if not (built / _html(page)).is_file()]
    assert missing == []


def test_the_site_fetches_nothing_from_elsewhere(built: Path) -> None:
    fetched = {
        (str(page.relative_to(built)), url)
        for page in built.rglob("*.html")
        for url in re.findall(
            r"<(?:script|link|img|iframe)\b[^>]*?(?:src|href)=\"(https?:[^\"]+)", page.read_text("utf-8")
        )
    }
    assert fetched == set()


def test_no_block_is_left_as_bare_text(built: Path) -> None:
    assert [str(page) for page in built.rglob("*.html") if "```" in page.read_text("utf-8")] == []


def test_a_link_that_leads_nowhere_ends_the_build(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = site.lay_out

    def planted(pages: Path) -> None:
        real(pages)
        with (pages / "README.md").open("a", encoding="utf-8") as page:
            page.write("\n[nowhere](docs/nowhere.md) and [no head](docs/access.md#no-such-head)\n")

    monkeypatch.setattr(site, "lay_out", planted)
    done = site.build(tmp_path)
    assert done.returncode != 0
    assert "docs/nowhere.md" in done.stderr
    assert "no-such-head" in done.stderr


def _html(page: Path) -> Path:
    return page.with_name("index.html") if page.name == "README.md" else page.with_suffix(".html")


def test_what_a_page_links_to_is_laid_out_beside_it(tmp_path: Path) -> None:
    site.lay_out(tmp_path)
    assert (tmp_path / "sample/recipes/produce.sh").read_bytes() == (ROOT / "sample/recipes/produce.sh").read_bytes()
    assert not (tmp_path / "engine").exists()
