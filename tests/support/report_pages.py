"""Open the page of a report in a real browser, and read its grid of cases."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Locator
from support.browser import Shown, new_page
from support.random_reports import MODELS, SESSION, random_report

from pytest_agentbench.reports.comparison.campaigns import build_campaign
from pytest_agentbench.reports.comparison.comparing import compare
from pytest_agentbench.reports.html.page import write_page
from pytest_agentbench.reports.report import build_report

ROW = "main tbody tr[data-at]"


def compared_report() -> dict[str, Any]:
    """Return a report of 204 runs of four models, compared with one in which all had passed."""
    found = random_report(17, MODELS, 3)
    base = [{**row, "outcome": "passed"} if row["outcome"] == "failed" else row for row in found["runs"]]
    found["comparison"] = compare(
        build_campaign(build_report(base, SESSION), "base.json"), build_campaign(found), 3
    ).as_dict()
    return found


@contextmanager
def opened(program: Browser, path: Path, **window: Any) -> Iterator[Shown]:
    """Yield the page of a file. Fail if it reports an error, or requests anything but itself."""
    with new_page(program, **window) as shown:
        shown.open(path)
        shown.page.wait_for_selector("main h1", state="attached")
        yield shown
        assert shown.complaints == []
        assert set(shown.requests) <= {path.as_uri()}


@contextmanager
def opened_report(program: Browser, folder: Path, report: dict[str, Any]) -> Iterator[Shown]:
    """Yield the page of a report, written into the folder."""
    write_page(report, folder / "other.html")
    with opened(program, folder / "other.html") as shown:
        yield shown


def rows_of(shown: Shown) -> Locator:
    """Return the rows of the grid of cases that are in the page."""
    shown.settle()
    shown.page.wait_for_selector("main table.grid")
    return shown.page.locator(ROW)


def told(shown: Shown) -> str:
    """Return the number of cases that pass the filters, by the text of the page."""
    shown.settle()
    return shown.page.locator(".told").inner_text()


def ids_of(shown: Shown) -> list[str]:
    """Return the ids of the cases in the page, in their order."""
    return rows_of(shown).locator(".id").all_inner_texts()
