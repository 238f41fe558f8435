"""Charts of the page: drawn, taken along, readable in every scheme and on paper, and what stands there without them."""

from __future__ import annotations

import csv
import io
import re

import pytest
from reports_samples import make_row
from support.browser import NEEDS_BROWSER, contrast, new_page
from support.report_pages import opened, opened_report

from pytest_agentbench.records.case import Model
from pytest_agentbench.reports.charts import COLOURS
from pytest_agentbench.reports.html.page import page_data, page_text, write_page
from pytest_agentbench.reports.report import build_report

pytestmark = [NEEDS_BROWSER, pytest.mark.slow]


def test_charts_are_drawn_and_can_be_taken_along(shown, report):
    page = shown.page
    figure = page.locator("#chart-score-cost")
    figure.locator("svg.marks").wait_for()
    assert "Claude Sonnet 4" in figure.locator("svg.marks").text_content()
    for kind, begins in (("SVG", b"<svg"), ("PNG", b"\x89PNG"), ("CSV", b"model,cost_usd,mean_score")):
        with page.expect_download() as download:
            figure.get_by_role("button", name=kind).click()
        assert download.value.suggested_filename == f"score-cost.{kind.lower()}"
        content = download.value.path().read_bytes()
        assert content.startswith(begins)
    points = list(csv.DictReader(io.StringIO(content.decode())))
    assert [float(point["mean_score"]) for point in points] == [model["mean_score"] for model in report["models"]]
    figure.get_by_text("As a table").click()
    assert figure.locator("tbody tr").count() == 4


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_model_has_a_distinct_colour_of_sufficient_contrast(program, tmp_path, scheme):
    models = [Model(model_id=f"m{n}", requested_model="x") for n in range(len(COLOURS))]
    write_page(build_report([make_row(model=model) for model in models], {}), tmp_path / "report.html")
    with opened(program, tmp_path / "report.html", color_scheme=scheme) as shown:
        shown.page.locator("#chart-pass-rate svg.marks").wait_for()
        marks = [f"#chart-pass-rate .mark-symbol.role-mark path:nth-child({n})" for n in range(1, len(models) + 1)]
        fill = "getComputedStyle(document.querySelector({})).fill"
        assert len({shown.value(fill.format(repr(mark))) for mark in marks}) == len(models)
        assert all(contrast(shown, mark) >= 3 for mark in marks)


def test_prints_and_downloads_of_a_dark_page_are_readable_on_white(program, path):
    with opened(program, path, color_scheme="dark") as shown:
        figure = shown.page.locator("#chart-score-cost")
        figure.locator("svg.marks").wait_for()
        with shown.page.expect_download() as download:
            figure.get_by_role("button", name="SVG").click()
        taken = download.value.path().read_text(encoding="utf-8")
        texts = re.findall(r"<text[^>]* fill=\"([^\"]*)\"", taken)
        assert "background-color: white" in taken or 'fill="white"' in taken
        assert set(texts) == {"#000"}
        shown.page.emulate_media(media="print", color_scheme="light")
        assert contrast(shown, "#chart-score-cost svg.marks text") >= 4.5


def test_csv_of_a_chart_is_no_formula(program, tmp_path):
    name = '=HYPERLINK("http://x","y")'
    with opened_report(
        program, tmp_path, build_report([make_row(model=Model(model_id=name, requested_model="x"))], {})
    ) as page:
        with page.page.expect_download() as download:
            page.page.locator("#chart-pass-rate").get_by_role("button", name="CSV").click()
        (row,) = csv.DictReader(io.StringIO(download.value.path().read_text()))
        assert row["model"] == f"'{name}"


def test_without_the_library_the_page_names_the_package_and_shows_tables(program, report, tmp_path):
    text = re.sub(r'<script type="text/plain" id="library">.*?</script>', "", page_text(page_data(report)))
    path = tmp_path / "plain.html"
    path.write_text(text, encoding="utf-8")
    with new_page(program) as shown:
        shown.open(path)
        assert 'pip install "pytest-agentbench[charts]"' in shown.page.locator("#without-charts").inner_text()
        assert shown.page.locator("#chart-pass-rate tbody tr").count() == 4
        assert shown.page.locator("#chart-pass-rate tbody tr").first.is_visible()
        assert shown.complaints == []
