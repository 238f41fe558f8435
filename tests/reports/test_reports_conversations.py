"""Runs of several turns in reports: figures in the row, and the page of the run."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.browser import NEEDS_BROWSER
from support.run_pages import opened, run, texts
from support.stored_runs import StoredRuns, answered, asked, called, said, told, verdict

from pytest_agentbench.records.case import Message
from pytest_agentbench.records.evaluation import CheckResult
from pytest_agentbench.records.run import EndDetail, TraceEvent
from pytest_agentbench.reports.html.page import write_page
from pytest_agentbench.reports.reading import report_schema, run_mistake
from pytest_agentbench.statistics.estimates import nearest_rank

TURNS = {"turns": tuple(Message(role="user", content=text) for text in ("Cancel 1042.", "Then 1043.", "Bye."))}


def in_turn(turn: int, *events: TraceEvent) -> list[TraceEvent]:
    return [event.model_copy(update={"turn": turn}) for event in events]


TRACE = [
    said("system", "You are a support agent."),
    *in_turn(
        1,
        said("user", "Cancel 1042.", 1.0),
        *asked(1, 1.0, 0.5),
        called("find_order", {"id": "1042"}, 1.5),
        told("find_order", "open", 1.7),
        said("assistant", "Cancelled.", 2.0),
    ),
    *in_turn(2, said("user", "Then 1043.", 2.0), *asked(2, 2.5, 0.5), said("assistant", "It was sent.", 6.0)),
    *in_turn(3, said("user", "Bye.", 6.0), *asked(3, 6.0, 1.0), said("assistant", "Bye!", 8.0), answered("Bye!", 8.0)),
]
CHECKS = (
    CheckResult(check_id="looked-up", kind="tool_called", turn=1, outcome="passed", message="turn 1: 1 calls"),
    CheckResult(check_id="says-sent", kind="contains", turn=2, outcome="failed", message="turn 2: <b>no</b> such text"),
    CheckResult(check_id="answers", kind="final_response_present", turn="each", outcome="passed", message="3 turns"),
)


@pytest.fixture
def stored(tmp_path):
    stored = StoredRuns(tmp_path / "outputs")
    stored.nodeid = stored.add(trace=TRACE, case=TURNS, outcome="failed", evaluation=verdict("failed", checks=CHECKS))
    return stored


def test_a_row_has_the_turns_of_its_run(stored):
    stored.add("one-turn", trace=[said("user", "Hi"), answered("Hello", 1.0)])
    several, one = stored.rows
    assert several["conversation"] == {"turns": 3, "requests": 3, "turn_seconds": {"p50": 2.0, "p95": 4.0}}
    assert "conversation" not in one
    assert run_mistake(several) is None


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50).map(sorted), st.integers(1, 100))
def test_a_percentile_is_the_least_value_that_so_many_do_not_exceed(values, percent):
    found = nearest_rank(values, percent)
    assert found in values
    assert sum(value <= found for value in values) * 100 >= percent * len(values)
    assert sum(value < found for value in values) * 100 < percent * len(values)


@NEEDS_BROWSER
@pytest.mark.slow
def test_the_page_numbers_turns_and_shows_their_checks_beside_them(stored, tmp_path, program):
    write_page(stored.report, tmp_path / "report.html", output=stored.output)
    with opened(program, tmp_path / "report.html", run(stored.nodeid)) as shown:
        assert texts(shown, ".events .turn") == ["Turn 1 ✓ passed looked-up", "Turn 2 ✗ failed says-sent", "Turn 3"]
        assert "Turns 3" in " ".join(texts(shown, ".run-aside"))


def test_the_schema_has_all_details_of_an_end() -> None:
    rows = report_schema()["$defs"]["run"]["properties"]
    assert rows["end_detail"]["properties"].keys() == EndDetail.model_fields.keys()
