from __future__ import annotations

from math import sqrt

import pytest
from support.tool_use_runs import called, evaluated, judgement, note, run, task, use

from pytest_agentbench.packs.mcp_bench.report import judges_cv_percent

SCORES = (8, 6, 7, 5, 4, 3)
"""Axes of 0.7, 0.6 and 0.35."""


def test_the_overall_score_is_the_mean_of_rules_and_axes():
    artifact = run(
        note("round", number=1),
        use("A:one", call_id="1"),
        use("B:one", call_id="2", schema_valid=False),
        note("round", number=2),
        use("Far:one", call_id="3"),
        use("A:none", call_id="4", offered=False, schema_valid=None, is_error=True),
    )
    found = evaluated(task("A", "B", "C"), artifact, judgement(SCORES)).tool_use
    rules = (3 / 4 + 2 / 3 + 3 / 4) / 3
    assert found.rules == pytest.approx(rules)
    assert (found.task_completion, found.tool_selection, found.planning) == pytest.approx((0.7, 0.6, 0.35))
    assert found.overall == pytest.approx((rules + 0.7 + 0.6 + 0.35) / 4)
    assert (found.servers, found.servers_used, found.cross_server) == (3, 2, True)
    assert (found.rounds, found.calls, found.completed) == (2, 4, True)


def test_without_calls_the_overall_score_is_that_of_the_axes():
    found = evaluated(task("A"), run(), judgement(SCORES)).tool_use
    assert found.rules is None
    assert found.overall == pytest.approx((0.7 + 0.6 + 0.35) / 3)
    assert (found.servers_used, found.cross_server, found.rounds) == (0, False, None)


def test_without_a_judge_there_is_no_overall_score():
    evaluation = evaluated(task("A"), run(use("A:one")))
    assert evaluation.tool_use.rules == 1
    assert evaluation.tool_use.overall is evaluation.final_score is None
    assert evaluation.outcome == "passed"


@pytest.mark.parametrize(("event", "runner"), [("request", "llm_probe"), ("round", "mcp_planner")])
def test_rounds_that_call_tools_are_counted_the_same_for_either_runner(event, runner):
    """The last one answers, or only ends the planning."""
    events = (note(event, number=1), use("A:one"), use("A:one"), note(event, number=2), use("A:one"), note(event))
    assert evaluated(task("A"), run(*events, runner_type=runner)).tool_use.rounds == 2
    assert evaluated(task("A"), run(note(event, number=1), runner_type=runner)).tool_use.rounds == 0


@pytest.mark.parametrize(
    ("changes", "completed"),
    [({}, True), ({"answer": " \n"}, False), ({"answer": None}, False), ({"status": "timed_out"}, False)],
)
def test_a_task_is_completed_by_an_answer(changes, completed):
    assert evaluated(task("A"), run(**changes)).tool_use.completed is completed


@pytest.mark.parametrize(
    ("called_tools", "used", "crossed"),
    [(["A:one"], 1, False), (["A:one", "A:two"], 1, False), (["A:one", "B:one"], 2, True)],
)
def test_a_run_crosses_servers_from_two_on(called_tools, used, crossed):
    found = evaluated(task("A", "B"), run(*(use(name) for name in called_tools))).tool_use
    assert (found.servers_used, found.cross_server) == (used, crossed)


def test_a_made_up_tool_uses_no_server():
    artifact = run(called("A:none", offered=False), use("AB:one"))
    assert evaluated(task("A", "B"), artifact).tool_use.servers_used == 0


def test_judges_differ_by_sigma_over_mu_of_their_own_means():
    """Task completion: 7 and 5 of the first (6), 9 of the second: sigma 1.5 of 7.5."""
    judged = judgement(first=[(8, 6, 1, 1, 1, 1), (4, 6, 9, 9, 9, 9)], second=[(9, 9, 2, 2, 2, 2)])
    assert judges_cv_percent(judged) == pytest.approx(20)
    assert judged.cv_percent == pytest.approx(100 * 1 / 6)
    assert judges_cv_percent(judgement(SCORES, SCORES)) is None
    assert judges_cv_percent(judgement(a=[SCORES], b=[(9, 6, 1, 1, 1, 1)], c=[(1, 2, 3, 4, 5, 6)])) == pytest.approx(
        100 * sqrt((7**2 + 7.5**2 + 1.5**2) / 3 - (16 / 3) ** 2) / (16 / 3)
    )
