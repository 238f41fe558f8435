"""The button that chooses the page's colours, and runs that arrive while somebody reads, in a real browser."""

from __future__ import annotations

import pytest
from support.browser import NEEDS_BROWSER, new_page
from support.watching import BEGUN, SPENT, row, watching

from pytest_agentbench.reports.journal import Journal

pytestmark = [NEEDS_BROWSER, pytest.mark.slow]

BACK = "getComputedStyle(document.body).backgroundColor"


def test_the_choice_of_colours_outranks_the_systems_and_is_kept(program, path):
    with new_page(program, color_scheme="dark") as shown:
        shown.open(path)
        button = shown.page.get_by_role("button", name="Colours: Auto")
        button.wait_for()
        dark = shown.value(BACK)
        button.click()
        light = shown.value(BACK)
        assert light != dark
        shown.page.reload()
        shown.page.get_by_role("button", name="Colours: Light").wait_for()
        assert shown.value(BACK) == light
        shown.page.emulate_media(color_scheme="light")
        shown.page.get_by_role("button", name="Colours: Light").click()
        assert shown.value(BACK) == dark
        shown.page.emulate_media(media="print")
        assert shown.value(BACK) == light, "paper is light"


def test_new_runs_wait_for_a_press_while_somebody_reads_the_list(program, tmp_path):
    journal = Journal(tmp_path / "outputs", BEGUN, pytest.fail)
    for at in range(40):
        journal.row(row(f"case-{at:02}"), at, SPENT)
    with watching(tmp_path / "outputs") as watched, new_page(program) as shown:
        shown.open(f"{watched.url}#/results?sort=trouble")
        shown.page.get_by_text("case-00", exact=True).wait_for()
        shown.page.evaluate("scrollTo(0, 300)")
        for at in range(40, 42):
            journal.row(row(f"bad-{at}", "failed", "no"), at, SPENT)
        chip = shown.page.get_by_role("button", name="2 new runs")
        chip.wait_for()
        assert shown.page.locator(".told").inner_text() == "40 cases"
        assert shown.value("scrollY") == 300
        chip.click()
        shown.page.get_by_text("42 cases").wait_for()
        assert chip.count() == 0
        shown.page.evaluate("scrollTo(0, 0)")
        journal.row(row("last"), 42, SPENT)
        shown.page.get_by_text("43 cases").wait_for()
        assert shown.complaints == []
    journal.close()
