"""The grid of cases against columns: what it shows, filters, search, the address, the keyboard."""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from urllib.parse import quote

import pytest
from reports_samples import make_row
from support.browser import NEEDS_BROWSER, new_page
from support.random_reports import MODELS, SESSION, random_report
from support.report_pages import ROW, ids_of, opened_report, rows_of, told

from pytest_agentbench.records.case import Message, Model
from pytest_agentbench.reports.html.page import write_page
from pytest_agentbench.reports.report import build_report

pytestmark = [NEEDS_BROWSER, pytest.mark.slow]

ONE, TWO = (Model(model_id=name, requested_model=name, label=name.title()) for name in ("one", "two"))
REFUND = {"messages": (Message(role="user", content="Where is my refund?"),), "reference": "7 March"}


def cells_of(report):
    """Return the outcomes of each case on each model."""
    cells = defaultdict(lambda: defaultdict(list))
    for row in report["runs"]:
        cells[row["case_id"]][row["model_id"]].append(row["outcome"])
    return cells


def verdict_of(outcomes):
    passed, failed = "passed" in outcomes, "failed" in outcomes
    if passed and failed:
        return "mixed"
    return next(name for name in ("passed", "failed", "error", "skipped") if name in outcomes)


def visit(shown, fragment):
    shown.page.goto(shown.page.url.split("#")[0] + fragment)
    shown.page.wait_for_selector("main .told")


def show(shown, text):
    shown.page.locator(".modes").get_by_role("button", name=re.compile(f"^{text}")).click()


def number_of(shown, text):
    shown.settle()
    button = shown.page.locator(".modes").get_by_role("button", name=re.compile(f"^{text}"))
    return int(button.locator(".n").inner_text().replace(",", ""))


def tick(page, button, *names):
    """Open a filter's list, tick what has these names, and close it."""
    page.locator(".choice").get_by_role("button", name=button).click()
    for name in names:
        page.locator(".choices:popover-open").get_by_label(name).click()
    page.keyboard.press("Escape")


# -- what it shows


def test_a_row_has_the_question_the_expected_answer_and_each_columns_answer(program, tmp_path):
    why = "check contains: '7 March' is missing"
    rows = [
        make_row("failed", "refund", ONE, answer="In 5 days.", score=3.5, message=why, tags=("money",), **REFUND),
        make_row("passed", "refund", TWO, answer="It came on 7 March.", score=9.0, **REFUND),
        make_row("failed", "refund", TWO, 2, answer="I do not know.", score=4.0, message=why, **REFUND),
        make_row("error", "other", ONE, message="HTTP 503: overloaded", **REFUND),
    ]
    with opened_report(program, tmp_path, build_report(rows, SESSION)) as shown:
        shown.page.keyboard.press("2")
        refund = rows_of(shown).filter(has_text="money")
        assert " ".join(refund.locator("th").inner_text().split()) == "Where is my refund? refund money"
        assert refund.locator("td").first.inner_text() == "7 March"
        one, two = (" ".join(text.split()) for text in refund.locator("td.ans").all_inner_texts())
        assert one == f"failed 3.5 $0.0123 1.5 s {why} In 5 days."
        assert two == f"1/2 better 4 $0.0123 1.5 s {why} I do not know."
        heads = [" ".join(text.split()) for text in shown.page.locator("thead th").all_inner_texts()]
        assert heads[:2] == ["Question", "Expected"]
        assert heads[2] == "One reference 0/1 0 % one score · cost · time"
        other = rows_of(shown).filter(has_text="503")
        assert "no answer" in other.inner_text()
        refund.locator("td.ans").nth(1).locator(".text").click()
        shown.page.wait_for_selector(".answer-box")
        assert "I do not know." in shown.page.locator(".answer-box").inner_text(), "a cell opens its own run"


def test_reports_without_questions_and_expected_answers_have_a_grid_too(program, tmp_path):
    report = build_report([make_row("passed", "capital", ONE), make_row("failed", "river", ONE)], SESSION)
    for row in report["runs"]:
        for name in ("title", "question", "expected", "answer"):
            row.pop(name)  # as in a report of an earlier version
    with opened_report(program, tmp_path, report) as shown:
        shown.page.keyboard.press("2")
        assert ids_of(shown) == ["river", "capital"]
        assert shown.page.locator("thead th").count() == 2
        assert not shown.page.locator(".modes").get_by_text("Differs").is_visible()


def test_each_filter_shows_its_cases_and_their_number(shown, report):
    shown.page.keyboard.press("2")
    verdicts = {case: {verdict_of(outcomes) for outcomes in cells.values()} for case, cells in cells_of(report).items()}
    expected = {
        "All": set(verdicts),
        "Failed": {case for case, found in verdicts.items() if "failed" in found},
        "Differs": {case for case, found in verdicts.items() if len(found) > 1},
        "Flaky": {case for case, found in verdicts.items() if "mixed" in found},
        "Errors": {row["case_id"] for row in report["runs"] if row["outcome"] == "error"},
        "Must pass": {row["case_id"] for row in report["runs"] if row["must_pass"]},
    }
    for name, cases in expected.items():
        assert number_of(shown, name) == len(cases), name
        show(shown, name)
        if cases:
            assert told(shown) == (f"{len(cases)} of 17 cases" if len(cases) < 17 else "17 cases")
            assert set(ids_of(shown)) <= cases, name


def test_changes_since_the_baseline_are_marked_and_can_be_listed(shown, report):
    shown.page.keyboard.press("2")
    (changed, *_) = report["comparison"]["models"]
    lists = [
        changes for model in report["comparison"]["models"] for changes in (model["regressions"], model["by_chance"])
    ]
    worse = {change["case_id"] for changes in lists for change in changes if change["difference"] < 0}
    assert number_of(shown, "Regressed") == len(worse) > 0
    show(shown, "Regressed")
    assert set(ids_of(shown)) <= worse
    assert "worse" in rows_of(shown).first.inner_text()
    shown.page.locator("#pick-ref").select_option("gpt4o")
    assert "ref=gpt4o" in shown.value("location.hash")
    assert "reference" in shown.page.locator("thead th").nth(2).inner_text()
    assert changed["model_id"] == "gpt4o"


def test_differences_to_the_reference_and_expected_words_are_marked(program, tmp_path):
    left = "The parcel left our warehouse on Monday and came on 7 March to you."
    right = "The parcel left our warehouse on Friday and came on 7 March to you."
    rows = [make_row("passed", "a", model, answer=text, **REFUND) for model, text in ((ONE, left), (TWO, right))]
    rows += [make_row("passed", "b", ONE, answer=left), make_row("passed", "b", TWO, answer="Nothing of that at all")]
    with opened_report(program, tmp_path, build_report(rows, SESSION)) as shown:
        shown.page.keyboard.press("2")
        rows_of(shown)
        shown.page.keyboard.press("d")
        assert rows_of(shown).locator(".hit").all_inner_texts() == ["7 March", "7 March"]
        shown.page.keyboard.press("d")
        cell = rows_of(shown).first.locator("td.ans").nth(1)
        assert [cell.locator(mark).inner_text().strip() for mark in ("del", "ins")] == ["Monday", "Friday"]
        assert "all different" in rows_of(shown).nth(1).inner_text()


# -- search and address


def test_a_search_marks_its_words_and_stands_in_the_address(program, tmp_path):
    long = "word " * 60 + "Needle of gold. " + "word " * 60
    rows = [make_row("passed", "a", ONE, answer="needless"), make_row("failed", "b", ONE, answer=long, message="x: y")]
    with opened_report(program, tmp_path, build_report(rows, SESSION)) as shown:
        page = shown.page
        page.keyboard.press("/")
        before = shown.value("history.length")
        page.keyboard.type('"needle of"')
        assert told(shown) == "1 of 2 cases"
        assert rows_of(shown).locator("mark").all_inner_texts() == ["Needle of"]
        assert rows_of(shown).locator("mark").first.is_visible()
        assert page.get_by_label("Search").evaluate("(box) => box === document.activeElement")
        assert shown.value("history.length") == before
        page.get_by_label("Search").fill("needle -gold")
        assert ids_of(shown) == ["a"]
        page.reload()
        assert ids_of(shown) == ["a"]
        assert page.get_by_label("Search").input_value() == "needle -gold"
        page.keyboard.press("/")
        page.get_by_label("Search").fill("nothing-has-this")
        assert told(shown) == "0 of 2 cases"
        assert "No case contains “nothing-has-this”" in page.locator("main").inner_text()
        page.get_by_role("button", name="Clear all").click()
        assert told(shown) == "2 cases"
        assert page.get_by_label("Search").input_value() == ""
        page.get_by_label("Search").fill("needless")
        show(shown, "Failed")
        page.get_by_role("link", name="Search “needless” in all cases").click()
        assert ids_of(shown) == ["a"]


def test_filters_stand_in_the_address_and_survive_a_reload_and_going_back(shown, report):
    page, rows = shown.page, report["runs"]
    page.keyboard.press("2")
    tags = sorted({tag for row in rows for tag in row["tags"]})[:2]
    tick(page, "All tags", *tags)
    tagged = {row["case_id"] for row in rows if {*tags} & {*row["tags"]}}
    assert told(shown) == f"{len(tagged)} of 17 cases"
    tick(page, "All fields", "difficulty: easy")
    easy = {row["case_id"] for row in rows if row["fields"].get("difficulty") == "easy"} & tagged
    assert told(shown) == f"{len(easy)} of 17 cases"
    tick(page, "All columns", "GPT-4o")
    tick(page, "GPT-4o", "demo")
    assert page.locator("thead th").count() == 2 + 2 or not easy
    address = shown.value("location.hash")
    assert re.match(r"#/results\?tag=.*&field=.*&cols=.*cols=demo", address)
    page.reload()
    page.wait_for_selector("main .told")
    assert told(shown) == f"{len(easy)} of 17 cases"
    for _ in range(3):
        page.go_back()
    assert told(shown) == f"{len(tagged)} of 17 cases"
    assert page.locator("#filter-tag").inner_text() == "2 tags"


def test_addresses_of_earlier_versions_lead_to_the_same(shown, report):
    failed = next(row for row in report["runs"] if row["outcome"] == "failed" and row["model_id"] == "claude")
    run = f"#/run/{failed['case_id']}/claude/{failed['repetition']}"
    case = failed["nodeid"].rpartition("[")[0]
    old = {
        "#view=runs&outcome=failed&model=claude&q=report&tag=web": "#/results?show=failed&q=report&tag=web&cols=claude",
        "#view=matrix&only=flaky": "#/results?show=flaky",
        "#view=overview": "#/summary",
        f"#run={quote(failed['nodeid'], safe='')}": run,
        f"#compare={quote(failed['nodeid'], safe='')}&with=x": f"{run}?side=1",
        f"#case={quote(case, safe='')}": f"#/run/{failed['case_id']}/gpt4o/1",
    }
    for before, after in old.items():
        shown.page.goto(shown.page.url.split("#")[0] + before)
        shown.settle()
        assert shown.value("location.hash") == after


@pytest.mark.parametrize(
    "fragment", ["#/results?show=constructor&ref=x&lines=9&sort=y&mark=z&cols=q", "#/results?sort=score:x"]
)
def test_nonsense_in_the_address_shows_all_cases(shown, fragment):
    visit(shown, fragment)
    assert told(shown) == "17 cases"


def test_an_address_of_no_view_or_no_run_says_so(shown):
    for fragment, says in (
        ("#/__proto__", "No such view"),
        ("#view=nothing", "No such view"),
        ("#/run/a%/b", "No such run"),
    ):
        shown.page.goto(shown.page.url.split("#")[0] + fragment)
        shown.settle()
        assert shown.page.locator("main h1").inner_text() == says


# -- order, rows, columns


def test_cases_are_ordered_by_trouble_the_file_cost_and_score(program, tmp_path):
    outcomes = {"a": "passed", "b": "error", "c": "skipped", "d": "failed"}
    rows = [make_row(outcome, name, ONE, score=None if name != "a" else 2.0) for name, outcome in outcomes.items()]
    rows += [
        make_row("passed", "e", ONE, seconds=99.0, score=9.0),
        make_row("passed", "f", ONE, 1),
        make_row("failed", "f", ONE, 2),
    ]
    with opened_report(program, tmp_path, build_report(rows, SESSION)) as shown:
        shown.page.keyboard.press("2")
        assert ids_of(shown) == ["d", "b", "f", "c", "a", "e"]
        order = shown.page.get_by_label("Order")
        order.select_option("As in the file")
        assert ids_of(shown) == ["a", "b", "c", "d", "e", "f"]
        order.select_option("Slowest")
        assert ids_of(shown)[0] == "e"
        order.select_option("Lowest score of One")
        assert ids_of(shown)[:2] == ["a", "e"]


@pytest.mark.parametrize(("width", "lines"), [(1440, "4"), (1150, "4"), (1440, "12"), (1440, "1")])
def test_no_row_is_higher_than_reckoned_and_no_line_is_cut(program, path, width, lines):
    with new_page(program, width=width, height=2000) as shown:
        shown.open(path, f"#/results?lines={lines}")
        shown.page.wait_for_selector(ROW)
        off = """Array.from(document.querySelectorAll("tr[data-at]"))
            .filter((row) => Math.abs(row.getBoundingClientRect().height - parseFloat(row.style.height)) > 1).length"""
        assert shown.value(off) == 0
        cut = """Array.from(document.querySelectorAll("td.ans .clip"), (clip) => [clip, clip.lastElementChild])
            .map((boxes) => boxes.map((box) => box.getBoundingClientRect().bottom))
            .filter(([clip, text]) => text > clip + 1).length"""
        assert lines == "1" or shown.value(cut) == 0
        assert not shown.scrolls_sideways()


def test_of_many_columns_the_reference_and_the_best_are_shown(program, tmp_path):
    models = [Model(model_id=f"m{n}", requested_model="m") for n in range(9)]
    rows = [
        make_row("passed" if case < n else "failed", f"c{case}", model)
        for n, model in enumerate(models)
        for case in range(8)
    ]
    with opened_report(program, tmp_path, build_report(rows, SESSION)) as shown:
        shown.page.keyboard.press("2")
        assert rows_of(shown).count() == 8
        assert shown.page.locator("thead b").all_inner_texts() == ["m0", "m6", "m7", "m8"]
        assert shown.page.locator("#filter-cols").inner_text() == "4 columns"
        tick(shown.page, "4 columns", "m0")
        assert shown.page.locator("thead b").all_inner_texts() == ["m6", "m7", "m8"]


def test_the_list_is_saved_as_csv_without_formulas(program, tmp_path):
    rows = [make_row("failed", "a", ONE, answer='=cmd "x"', message="no", **REFUND), make_row("passed", "b", ONE)]
    with opened_report(program, tmp_path, build_report(rows, SESSION)) as shown:
        shown.page.keyboard.press("2")
        show(shown, "Failed")
        with shown.page.expect_download() as download:
            shown.page.get_by_role("button", name="CSV").click()
        download.value.save_as(tmp_path / "results.csv")
    lines = list(csv.reader((tmp_path / "results.csv").read_text(encoding="utf-8-sig").splitlines()))
    assert lines[0] == ["case", "tags", "question", "expected", "One", "One passed", "One why"]
    assert lines[1] == ["cases/test.yaml::a", "", "Where is my refund?", "7 March", '\'=cmd "x"', "0 of 1", "no"]
    assert len(lines) == 2


# -- keyboard, going back, phone, paper


def test_keys_move_between_cells_and_open_them(shown):
    page = shown.page
    page.keyboard.press("2")
    rows_of(shown)

    def place():
        return page.evaluate(
            "[document.activeElement.closest('tr').dataset.at, document.activeElement.closest('td').dataset.col]"
        )

    page.keyboard.press("j")
    page.keyboard.press("j")
    assert place() == ["1", "gpt4o"]
    page.keyboard.press("l")
    page.keyboard.press("l")
    page.keyboard.press("h")
    assert place() == ["1", "claude"]
    for _ in range(12):
        page.keyboard.press("j")
    assert place() == ["13", "claude"]
    box = page.evaluate("document.activeElement.getBoundingClientRect().toJSON()")
    assert 150 < box["top"] < 800
    page.keyboard.press("k")
    assert place() == ["12", "claude"]
    page.keyboard.press("Enter")
    page.wait_for_selector(".answer-box")
    assert "/claude/" in shown.value("location.hash")
    page.keyboard.press("Escape")
    rows_of(shown)
    page.keyboard.press("f")
    assert "show=failed" in shown.value("location.hash")
    page.keyboard.press("f")
    assert "show=differs" in shown.value("location.hash")
    page.keyboard.press("?")
    assert page.get_by_role("dialog").is_visible()


def test_going_back_leads_to_the_cell_that_was_left(shown):
    page = shown.page
    page.keyboard.press("2")
    rows_of(shown)
    for _ in range(12):
        page.keyboard.press("j")
    page.keyboard.press("l")
    left = shown.value("scrollY")
    page.keyboard.press("Enter")
    page.wait_for_selector(".answer-box")
    assert shown.value("scrollY") == 0
    page.go_back()
    page.wait_for_selector(f"{ROW}[data-at='11'] [data-col=claude] a:focus")
    assert shown.value("scrollY") == left > 500
    page.reload()
    page.wait_for_selector(f"{ROW}[data-at='11'] [data-col=claude] a:focus")
    assert shown.value("scrollY") == left


@pytest.mark.parametrize("width", [360, 800])
def test_narrow_windows_have_cards(program, path, width):
    with new_page(program, width=width, height=800) as shown:
        shown.open(path, "#/results")
        shown.page.wait_for_selector(".qcard")
        assert not shown.page.locator("table.grid").is_visible()
        assert shown.page.locator(".qcard").first.locator(".acard").count() == 4
        assert not shown.scrolls_sideways()
        shown.page.locator(".acard").first.click()
        shown.page.wait_for_selector(".answer-box")
        assert not shown.scrolls_sideways()


def test_the_first_three_hundred_cases_are_on_paper(program, tmp_path):
    with opened_report(program, tmp_path, random_report(310, MODELS[:2], 1)) as shown:
        shown.page.keyboard.press("2")
        rows_of(shown)
        shown.page.emulate_media(media="print")
        shown.value("dispatchEvent(new Event('beforeprint'))")
        assert rows_of(shown).count() == 300
        assert shown.page.get_by_text("The first 300 of 310 cases.").is_visible()
        assert shown.page.locator("#q").is_hidden()
        shown.value("dispatchEvent(new Event('afterprint'))")
        shown.page.emulate_media(media="screen")
        assert rows_of(shown).count() < 40


def test_ten_thousand_runs_have_few_rows_in_the_page_and_are_searched_in_time(program, tmp_path):
    report = random_report(834, MODELS, 3)
    write_page(report, tmp_path / "report.html")
    assert (tmp_path / "report.html").stat().st_size < 12_000_000
    with new_page(program) as shown:
        shown.open(tmp_path / "report.html", "#/results")
        assert rows_of(shown).count() < 40
        assert told(shown) == "834 cases"
        shown.page.keyboard.press("End")
        shown.page.wait_for_selector(f"{ROW}[data-at='833']")
        shown.settle()
        seconds = shown.value(
            """(() => {
              const begun = performance.now();
              const box = document.getElementById("q");
              box.value = "answer voucher -nothing";
              box.dispatchEvent(new Event("input"));
              return (performance.now() - begun) / 1000;
            })()"""
        )
        assert 0 < seconds < 1
        shown.page.get_by_label("Search").fill(f"id:{report['runs'][-1]['case_id']}")
        assert told(shown) == "1 of 834 cases"


def test_variants_are_columns_of_one_case_and_parameters_are_cases(program, tmp_path):
    rows = [{**make_row("passed", "a", f"m:{name}"), "model_id": "m", "variant": name} for name in ("v1", "v2")]
    test = {**make_row("passed", "test", "m:v1"), "model_id": "m", "variant": "v1"}
    rows += [{**test, "parameters": each} for each in ("x", "y")]
    with opened_report(program, tmp_path, build_report(rows, SESSION)) as shown:
        shown.page.keyboard.press("2")
        assert ids_of(shown) == ["a", "test", "test"]
        assert shown.page.locator("thead b").all_inner_texts() == ["m:v1", "m:v2"]
