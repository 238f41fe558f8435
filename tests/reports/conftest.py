"""The page of a report in a real browser, for the modules that click through it."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module")
def program():
    """A browser."""
    from support.browser import browser

    with browser() as started:
        yield started


@pytest.fixture(scope="module")
def report():
    """A report of 204 runs with everything that the page can show of one."""
    from support.report_pages import compared_report

    return compared_report()


@pytest.fixture(scope="module")
def path(report, tmp_path_factory):
    """Its page."""
    from pytest_agentbench.reports.html.page import write_page

    path = tmp_path_factory.mktemp("page") / "report.html"
    write_page(report, path)
    return path


@pytest.fixture
def shown(program, path):
    """That page, opened."""
    from support.report_pages import opened

    with opened(program, path) as shown:
        yield shown
