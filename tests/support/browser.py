"""A headless browser for the pages that this package writes; `NEEDS_BROWSER` skips tests on machines without one.

It reaches only 127.0.0.1: no other name resolves. While a browser is open, no other event loop can run in its thread,
because playwright runs one. So a browser is a fixture of at most one module.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

PROGRAM = shutil.which("chromium") or shutil.which("google-chrome")
NEEDS_BROWSER = pytest.mark.skipif(PROGRAM is None, reason="needs chromium (Debian: apt-get install chromium)")
TIMEOUT = 30_000
"""Milliseconds after which a wait fails."""
OFFLINE = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"


@dataclass(frozen=True)
class Shown:
    """An open page, with the browser's errors and its requests since it was opened."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    """Console errors and warnings (a refusal by the content policy is one), exceptions nothing caught."""
    requests: list[str] = field(default_factory=list)

    def open(self, place: Path | str, fragment: str = "") -> None:
        """Open a file or a URL; return when it has loaded."""
        self.requests.clear()
        self.page.goto((place.as_uri() if isinstance(place, Path) else place) + fragment)

    def value(self, expression: str) -> Any:
        """Return the value of the JavaScript expression."""
        return self.page.evaluate(expression)

    def settle(self) -> None:
        """Return when the page has handled the last click: a link's `hashchange` comes after the click."""
        self.value("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")

    def scrolls_sideways(self) -> bool:
        """Return whether the page is wider than its window."""
        return bool(self.value("document.documentElement.scrollWidth > document.documentElement.clientWidth"))


@contextmanager
def browser() -> Iterator[Browser]:
    """Yield a browser, and close it at the end of the block."""
    assert PROGRAM is not None
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=PROGRAM, args=["--no-sandbox", "--disable-gpu", OFFLINE])
        try:
            yield started
        finally:
            started.close()


@contextmanager
def new_page(of: Browser, *, width: int = 1280, height: int = 800, **context: Any) -> Iterator[Shown]:
    """Yield an empty page of a new visitor. `context`: `color_scheme="dark"`, `reduced_motion=...`."""
    visitor = of.new_context(viewport={"width": width, "height": height}, **context)
    visitor.set_default_timeout(TIMEOUT)
    try:
        shown = Shown(visitor.new_page())
        shown.page.on("console", lambda message: _noted(message, shown.complaints))
        shown.page.on("pageerror", lambda error: shown.complaints.append(str(error)))
        shown.page.on("request", lambda request: shown.requests.append(request.url))
        yield shown
    finally:
        visitor.close()


def _noted(message: ConsoleMessage, complaints: list[str]) -> None:
    if message.type in ("error", "warning"):
        complaints.append(message.text)


CONTRAST = """(selector) => {
  const bright = (colour) => {
    const whole = colour.startsWith("color(") ? 1 : 255;
    const parts = colour.match(/[0-9.]+/g).slice(0, 3).map((part) => part / whole);
    const [r, g, b] = parts.map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const element = document.querySelector(selector);
  const ink = getComputedStyle(element)[element instanceof SVGElement ? "fill" : "color"];
  let at = element;
  while (getComputedStyle(at).backgroundColor === "rgba(0, 0, 0, 0)") at = at.parentElement;
  const [low, high] = [bright(ink), bright(getComputedStyle(at).backgroundColor)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
}"""


def contrast(shown: Shown, selector: str) -> float:
    """Return the contrast of the first such element's text with its background (WCAG 2.2): 1 to 21, at least 4.5."""
    return float(shown.page.evaluate(CONTRAST, selector))
