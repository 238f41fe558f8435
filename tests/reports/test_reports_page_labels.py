"""Labels that a reader gives on the page, in a real browser, up to the agreement that is computed from them."""

from __future__ import annotations

import json

import pytest
from support.browser import NEEDS_BROWSER, contrast, new_page
from support.run_pages import opened, ready, run, texts
from support.stored_runs import StoredRuns, answered, said
from support.watching import BEGUN, SPENT, watching

from pytest_agentbench.cli import main
from pytest_agentbench.reports.html.page import write_page
from pytest_agentbench.reports.human_agreement import read_labels
from pytest_agentbench.reports.journal import Journal
from pytest_agentbench.reports.report import write_report

pytestmark = [NEEDS_BROWSER, pytest.mark.slow]


@pytest.fixture
def stored(tmp_path):
    """Three judged runs, and one that nothing judged."""
    stored = StoredRuns(tmp_path / "outputs")
    for name in ("a", "b", "c", "unjudged"):
        stored.add(name, trace=[said("user", name), answered(f"Answer {name}", 1.0)])
    for at, row in enumerate(stored.rows[:3]):
        verdict = {"by": "judge", "judge": "a" * 16, "rubric": "c" * 16, "models": ["m"], "passed": True, "score": None}
        row |= {"run_id": f"run-{at}", "judged": [verdict]}
    return stored


def test_labels_of_the_page_are_saved_and_compared_with_the_judge(program, stored, tmp_path):
    write_page(stored.report, tmp_path / "report.html", output=stored.output)
    write_report(stored.report, tmp_path / "report.json")
    with opened(program, tmp_path / "report.html", "#/run/a/gpt4o/1?sort=file") as shown:
        page = shown.page
        page.get_by_role("button", name="Pass").click()
        page.keyboard.press("n")
        page.locator(".rail [aria-current]", has_text="b").wait_for()
        ready(shown)
        page.keyboard.press("-")
        page.get_by_label("Note on your label").fill('It names "no" date')
        page.get_by_label("Note on your label").press("Escape")
        page.keyboard.press("n")
        page.keyboard.press("n")
        page.locator(".rail [aria-current]", has_text="unjudged").wait_for()
        ready(shown)
        page.keyboard.press("+")
        assert texts(shown, ".labelbox [aria-pressed=true]") == ["Pass"]
        page.get_by_role("button", name="Save 3 labels").click()
        page.get_by_label("Your name").fill("ann")
        with page.expect_download() as download:
            page.get_by_role("button", name="Save 3 labels").click()
        download.value.save_as(tmp_path / "human.jsonl")
        page.keyboard.press("Escape")
        page.keyboard.press("Escape")
        page.get_by_role("button", name="Labelled 3").click()
        assert texts(shown, "td span.thumb") == ["your label: Pass", "your label: Fail", "your label: Pass"]
    labels = read_labels(tmp_path / "human.jsonl")
    assert [(label.verdict, label.comment, label.blind) for label in labels] == [
        ("passed", None, False),
        ("failed", 'It names "no" date', False),
        ("passed", None, False),
    ]
    arguments = ["report", str(tmp_path / "report.json"), "--human", str(tmp_path / "human.jsonl")]
    assert main([*arguments, "--json", str(tmp_path / "joined.json")]) == 0
    human = json.loads((tmp_path / "joined.json").read_text())["human"]
    assert (human["counted"], human["not_blind"], human["left_out"]["other_run"]) == (2, 2, 1)
    assert human["judges"][0]["only_judge_passed"] == human["judges"][0]["both_passed"] == 1


def test_a_label_can_be_taken_back_and_survives_loading_the_page_again(program, stored, tmp_path):
    write_page(stored.report, tmp_path / "report.html", output=stored.output)
    with opened(program, tmp_path / "report.html", run(stored.rows[0]["nodeid"])) as shown:
        button = shown.page.get_by_role("button", name="Fail")
        button.click()
        assert contrast(shown, ".thumb[aria-pressed=true]") >= 4.5
        shown.page.on("dialog", lambda dialog: dialog.accept())
        shown.page.reload()
        ready(shown)
        assert texts(shown, ".labelbox [aria-pressed=true]") == ["Fail"]
        button.click()
        assert shown.page.get_by_role("button", name="Save").count() == 0


def test_watch_appends_labels_to_the_file_if_the_page_has_its_token(program, stored, tmp_path):
    journal = Journal(stored.output, BEGUN, pytest.fail)
    for at, row in enumerate(stored.rows):
        journal.row(row, at, SPENT)
    human = tmp_path / "human.jsonl"
    with watching(stored.output) as watched, new_page(program) as shown:
        shown.open(f"{watched.url}#/run/a/gpt4o/1")
        ready(shown)
        shown.page.keyboard.press("+")
        shown.page.get_by_role("button", name="Save 1 label").wait_for()
        assert not human.exists()
        shown.open(f"{watched.url}?token={watched.token}#/run/unjudged/gpt4o/1")
        ready(shown)
        shown.page.get_by_label("Note on your label").fill("fine")
        shown.page.keyboard.press("Tab")
        shown.page.get_by_role("button", name="Pass").click()
        shown.page.get_by_text("Stored in human.jsonl.").wait_for()
    journal.close()
    [label] = read_labels(human)
    assert (label.run_id, label.verdict, label.comment, label.rubric) == ("run-3", "passed", "fine", None)
