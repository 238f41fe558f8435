"""Open the page of one run in a real browser, and read it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from playwright.sync_api import Browser
from support.browser import Shown, new_page


@contextmanager
def opened(program: Browser, path: Path | str, fragment: str = "", **window: Any) -> Iterator[Shown]:
    """Yield the page at an address when it has loaded its data. Fail if it reports an error."""
    with new_page(program, **window) as shown:
        shown.open(path, fragment)
        ready(shown)
        yield shown
        assert shown.complaints == []


def ready(shown: Shown) -> None:
    """Wait until the view is complete, with the details of its runs."""
    shown.page.locator("main h1").wait_for()
    shown.page.locator("main [aria-busy]").wait_for(state="detached")


def go(shown: Shown, nodeid: str) -> None:
    """Open another run by the address, like a link."""
    shown.value(f"location.hash = {json.dumps(run(nodeid))}")
    shown.page.locator(".nodeid code", has_text=re.compile(f"^{re.escape(nodeid)}$")).wait_for()
    ready(shown)


def run(nodeid: str) -> str:
    """Return the fragment of a run's view."""
    return f"#run={quote(nodeid, safe='')}"


def texts(shown: Shown, selector: str) -> list[str]:
    """Return the texts of all such elements, each on one line."""
    shown.settle()
    return [" ".join(text.split()) for text in shown.page.locator(selector).all_inner_texts()]
