"""The baseline of a session of one model as a column of the grid, and in the view of a run, in a real browser."""

from __future__ import annotations

import pytest
from support.browser import NEEDS_BROWSER
from support.report_pages import opened, rows_of
from support.run_pages import ready, texts
from support.stored_runs import StoredRuns, answered

from pytest_agentbench.reports.comparison.campaigns import build_campaign
from pytest_agentbench.reports.comparison.comparing import compare
from pytest_agentbench.reports.html.page import write_page

pytestmark = [NEEDS_BROWSER, pytest.mark.slow]


def session(folder, failed, word, cases="abc"):
    stored = StoredRuns(folder)
    for name in cases:
        trace = [answered(f"Your parcel {name} {word} leave our warehouse on Monday.", 1.0)]
        outcome = {"outcome": "failed", "message": "check x: no"} if name in failed else {}
        stored.add(name, trace=trace, **outcome)
    return stored


def test_the_baselines_answers_stand_next_to_those_of_the_session(program, tmp_path):
    before, now = session(tmp_path / "old", "b", "did"), session(tmp_path / "new", "a", "will", "abcd")
    report = now.report
    report["comparison"] = compare(build_campaign(before.report, "base.json"), build_campaign(report)).as_dict()
    write_page(report, tmp_path / "report.html", output=now.output)
    with opened(program, tmp_path / "report.html") as shown:
        shown.value("location.hash = '#/results?sort=file'")
        assert rows_of(shown).count() == 4
        assert texts(shown, "thead .colhead b") == ["baseline", "GPT-4o"]
        assert texts(shown, "td.base") == [
            "passed Your parcel a did leave our warehouse on Monday.",
            "failed Your parcel b did leave our warehouse on Monday.",
            "same verdict",
            "not judged there",
        ]
        shown.page.get_by_label("Mark").select_option("ref")
        assert texts(shown, "tbody ins") == ["will", "will"]
        assert texts(shown, "tbody del") == ["did", "did"]
        shown.page.get_by_role("link", name="a, GPT-4o").click()
        ready(shown)
        shown.page.get_by_text("Baseline", exact=False).first.click()
        assert shown.page.get_by_label("Answer in the baseline").inner_text().startswith("Your parcel a did")
