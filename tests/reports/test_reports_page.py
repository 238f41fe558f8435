"""The page of a report as somebody clicks through it: what it tells, filters, the address, the matrix, the keyboard."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl

import pytest
from reports_samples import make_row
from support.browser import NEEDS_BROWSER
from support.random_reports import SESSION
from support.report_pages import ROW, opened_report, rows_of, told

from pytest_agentbench.records.case import Model
from pytest_agentbench.reports.comparison.campaigns import build_campaign
from pytest_agentbench.reports.comparison.comparing import compare
from pytest_agentbench.reports.report import build_report

pytestmark = [NEEDS_BROWSER, pytest.mark.slow]


def fragment(shown):
    return parse_qsl(shown.value("location.hash.slice(1)"))


def tick(page, button, *names):
    """Opens a filter's list and ticks what has these names; Escape closes it."""
    page.get_by_role("button", name=button).click()
    for name in names:
        page.locator(".choices:popover-open").get_by_label(name, exact=True).click()
    page.keyboard.press("Escape")


# -- what it tells


def test_the_overview_tells_the_verdict_the_models_and_what_failed(shown, report):
    page, totals = shown.page, report["totals"]
    assert page.title() == "Overview · Agent benchmark"
    assert page.locator("h1").inner_text() == "204 runs, 4 models"
    assert "Gate failed" in page.locator(".verdict").inner_text()
    assert f"{totals['passed']} passed" in page.locator(".cards").inner_text()
    assert page.locator("table.models tbody tr").count() == 4
    first = page.locator("table.models tbody tr").first.inner_text()
    assert "GPT-4o" in first
    assert f"{100 * report['models'][0]['pass_rate']:.1f} %" in first
    median = f"{report['models'][0]['duration_seconds']['p50']:.1f} s"
    assert f"{median}\nmedian; 95 % within" in first
    reasons = page.locator(".reasons > li > p")
    counts = [int(re.search(r"(\d+) runs?:", text)[1]) for text in reasons.all_inner_texts()]
    assert counts == sorted(counts, reverse=True)
    assert sum(counts) == totals["failed"] + totals["errors"]
    assert "judge costs are incomplete" in page.locator(".warnings").inner_text()


def test_a_reason_leads_to_the_runs_that_failed_for_it(shown):
    reason = shown.page.locator(".reasons > li > p").first
    runs = int(re.search(r"(\d+) runs?:", reason.inner_text())[1])
    reason.locator("a").click()
    assert rows_of(shown).count() > 0
    assert told(shown) == f"{runs} of 204 runs"


def test_judges_and_comparison_have_their_places(shown, report):
    judges = shown.page.locator("table.judges tbody tr")
    assert judges.count() == 2
    assert "gpt-4.1" in judges.first.inner_text()
    assert f"{report['judges'][0]['alpha']:.3g}" in judges.first.inner_text()
    shown.page.get_by_role("link", name="Comparison", exact=True).click()
    shown.settle()
    model = report["comparison"]["models"][0]
    assert model["summary"] in shown.page.locator("main").inner_text()
    assert shown.page.locator(".verdict.failed li").all_inner_texts() == report["comparison"]["failures"]
    regressions = shown.page.locator("main section").first.locator("details", has_text="Regressions")
    assert regressions.locator("li").count() == len(model["regressions"]) > 0


def test_one_trouble_of_several_models_is_one_reason_and_errors_are_not_failures(program, tmp_path):
    models = [Model(model_id=name, requested_model=name) for name in ("one", "two")]
    busy = "model '{}' at http://127.0.0.1:9/v1: HTTP 503: overloaded"
    rows = [make_row("error", "a", model, message=busy.format(model.model_id)) for model in models]
    rows += [make_row(outcome, "b", models[0], message="metric m: no") for outcome in ("failed", "error")]
    with opened_report(program, tmp_path, build_report(rows, SESSION)) as shown:
        reasons = shown.page.locator(".reasons > li > p")
        told = [" ".join(text.split()) for text in reasons.all_inner_texts()]
        assert told == [
            "! error HTTP 503 · 2 runs: 1 on one, 1 on two",
            "✗ failed metric m · 1 run: 1 on one",
            "! error metric m · 1 run: 1 on one",
        ]
        assert "overloaded" in shown.page.locator(".reasons li li").first.inner_text()
        reasons.nth(2).locator("a").click()
        assert rows_of(shown).count() == 1


def test_one_mistake_in_many_lines_is_one_reason(program, tmp_path):
    places = [*(f"/home/me/bench/cases/tasks.json:{n}" for n in range(3)), "C:\\cases\\a.yaml:4:7"]
    said = [f"{place}: nothing decides this task" for place in places]
    rows = [make_row("error", f"c{n}", message=message) for n, message in enumerate(said)]
    rows.append(make_row("failed", "d", message="check a.b: 12: found 13"))
    with opened_report(program, tmp_path, build_report(rows, SESSION)) as shown:
        reasons = [" ".join(text.split()) for text in shown.page.locator(".reasons > li > p").all_inner_texts()]
        assert reasons == [
            "! error nothing decides this task · 4 runs: 4 on GPT-4o",
            "✗ failed check a.b · 1 run: 1 on GPT-4o",
        ]
        assert "/home/me/bench/cases/tasks.json:0" in shown.page.locator(".reasons li li").first.inner_text()
        shown.page.locator(".reasons > li > p a").first.click()
        assert rows_of(shown).count() == 4


def test_parts_of_the_poet_score_stand_together_by_model(program, tmp_path):
    models = [Model(model_id=name, requested_model=name) for name in ("one", "two")]
    metrics = {"race": 0.6, "race_insight": 0.7, "cost_saving_usd": 180.0, "poet": 0.78, "rouge_l": 0.4}
    rows = [{**make_row("passed", "a", model), "metrics": metrics} for model in models]
    with opened_report(program, tmp_path, build_report(rows, SESSION)) as shown:
        groups = shown.page.locator("table.scores tbody")
        texts = [[" ".join(line.split()) for line in text.splitlines()] for text in groups.all_inner_texts()]
        assert texts == [
            [
                "Research reports (POET)",
                "POET score 0.78 0.78",
                "RACE 0.6 0.6",
                "Insight 0.7 0.7",
                "Cost saved $180 $180",
            ],
            ["Metrics", "rouge_l 0.4 0.4"],
        ]


def test_the_comparison_shows_of_many_metrics_those_that_differ(program, tmp_path):
    def report_of(race, insight):
        metrics = {"race": race, "race_insight": insight}
        rows = [{**make_row("passed", name), "metrics": metrics} for name in "abc"]
        return build_report(rows, SESSION)

    now = report_of(0.5, 0.7)
    now["comparison"] = compare(build_campaign(report_of(0.6, 0.7), "base.json"), build_campaign(now)).as_dict()
    with opened_report(program, tmp_path, now) as shown:
        shown.page.get_by_role("link", name="Comparison", exact=True).click()
        scores = shown.page.locator("main details", has_text="Metrics and judges")
        assert scores.locator("summary").inner_text() == "Metrics and judges: 1 of 2 differ"
        scores.locator("summary").click()
        assert scores.locator("tbody tr").inner_text().split("\t")[:4] == ["race (metric)", "3", "0.6", "0.5"]
        assert "The same on both sides: race_insight (metric)." in scores.inner_text()
        head, body = (
            shown.page.locator(f"table.differences {part}").first.bounding_box() for part in ("thead", "tbody")
        )
        assert (head["x"], head["width"]) == (body["x"], body["width"])
        assert head["y"] + head["height"] == body["y"]


def test_where_people_disagree_with_a_judge_is_listed_and_said_of_the_run(program, tmp_path):
    rows = [make_row("passed", f"case-{n}") for n in range(12)]
    check = {"check_id": "verify", "kind": "verify", "outcome": "passed", "message": "1 of 1", "graded": "in process"}
    rows[11]["checks"] = [check, {**check, "check_id": "hook", "outcome": "skipped", "graded": "apart"}]
    report = build_report(rows, SESSION)
    names = ("n", "both_passed", "both_failed", "only_people_passed", "only_judge_passed")
    figures = ("agreement", "agreement_ci95", "kappa", "kappa_ci95", "pabak", "prevalence_index", "bias_index")
    none = {"models": ["m"], "kappa_undefined": "no run has a label that counts", "disagreements": []}
    none = {**none, **dict.fromkeys(names, 0), **dict.fromkeys(figures)}
    some = {**none, "n": 12, "agreement": 0.5, "disagreements": [row["nodeid"] for row in rows]}
    left_out = {"other_run": 2, "other_judge": 0, "other_rubric": 0, "superseded": 1}
    judges = [{**some, "by": "judge"}, {**none, "by": "llm_judgement"}]
    report["human"] = {"labels": 15, "counted": 12, "left_out": left_out, "between_annotators": None, "judges": judges}
    with opened_report(program, tmp_path, report) as shown:
        told = shown.page.locator("main").inner_text()
        assert "left out: 2 of runs that are not in this report, 1 said otherwise later" in told
        assert "llm_judgement (m): no run has a label that counts." in told
        assert "1 run, by tests that the solution could change" in told
        assert "in 1 run, which were decided without them" in told
        shown.page.get_by_text("They disagree on 12 runs").click()
        shown.page.get_by_role("link", name="case-11").click()
        marks = shown.page.locator("p.marks").inner_text()
        assert "people disagree with the judge" in marks
        assert "passed, 1 of 2 checks skipped" in marks
        assert "graded in the solution's own process" in marks


# -- filters, search, the address


def test_filters_and_search_stand_in_the_address_and_survive_a_reload_and_going_back(shown, report):
    page = shown.page
    page.get_by_role("link", name="Runs", exact=True).click()
    page.get_by_role("button", name=re.compile("^failed")).click()
    failed = [row for row in report["runs"] if row["outcome"] == "failed"]
    assert told(shown) == f"{len(failed)} of 204 runs"
    tick(page, "All models", "qwen3-32b")
    narrowed = [row for row in failed if row["model_id"] == "qwen3-32b"]
    assert told(shown) == f"{len(narrowed)} of 204 runs"
    page.get_by_label("Search").fill("REPORT.md missing")
    wanted = [row for row in narrowed if "report.md" in row["message"]]
    assert told(shown) == f"{len(wanted)} of 204 runs"
    assert fragment(shown) == [
        ("view", "runs"),
        ("outcome", "failed"),
        ("model", "qwen3-32b"),
        ("q", "REPORT.md missing"),
    ]
    page.reload()
    assert rows_of(shown).count() == len(wanted)
    assert page.get_by_label("Search").input_value() == "REPORT.md missing"
    assert page.locator("#filter-model").inner_text() == "qwen3-32b"
    page.go_back()
    assert told(shown) == f"{len(failed)} of 204 runs"
    page.go_back()
    assert told(shown) == "204 runs"
    page.go_back()
    page.wait_for_selector("table.models")


def test_typing_makes_no_history_and_keeps_the_caret(shown):
    page = shown.page
    page.get_by_role("link", name="Runs", exact=True).click()
    before = shown.value("history.length")
    page.get_by_label("Search").press_sequentially("translate")
    assert page.get_by_label("Search").evaluate("(box) => box === document.activeElement && box.value") == "translate"
    assert shown.value("history.length") == before


def test_a_search_for_nothing_says_so_and_everything_can_be_shown_again(shown):
    page = shown.page
    page.goto(page.url.split("#")[0] + "#view=runs&q=no-such-thing&outcome=passed")
    assert told(shown) == "0 of 204 runs"
    assert "No run passes these filters." in page.locator("main").inner_text()
    page.get_by_role("link", name="Show all").click()
    assert told(shown) == "204 runs"
    assert page.get_by_label("Search").input_value() == ""


def test_tags_datasets_and_kinds_of_runs_narrow_too(shown, report):
    page, rows = shown.page, report["runs"]
    page.get_by_role("link", name="Runs", exact=True).click()
    tag = next(tag for row in rows for tag in row["tags"])
    tick(page, "All tags", tag)
    assert told(shown) == f"{sum(tag in row['tags'] for row in rows)} of 204 runs"
    page.get_by_role("link", name="Show all").click()
    page.get_by_label("All runs").select_option("must_pass")
    assert told(shown) == f"{sum(row['must_pass'] for row in rows)} of 204 runs"
    page.get_by_label("All runs").select_option("flaky")
    flaky = {(case["case_id"], case["model_id"]) for case in report["cases"] if case["passed"] and case["failed"]}
    wanted = sum((row["case_id"], row["model_id"]) in flaky for row in rows)
    assert told(shown) == f"{wanted} of 204 runs"


def test_several_models_and_tags_at_once_by_keyboard_too(shown, report):
    page, rows = shown.page, report["runs"]
    page.get_by_role("link", name="Runs", exact=True).click()
    rows_of(shown)
    tick(page, "All models", "GPT-4o", "demo")
    wanted = [row for row in rows if row["model_id"] in ("gpt4o", "demo")]
    assert told(shown) == f"{len(wanted)} of 204 runs"
    assert fragment(shown) == [("view", "runs"), ("model", "gpt4o"), ("model", "demo")]
    button = page.locator("#filter-model")
    assert button.inner_text() == "2 models"
    assert page.evaluate("document.activeElement.id") == "filter-model"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    assert fragment(shown) == [("view", "runs"), ("model", "demo")]
    page.keyboard.press("Escape")
    assert button.inner_text() == "demo"
    page.goto(page.url.replace("model=demo", "model=gone"))
    assert told(shown) == "0 of 204 runs"
    tick(page, "gone", "gone")
    assert told(shown) == "204 runs"


def test_the_list_sorts_by_a_column_and_unknown_comes_last(shown, report):
    page = shown.page
    page.get_by_role("link", name="Runs", exact=True).click()
    rows_of(shown)
    page.get_by_role("button", name="Cost").click()
    dearest = max(row["cost_usd"]["run"] or 0 for row in report["runs"])
    assert rows_of(shown).first.locator(".c-cost").inner_text() == f"${dearest:.4f}"
    assert ("sort", "-cost") in fragment(shown)
    assert page.locator("th[aria-sort=descending]").inner_text().startswith("Cost")
    page.get_by_role("button", name="Cost").click()
    assert rows_of(shown).first.locator(".c-cost").inner_text() == "$0"
    page.keyboard.press("End")
    page.wait_for_selector(f"{ROW}[data-at='203']")
    assert rows_of(shown).last.locator(".c-cost").inner_text() == "–"


def test_an_address_of_no_view_or_of_nonsense_says_so(shown):
    shown.page.goto(shown.page.url.split("#")[0] + "#view=__proto__")
    shown.settle()
    assert shown.page.locator("h1").inner_text() == "No such view"
    shown.page.goto(shown.page.url.split("#")[0] + "#outcome=nonsense&view=runs&sort=-nothing&only=nothing")
    shown.page.wait_for_selector(".told")
    shown.page.goto(shown.page.url.split("#")[0] + "#view=runs&only=constructor")
    assert told(shown).startswith("0 of ")
    assert shown.complaints == []


def test_going_back_leads_to_the_row_that_was_left(shown):
    page = shown.page
    page.get_by_role("link", name="Runs", exact=True).click()
    rows_of(shown)
    for _ in range(100):
        page.keyboard.press("j")
    left = shown.value("scrollY")
    page.keyboard.press("Enter")
    page.wait_for_selector(".run-head")
    assert shown.value("scrollY") == 0
    page.go_back()
    page.wait_for_selector(f"{ROW}[data-at='99'] a:focus")
    assert shown.value("scrollY") == left > 1_000
    page.reload()
    page.wait_for_selector(f"{ROW}[data-at='99'] a:focus")
    assert shown.value("scrollY") == left
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.closest('tr').dataset.at") == "100"
    page.get_by_role("link", name="Cases × models").click()
    page.wait_for_selector("table.matrix")
    assert shown.value("scrollY") == 0


def test_going_back_leads_to_the_case_that_was_left_in_the_matrix(shown):
    page = shown.page
    page.set_viewport_size({"width": 900, "height": 400})
    page.keyboard.press("2")
    page.wait_for_selector("table.matrix")
    for _ in range(17):
        page.keyboard.press("j")
    name = shown.value("document.activeElement.textContent")
    page.keyboard.press("Enter")
    page.wait_for_selector(".case")
    page.go_back()
    page.wait_for_selector(f"{ROW}[data-at='16'] a:focus")
    assert shown.value("document.activeElement.textContent") == name
    assert shown.value("document.querySelector('.both-ways').scrollTop") > 0


# -- the matrix, the keyboard


def test_the_matrix_begins_with_the_cases_of_most_trouble(program, tmp_path):
    rows = [
        make_row(outcome, name) for name, outcome in zip("abcd", ("passed", "error", "skipped", "failed"), strict=True)
    ]
    rows += [make_row("passed", "d", repetition=2)]
    with opened_report(program, tmp_path, build_report(rows, SESSION)) as shown:
        shown.page.get_by_role("link", name="Cases × models").click()
        shown.page.locator("table.matrix").wait_for()
        assert shown.page.locator(f"{ROW} th").all_inner_texts() == ["b", "d", "a", "c"]


def test_the_matrix_has_a_cell_for_each_case_and_model_that_leads_to_its_runs(shown, report):
    page = shown.page
    page.get_by_role("link", name="Cases × models").click()
    page.locator("table.matrix").wait_for()
    assert page.locator("table.matrix thead th").all_inner_texts() == [
        "17 cases",
        *(model["label"] or model["model_id"] for model in report["models"]),
    ]
    assert page.locator(ROW).count() == 17
    name = page.locator(f"{ROW} th a").first.inner_text()
    case = next(case for case in report["cases"] if case["case_id"] == name)
    cell = page.locator(f"{ROW} td a").first
    judged = case["passed"] + case["failed"]
    assert f"{case['passed']}/{judged}" in cell.inner_text()
    assert cell.get_attribute("aria-label").startswith(f"{case['case_id']}, GPT-4o: 3 runs: ")
    cell.click()
    first = next(row for row in report["runs"] if row["case_id"] == name)
    assert dict(fragment(shown))["case"] == first["nodeid"].rpartition("[")[0]


def test_the_keyboard_reaches_everything(shown):
    page = shown.page
    page.keyboard.press("3")
    rows_of(shown)
    page.keyboard.press("j")
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.closest('tr').dataset.at") == "1"
    for _ in range(60):
        page.keyboard.press("j")
    assert page.evaluate("document.activeElement.closest('tr').dataset.at") == "61"
    box = page.evaluate("document.activeElement.getBoundingClientRect().toJSON()")
    assert 0 < box["top"] < 800
    page.keyboard.press("k")
    assert page.evaluate("document.activeElement.closest('tr').dataset.at") == "60"
    page.keyboard.press("/")
    page.keyboard.type("3?")
    assert page.get_by_label("Search").input_value() == "3?"
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    assert page.get_by_role("dialog").is_visible()
    page.keyboard.press("Escape")
    assert not page.get_by_role("dialog").is_visible()
    page.keyboard.press("1")
    page.wait_for_selector("table.models")
    page.keyboard.press("3")
    rows_of(shown)
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    assert fragment(shown)[0][0] == "run"


def test_the_keyboard_begins_at_the_row_in_sight(shown):
    page = shown.page
    page.keyboard.press("3")
    rows_of(shown)
    shown.value("scrollTo(0, 3000)")
    page.keyboard.press("j")
    box = page.evaluate("document.activeElement.closest('tr').getBoundingClientRect().toJSON()")
    assert 50 < box["top"] < 300
    assert shown.value("scrollY") == pytest.approx(3_000, abs=100)


def test_tab_leads_first_to_the_content_past_the_links(shown):
    page = shown.page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    assert shown.value("location.hash") == ""
