"""Any two columns of the page side by side: their difference, filters for how cases ended on them, steps."""

from __future__ import annotations

import re

import pytest
from reports_samples import make_row
from support.browser import NEEDS_BROWSER
from support.random_reports import SESSION
from support.report_pages import ids_of, opened_report, told

from pytest_agentbench.records.case import Model
from pytest_agentbench.reports.comparison.comparing import add_column_comparisons
from pytest_agentbench.reports.comparison.every_pair import MOST_COLUMNS, compare_every_pair
from pytest_agentbench.reports.report import build_report

CASES = 24
PERIODS = {"a": 2, "b": 3, "c": 4, "d": 1, "e": 5, "f": 6, "g": 7}
"""By column: the N of "every N-th case fails"."""


def passes(column, number):
    return number % PERIODS[column] > 0


def report_of(columns):
    models = {name: Model(model_id=name, requested_model="m", label=name.upper()) for name in columns}
    report = build_report(
        [
            make_row("passed" if passes(name, number) else "failed", f"q{number:02}", model)
            for name, model in models.items()
            for number in range(CASES)
        ],
        SESSION,
    )
    add_column_comparisons(report)
    return report


def ended(first, second, *wanted):
    """Return the cases that the two columns ended so."""
    return {f"q{n:02}" for n in range(CASES) if (passes(first, n), passes(second, n)) == wanted}


def test_every_pair_has_the_figures_that_the_session_computes_for_its_own_pairs():
    report = report_of("abc")
    assert [(pair["reference"], pair["column"]) for pair in compare_every_pair(report)] == [("b", "c")]
    compared = report.pop("column_comparisons")
    pairs = {(pair["reference"], pair["column"]): pair["rate"] for pair in compare_every_pair(report)}
    assert [*pairs] == [("a", "b"), ("a", "c"), ("b", "c")]
    for pair in compared:
        rate = pairs[pair["baseline_model_id"], pair["model_id"]]
        assert rate == {name: pair["pass_rate"][name] for name in rate}
    assert compare_every_pair(report_of([*PERIODS][: MOST_COLUMNS + 1])) == []


def choose(page, other, reference):
    page.locator("#pick-vs").select_option(other)
    page.locator("#pick-ref").select_option(reference)


@NEEDS_BROWSER
@pytest.mark.slow
def test_two_chosen_columns_have_their_difference_and_a_filter_for_each_end(program, tmp_path):
    report = report_of("abc")
    [rate] = [pair["rate"] for pair in compare_every_pair(report) if pair["reference"] == "b"]
    points = [f"{100 * value:+.1f}".replace("-", "−") for value in (-rate["difference"], *(-v for v in rate["ci95"]))]
    with opened_report(program, tmp_path, report) as shown:
        page = shown.page
        page.keyboard.press("2")
        choose(page, "b", "c")
        shown.settle()
        text = page.locator(".pairtold").inner_text().replace("\xa0", " ")
        assert text == f"{points[0]} points (95 %: {points[2]} to {points[1]}), p = {rate['p_value']:.2g}, 24 cases"
        for name, cases in {
            "Both pass": ended("b", "c", True, True),
            "Only B": ended("b", "c", True, False),
            "Only C": ended("b", "c", False, True),
            "Neither passes": ended("b", "c", False, False),
        }.items():
            button = page.locator(".pair").get_by_role("button", name=re.compile(f"^{name}"))
            assert button.inner_text().split()[-1] == str(len(cases))
            button.click()
            assert told(shown) == f"{len(cases)} of 24 cases"
            assert {*ids_of(shown)} <= cases
        page.reload()
        assert told(shown) == f"{len(cases)} of 24 cases", "the address holds the pair"
        choose(page, "c", "b")
        assert page.locator("#pick-vs").input_value() == "c"


@NEEDS_BROWSER
@pytest.mark.slow
def test_keys_lead_to_the_next_and_previous_case_on_which_the_chosen_columns_differ(program, tmp_path):
    differing = sorted(ended("b", "c", True, False) | ended("b", "c", False, True))
    with opened_report(program, tmp_path, report_of("abc")) as shown:
        page = shown.page
        page.goto(f"{page.url}#/results?ref=b&vs=c&sort=file")
        page.wait_for_selector("main .told")
        marked = "document.activeElement.closest('tr').querySelector('.id').innerText"
        visited = []
        for key in "xxxX":
            page.keyboard.press(key)
            visited.append(shown.value(marked))
        assert visited == [*differing[:3], differing[1]]
        page.keyboard.press("Enter")
        page.wait_for_selector(".answer-box")
        for key, case in {"x": differing[2], "X": differing[1]}.items():
            page.keyboard.press(key)
            page.wait_for_url(re.compile(f"/run/{case}/"))


@NEEDS_BROWSER
@pytest.mark.slow
def test_pairs_of_many_columns_have_a_difference_without_a_test(program, tmp_path):
    with opened_report(program, tmp_path, report_of([*PERIODS])) as shown:
        page = shown.page
        page.goto(f"{page.url}#/results?ref=b&vs=f")
        page.wait_for_selector("main .told")
        assert page.locator(".pairtold").inner_text() == "+16.7 points, 24 cases"
        assert {"B", "F"} <= {*page.locator("thead b").all_inner_texts()}
