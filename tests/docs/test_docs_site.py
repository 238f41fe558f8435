"""The documentation as a site: it builds without a warning, works offline, and its reference is what the code says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml
from reference_pages import FOLDER, pages
from support.browser import NEEDS_BROWSER, browser, new_page

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
WIDE = ("index.html", "readme.html", "ci.html", "running.html", "migrating/promptfoo.html", "reference/report.html")
"""Pages with the widest tables and blocks."""
GENERATED = {"readme.md", "contributing.md", "changelog.md"}


class _Loader(yaml.SafeLoader):
    """Reads mkdocs.yml, which names a Python function."""


_Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, _, node: None)


@pytest.mark.slow
def test_the_reference_is_up_to_date() -> None:
    made = {name: text.rstrip() + "\n" for name, text in pages().items()}
    found = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.md")}
    stale = sorted(name for name in made.keys() | found.keys() if made.get(name) != found.get(name))
    assert stale == [], "renew it: python tests/docs/reference_pages.py"


def test_every_page_is_in_the_navigation_once() -> None:
    config = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader=_Loader)
    named = list(_leaves(config["nav"]))
    assert sorted(named) == sorted({*named})
    assert {*named} - GENERATED == {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")}


def _leaves(nav: object) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    parts = nav.values() if isinstance(nav, dict) else nav
    return [leaf for part in parts for leaf in _leaves(part)]  # type: ignore[attr-defined]


class _Loaded(HTMLParser):
    """What a browser loads for a page, and the titles of its blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.sources: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag in ("script", "img", "iframe", "source") and given.get("src"):
            self.sources.append(str(given["src"]))
        if tag == "link" and given.get("rel") in ("stylesheet", "preconnect", "icon", "preload"):
            self.sources.append(str(given["href"]))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built from nothing but what a clone has."""
    clone = tmp_path_factory.mktemp("clone")
    for name in ("mkdocs.yml", "README.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        shutil.copy(ROOT / name, clone)
    shutil.copytree(DOCS, clone / "docs")
    (clone / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "docs_site.py", clone / ".ci")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"]
    environ = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=clone, env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.strip()) == (0, "")
    return clone / ".site"


@pytest.mark.slow
def test_the_site_is_whole_and_loads_nothing_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        loaded = _Loaded()
        loaded.feed(page.read_text(encoding="utf-8"))
        assert [source for source in loaded.sources if re.match(r"(https?:)?//", source)] == [], page
    for style in site.rglob("*.css"):
        assert re.search(r"url\(['\"]?(https?:)?//", style.read_text(encoding="utf-8")) is None, style
    assert 'href="readme.html"' in (site / "index.html").read_text(encoding="utf-8")
    assert '<span class="filename">cases/capitals.jsonl</span>' in (site / "datasets.html").read_text(encoding="utf-8")
    assert 'href="writing-cases.html' in (site / "readme.html").read_text(encoding="utf-8")


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


@pytest.fixture
def served(site: Path) -> Iterator[str]:
    """The address of the site on loopback."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.slow
@NEEDS_BROWSER
def test_pages_fit_a_phone_and_ask_nobody_else(served: str) -> None:
    with browser() as started, new_page(started, width=375, height=700) as shown:
        for path in WIDE:
            shown.open(served + path)
            assert [url for url in shown.requests if not url.startswith((served, "data:", "blob:"))] == [], path
            assert not shown.scrolls_sideways(), path
        assert shown.complaints == []


@pytest.mark.slow
@NEEDS_BROWSER
def test_the_search_finds_a_page_without_anybody_else(served: str) -> None:
    with browser() as started, new_page(started) as shown:
        shown.open(served + "index.html")
        shown.page.fill("input.md-search__input", "bubblewrap")
        shown.page.locator(".md-search-result__link[href*='sandboxes.html']").first.wait_for(state="attached")
        assert [url for url in shown.requests if not url.startswith((served, "data:", "blob:"))] == []
