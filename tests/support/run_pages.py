"""The page of one run in a real browser: how a test opens it and reads it."""

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
    """The page at an address, once it has read what it shows; it never complains."""
    with new_page(program, **window) as shown:
        shown.open(path, fragment)
        ready(shown)
        yield shown
        assert shown.complaints == []


def ready(shown: Shown) -> None:
    """Waits until the view is there, with the details of its runs."""
    shown.page.locator("main h1").wait_for()
    shown.page.locator("main [aria-busy]").wait_for(state="detached")


def go(shown: Shown, nodeid: str) -> None:
    """To another run by the address, as links do."""
    shown.value(f"location.hash = {json.dumps(run(nodeid))}")
    shown.page.locator(".nodeid code", has_text=re.compile(f"^{re.escape(nodeid)}$")).wait_for()
    ready(shown)


def run(nodeid: str) -> str:
    """The fragment of a run's view."""
    return f"#run={quote(nodeid, safe='')}"


def texts(shown: Shown, selector: str) -> list[str]:
    """The texts of all such elements, in one line each."""
    shown.settle()
    return [" ".join(text.split()) for text in shown.page.locator(selector).all_inner_texts()]
