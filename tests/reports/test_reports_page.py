"""The page of a report as somebody clicks through it: summary, session, comparison, and their links to cases."""

from __future__ import annotations

import re

import pytest
from reports_samples import DEMO, make_row
from support.browser import NEEDS_BROWSER
from support.random_reports import SESSION
from support.report_pages import ids_of, opened_report, rows_of, told

from pytest_agentbench.records.case import Model
from pytest_agentbench.reports.comparison.campaigns import build_campaign
from pytest_agentbench.reports.comparison.comparing import compare
from pytest_agentbench.reports.report import build_report

pytestmark = [NEEDS_BROWSER, pytest.mark.slow]


# -- what it tells


def test_the_overview_tells_the_verdict_the_models_and_what_failed(shown, report):
    page, totals = shown.page, report["totals"]
    assert page.title() == "Summary · support-bot"
    worst = min(report["comparison"]["models"], key=lambda model: model["pass_rate"]["difference"])
    points = -100 * worst["pass_rate"]["difference"]
    assert f"{worst['model_id']} falls behind the baseline by {points:.1f} points" in page.locator("h1").inner_text()
    facts = page.locator(".headline .note").inner_text()
    assert "204 runs of 17 cases on 4 models" in facts
    assert "Gate failed" in facts
    assert page.locator(".headline .verdict li").count() == len(report["session"]["gate"]["reasons"])
    assert f"{totals['passed']} passed" in page.locator(".counts").inner_text()
    assert page.locator("table.models tbody tr").count() == 4
    first = page.locator("table.models tbody tr").first.inner_text()
    assert "GPT-4o" in first
    assert f"{100 * report['models'][0]['pass_rate']:.1f} %" in first
    median = f"{report['models'][0]['duration_seconds']['p50']:.1f} s"
    assert f"{median}\n95 % within" in first
    rows = page.locator(".reasons tbody tr").all()
    counts = [sum(map(int, row.locator("td").all_inner_texts())) for row in rows]
    assert counts == sorted(counts, reverse=True)
    assert sum(counts) == totals["failed"] + totals["errors"]
    assert "judge costs are incomplete" in page.locator(".warnings").inner_text()


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ([], "Nothing ran."),
        ([make_row("skipped")], "Nothing ran: 1 run skipped."),
        ([make_row("error", f"c{n}") for n in range(3)], "Too little was judged: 3 of 3 runs ended in errors."),
        (
            [make_row("passed", "a", DEMO), make_row("failed", "b", DEMO)],
            "2 runs had scripted replies, 1 passed. That says nothing about a model.",
        ),
        ([make_row("passed"), make_row("failed", "b")], r"GPT-4o passes 50 % of 2 runs( \(\d+ % to \d+ %\))?\."),
    ],
    ids=["none", "skipped", "errors", "scripted", "one"],
)
def test_the_first_sentence_claims_no_more_than_the_runs_do(program, tmp_path, rows, sentence):
    with opened_report(program, tmp_path, build_report(rows, SESSION)) as shown:
        assert re.fullmatch(sentence, shown.page.locator("h1").inner_text())


def test_a_reason_leads_to_the_cases_that_failed_for_it(shown, report):
    link = shown.page.locator(".reasons th > a").first
    reason = link.inner_text()
    link.click()
    cases = {row["case_id"] for row in report["runs"] if reason in (row["message"] or "")}
    assert told(shown) == f"{len(cases)} of 17 cases"
    assert sorted(ids_of(shown)) == sorted(cases)
    shown.page.get_by_role("button", name=f"Remove the filter {reason}").click()
    assert told(shown) == "17 cases"


def test_judges_and_comparison_have_their_places(shown, report):
    shown.page.get_by_role("link", name="Session", exact=True).click()
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
        assert shown.page.locator(".reasons thead th").all_inner_texts() == ["Reason", "one", "two"]
        reasons = shown.page.locator(".reasons tbody tr")
        assert [" ".join(text.split()) for text in reasons.all_inner_texts()] == [
            "! error HTTP 503 a overloaded 1 1",
            "✗ failed metric m b no 1 0",
            "! error metric m b no 1 0",
        ]
        reasons.nth(2).locator("th > a").click()
        assert rows_of(shown).count() == 1


def test_one_mistake_in_many_lines_is_one_reason(program, tmp_path):
    places = [*(f"/home/me/bench/cases/tasks.json:{n}" for n in range(3)), "C:\\cases\\a.yaml:4:7"]
    said = [f"{place}: nothing decides this task" for place in places]
    rows = [make_row("error", f"c{n}", message=message) for n, message in enumerate(said)]
    rows.append(make_row("failed", "d", message="check a.b: 12: found 13"))
    with opened_report(program, tmp_path, build_report(rows, SESSION)) as shown:
        reasons = [" ".join(text.split()) for text in shown.page.locator(".reasons tbody tr").all_inner_texts()]
        assert reasons == ["! error nothing decides this task c0 4", "✗ failed check a.b d 12: found 13 1"]
        shown.page.locator(".reasons th > a").first.click()
        assert rows_of(shown).count() == 4


def test_parts_of_the_poet_score_stand_together_by_model(program, tmp_path):
    models = [Model(model_id=name, requested_model=name) for name in ("one", "two")]
    metrics = {"race": 0.6, "race_insight": 0.7, "cost_saving_usd": 180.0, "poet": 0.78, "rouge_l": 0.4}
    rows = [{**make_row("passed", "a", model), "metrics": metrics} for model in models]
    with opened_report(program, tmp_path, build_report(rows, SESSION)) as shown:
        groups = shown.page.locator("table.scores tbody")
        texts = [[" ".join(line.split()) for line in text.splitlines()] for text in groups.all_inner_texts()]
        assert texts == [
            ["Runs", "Tokens of a run 1.28K 1.28K"],
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
        shown.page.get_by_role("link", name="Session", exact=True).click()
        shown.settle()
        told = shown.page.locator("main").inner_text()
        assert "left out: 2 of runs that are not in this report, 1 said otherwise later" in told
        assert "llm_judgement (m): no run has a label that counts." in told
        assert "1 run, by tests that the solution could change" in told
        assert "in 1 run, which were decided without them" in told
        shown.page.get_by_text("They disagree on 12 runs").click()
        shown.page.get_by_role("link", name="case-11").click()
        marks = shown.page.locator(".marks").inner_text()
        assert "people disagree with the judge" in marks
        assert "passed, 1 of 2 checks skipped" in marks
        assert "graded in the solution's own process" in marks


def test_tab_leads_first_to_the_content_past_the_links(shown):
    page = shown.page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    assert shown.value("location.hash") == ""
