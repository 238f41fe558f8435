"""The page's summary: what the first sentence claims, columns side by side, charts in every scheme and on paper."""

from __future__ import annotations

import re

import pytest
from reports_samples import make_row
from support.browser import NEEDS_BROWSER, contrast
from support.random_reports import SESSION
from support.report_pages import ids_of, opened, opened_report, told

from pytest_agentbench.records.case import Model
from pytest_agentbench.records.run import Usage
from pytest_agentbench.reports.comparison.campaigns import build_campaign
from pytest_agentbench.reports.comparison.comparing import add_column_comparisons, compare
from pytest_agentbench.reports.html.page import write_page
from pytest_agentbench.reports.report import build_report

pytestmark = [NEEDS_BROWSER, pytest.mark.slow]

ONE, TWO = (Model(model_id=name, requested_model="m", label=name.upper()) for name in ("a", "b"))
TOPICS = ("billing", "refund", "shipping")


def column(model, passes, cost=0.01):
    """Return rows of 10 cases of each topic on a model; `passes` decides by topic and number."""
    return [
        make_row(
            "passed" if passes(topic, number) else "failed",
            f"faq.{topic}_{number}",
            model,
            usage=Usage(cost_usd=cost),
            message=None if passes(topic, number) else "check words: missing",
            tags=(topic,),
        )
        for topic in TOPICS
        for number in range(10)
    ]


def two_columns(first, second):
    report = build_report([*column(ONE, first), *column(TWO, second, cost=0.05)], SESSION)
    add_column_comparisons(report)
    return report


@pytest.fixture(scope="module")
def clear():
    """A passes a third of all cases, B all but refunds."""
    return two_columns(lambda _, number: number < 3, lambda topic, _: topic != "refund")


def test_the_first_sentence_tells_the_tested_difference_and_what_the_better_column_fails(program, tmp_path, clear):
    [verdict] = clear["column_comparisons"]
    low, high = (100 * end for end in verdict["pass_rate"]["ci95"])
    with opened_report(program, tmp_path, clear) as shown:
        sentence = shown.page.locator("h1").inner_text().replace("\xa0", " ")
        p = f"{verdict['pass_rate']['p_value']:.2g}"
        assert sentence == f"B beats A by 36.7 points (95 %: {low:.1f} to {high:.1f}), p = {p}; it fails refund_*."
        lines = shown.page.locator(".lead").inner_text()
        assert "B: 14 cases got better, 3 cases got worse." in lines
        shown.page.get_by_role("link", name="3 cases got worse").click()
        assert sorted(ids_of(shown)) == ["faq.refund_0", "faq.refund_1", "faq.refund_2"]
        shown.page.go_back()
        shown.page.get_by_role("link", name="refund_*").click()
        assert told(shown) == "10 of 30 cases"


def test_a_difference_that_may_be_chance_is_not_claimed(program, tmp_path):
    report = two_columns(lambda _, number: number < 8, lambda _, number: number < 9)
    with opened_report(program, tmp_path, report) as shown:
        sentence = shown.page.locator("h1").inner_text()
        assert sentence == "No difference between B and A can be told from 30 cases: 90 % and 80 % pass."
        assert "30 cases can show a difference of" in shown.page.locator(".lead").inner_text()
        assert "may be chance" in shown.page.locator(".models td.against").nth(1).inner_text()


@pytest.mark.parametrize(
    ("before", "sentence"),
    [
        (9, "A passes 80 % of 30 cases, the baseline passed 90 %: too little a difference to tell."),
        (10, r"A falls behind the baseline by 20\.0 points \(95 %: .*\), p = .*; it fails 6 cases\."),
        (2, r"A beats the baseline by 60\.0 points \(95 %: .*\), p < 0\.0001; it fails 6 cases\."),
    ],
)
def test_one_column_is_measured_against_its_baseline(program, tmp_path, before, sentence):
    report = build_report(column(ONE, lambda _, number: number < 8), SESSION)
    base = build_report(column(ONE, lambda _, number: number < before), SESSION)
    report["comparison"] = compare(build_campaign(base, "base.json"), build_campaign(report)).as_dict()
    with opened_report(program, tmp_path, report) as shown:
        assert re.fullmatch(sentence, shown.page.locator("h1").inner_text().replace("\xa0", " "))
        assert shown.page.locator("thead", has_text="Against the baseline").count() == 1


def test_columns_stand_side_by_side_and_their_figures_lead_to_cases(program, tmp_path, clear):
    with opened_report(program, tmp_path, clear) as shown:
        page = shown.page
        first, second = page.locator("table.models tbody tr").all()
        assert "reference" in first.inner_text()
        assert second.get_attribute("class") == "best"
        assert [part.split("\n")[0] for part in second.locator("td").all_inner_texts()] == [
            *("66.7 %", "", "+36.7", "$0.0500", "1.5 s"),
        ]
        dots = [page.locator(f"table.models tr:nth-child({n}) .dot").bounding_box()["x"] for n in (1, 2)]
        assert dots[0] < dots[1]
        assert page.locator(".topics tbody tr").all_inner_texts() == [
            "billing\t10\t30 %\t100 %",
            "refund\t10\t30 %\t0 %",
            "shipping\t10\t30 %\t100 %",
        ]
        page.locator(".topics").get_by_role("link", name="0 %", exact=True).click()
        assert told(shown) == "10 of 30 cases"
        page.go_back()
        page.locator(".reasons tbody td a").first.click()
        assert told(shown) == "21 of 30 cases"


def test_cases_lost_to_the_reference_lead_to_their_runs(program, tmp_path, clear):
    with opened_report(program, tmp_path, clear) as shown:
        assert shown.page.locator(".quad").all_inner_texts() == [
            "14 better on B",
            "3 worse than A",
            "6 pass on both",
            "7 pass on neither",
        ]
        shown.page.locator(".lost a").first.click()
        shown.settle()
        assert "#/run/faq.refund_0/b/1" in shown.page.url


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_charts_are_drawn_without_a_library_in_every_scheme_and_on_paper(program, tmp_path, clear, scheme):
    write_page(clear, tmp_path / "report.html")
    with opened(program, tmp_path / "report.html", color_scheme=scheme) as shown:
        for chart in ("cost", "times"):
            assert {"A", "B"} <= set(shown.page.locator(f"#chart-{chart} .name").all_text_contents())
            for text in ("text:not(.name)", ".name"):
                assert contrast(shown, f"#chart-{chart} {text}") >= 4.5
        assert (
            shown.page.locator("#chart-cost svg")
            .get_attribute("aria-label")
            .startswith("Pass rate against the cost of a run. A: 30 % at $0.0100; B: 67 % at $0.0500.")
        )
        shown.page.emulate_media(media="print", color_scheme="light")
        assert contrast(shown, "#chart-cost .name") >= 4.5
