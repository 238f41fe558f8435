"""From a session to the details of its runs: every row leads to the stored run and verdict that the page shows."""

from __future__ import annotations

import pytest

from pytest_agentbench.reports.html.details import run_detail


@pytest.mark.slow
@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_rows_lead_to_their_run_and_verdict_also_where_both_are_reused(bench, workers):
    bench.agent()
    bench.case("paris")
    bench.case("rome", metadata={"says": "Rome"})
    first = bench.spawn("cases", "--agentbench-repetitions", "2", *workers)
    again = bench.spawn("cases", "--agentbench-repetitions", "2", *workers)
    assert [row["reused"] for row in again.report["runs"]] == [True] * 4
    for finished in (first, again):
        for row in finished.report["runs"]:
            detail = run_detail(row, bench.path / "outputs")
            assert detail["notes"] == []
            assert detail["run"]["fingerprint"] == row["fingerprint"]
            assert detail["evaluation"]["outcome"] == row["outcome"]
            assert detail["evaluation"]["run_id"] == detail["run"]["run_id"]


@pytest.mark.slow
def test_a_report_of_before_tells_that_its_runs_were_made_again(bench):
    bench.agent()
    bench.case("paris")
    before = bench.spawn("cases").report["runs"][0]
    bench.spawn("cases", "--agentbench-no-reuse")
    (note,) = run_detail(before, bench.path / "outputs")["notes"]
    assert note.startswith(f"{before['artifact']}: the case was run again since this report was made")
