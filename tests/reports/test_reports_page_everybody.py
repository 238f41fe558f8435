"""The page of a report for everybody, of any report: narrow, dark, read aloud, on paper; hostile, empty, huge."""

from __future__ import annotations

from itertools import pairwise

import pytest
from reports_samples import make_row
from support.browser import NEEDS_BROWSER, contrast, new_page
from support.random_reports import SESSION, random_report
from support.report_pages import opened_report

from pytest_agentbench.errors import UnwritableError
from pytest_agentbench.records.case import Model
from pytest_agentbench.reports.comparison.campaigns import build_campaign
from pytest_agentbench.reports.comparison.comparing import compare
from pytest_agentbench.reports.html.page import write_page
from pytest_agentbench.reports.report import build_report

pytestmark = [NEEDS_BROWSER, pytest.mark.slow]

EVIL = "</title></style></script><script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">"
TURNED = "a\x1b[31mb\u202egnp.exe\u2066"


# -- for everybody, everywhere


@pytest.mark.parametrize("view", ["summary", "results", "comparison", "session"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_have_sufficient_contrast(program, path, view, scheme):
    wanted = {
        "summary": [
            ".note",
            ".lead",
            ".outcome.passed",
            ".outcome.failed",
            ".outcome.error",
            ".verdict li",
            ".warnings li",
            "main a",
            ".reasons small",
            ".models small",
            ".heat a",
            ".quad.failed b",
            "thead th",
            ".chart text",
        ],
        "results": [
            ".searchbox input",
            ".modes button",
            ".modes .n",
            ".pick span",
            ".told",
            "thead th",
            ".colsub",
            ".id",
            ".tagchip",
            ".nums",
            ".text",
            ".exp",
            *(f".sign-of.{verdict}" for verdict in ("passed", "failed", "mixed")),
            ".why.failed",
        ],
        "session": ["h2", "dt", "dd", "thead th", "small"],
        "comparison": [".pill", ".verdict li", ".changes li", ".changes .outcome", "tbody th", ".faint"],
    }
    with new_page(program, color_scheme=scheme) as shown:
        shown.open(path, f"#/{view}")
        shown.page.wait_for_selector(wanted[view][-1])
        for selector in ("body", ".brand a", "nav a", "#help", *wanted[view]):
            assert contrast(shown, selector) >= 4.5, selector


@pytest.mark.parametrize("view", ["summary", "results", "comparison", "session"])
@pytest.mark.parametrize("width", [320, 390, 800])
def test_no_window_is_so_narrow_that_the_page_scrolls_sideways(program, tmp_path, view, width):
    long = "w" * 300
    rows = [
        make_row(case_id=long, message=long, tags=(long,), dataset=long, score=5.0),
        make_row("failed", "b", message=long),
    ]
    report = build_report([*rows, *random_report(2)["runs"]], {**SESSION, "command": [long], "warnings": [long]})
    report["comparison"] = compare(build_campaign(report, long), build_campaign(report)).as_dict()
    path = tmp_path / "long.html"
    write_page(report, path)
    with new_page(program, width=width, height=844) as shown:
        shown.open(path, f"#/{view}")
        shown.page.wait_for_selector("main h1", state="attached")
        if view == "summary":
            shown.page.locator("svg.chart").first.wait_for()
        assert not shown.scrolls_sideways()


@pytest.mark.parametrize("view", ["summary", "results", "comparison", "session"])
def test_the_page_can_be_read_without_seeing_it(program, path, view):
    with new_page(program) as shown:
        shown.open(path, f"#/{view}")
        shown.page.wait_for_selector("main table, main section")
        nameless = """Array.from(document.querySelectorAll("button, a, input, select, [role=region], [role=img]"))
            .filter((each) => !(each.getAttribute("aria-label") || each.textContent.trim() || each.labels?.length))
            .map((each) => each.outerHTML)"""
        assert shown.value(nameless) == []
        assert shown.value("document.querySelectorAll('h1').length") == 1
        assert shown.value("Array.from(document.querySelectorAll('main th')).filter((each) => !each.scope).length") == 0
        ids = shown.value("Array.from(document.querySelectorAll('[id]'), (each) => each.id)")
        assert len(ids) == len(set(ids))
        levels = shown.value(
            "Array.from(document.querySelectorAll('main :is(h1, h2, h3, h4)'), (each) => Number(each.tagName[1]))"
        )
        assert all(after <= before + 1 for before, after in pairwise(levels))


# -- what others wrote, and what is not there


def test_untrusted_text_adds_no_elements_to_the_page(program, tmp_path):
    evil = f"{EVIL} {TURNED}"
    model = Model(model_id=evil, requested_model="x", label=evil)
    rows = [
        make_row("failed", evil, model, message=evil, tags=(evil,), dataset=evil),
        make_row("failed", "b", model, message=EVIL),
    ]
    session = {**SESSION, "command": [evil], "warnings": [evil], "versions": {evil: evil}, "faults": [evil]}
    report = build_report(rows, session)
    report["comparison"] = compare(build_campaign(report, evil), build_campaign(report)).as_dict()
    with opened_report(program, tmp_path, report) as shown:
        shown.page.locator("svg.chart").first.wait_for()
        for view in ("results", "comparison", "session", "summary"):
            shown.page.goto(shown.page.url.split("#")[0] + f"#/{view}")
            shown.page.wait_for_selector("main h1", state="attached")
            text = shown.page.locator("body").inner_text() + shown.page.locator("main").evaluate(
                "(main) => main.outerHTML"
            )
            assert EVIL[:30] in text
            assert not {"\x1b", "\u202e", "\u2066"} & set(text)
            assert "taken" not in shown.page.title()
        assert shown.page.locator("main img, main script").count() == 0
        assert shown.complaints == []
        assert len(shown.requests) == 1


@pytest.mark.parametrize("view", ["summary", "results", "comparison", "session"])
@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([], "no runs"),
        ([make_row()], "1 run"),
        ([make_row("error", f"c{n}", message="ProviderError: 503") for n in range(3)], "3 runs"),
    ],
    ids=["none", "one", "errors"],
)
def test_nothing_one_run_and_only_errors_have_a_page_too(program, tmp_path, rows, says, view):
    with opened_report(program, tmp_path, build_report(rows, {})) as shown:
        shown.page.goto(shown.page.url + f"#/{view}")
        shown.page.wait_for_selector("main h1", state="attached")
        text = shown.page.locator("main").inner_text()
        assert says in text or view != "summary"
        assert "NaN" not in text
        assert "undefined" not in text
        assert "null" not in text
        assert "within –" not in text
        boxes = shown.page.locator("main :is(.counts, .toolbar, thead)")
        assert any(box.is_visible() for box in boxes.all()) == (rows != [] and view in ("summary", "results"))
        assert shown.complaints == []


def test_a_page_that_cannot_be_written_leaves_the_old_one(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UnwritableError, match=r"report\.html: cannot be written"):
        write_page(build_report([], {}), tmp_path / "file" / "report.html")
