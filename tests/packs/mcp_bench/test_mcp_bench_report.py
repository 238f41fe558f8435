from __future__ import annotations

import json
from math import fsum
from statistics import fmean

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reports.reports_samples import make_row
from support.tool_use_runs import evaluated, judgement, note, run, task, task_row, use

from pytest_agentbench.packs.mcp_bench.records import TOOL_USE_DIMENSIONS
from pytest_agentbench.packs.mcp_bench.report import summarize_tool_use
from pytest_agentbench.records.run import Usage
from pytest_agentbench.reports.assertion import failure_report, headline
from pytest_agentbench.reports.reading import report_schema
from pytest_agentbench.reports.report import build_report, suite_properties
from pytest_agentbench.reports.rows import user_properties
from pytest_agentbench.reports.terminal import write_summary
from pytest_agentbench.statistics.estimates import score_interval, wilson_interval

SCHEMA = jsonschema.Draft202012Validator(report_schema())
GOOD, FAIR, POOR = (9, 9, 8, 8, 7, 7), (6, 6, 5, 5, 4, 4), (2, 2, 1, 1, 1, 1)


def row(case_id, *servers, scores=None, model="gpt", repetition=1, calls=2, rounds=1, tokens=1000, **fields):
    """Return a run whose first `rounds` calls are in separate rounds, before a round that only ends the planning."""
    events = []
    for at in range(calls):
        events += [note("round", number=at)] if at < rounds else []
        events += use(f"{servers[at % len(servers)]}:tool", call_id=str(at))
    events.append(note("round", number=rounds + 1))
    artifact = run(events, usage=Usage(input_tokens=tokens, output_tokens=0, total_tokens=tokens), **fields)
    judged = None if scores is None else judgement(scores, scores)
    return task_row(task(*servers, case_id=case_id), artifact, judged, model, repetition)


ROWS = [
    row("a", "One", scores=GOOD, rounds=2),
    row("b", "One", scores=FAIR, calls=0),
    row("c", "One", "Two", scores=POOR, calls=4, rounds=4),
    row("d", "One", "Two", "Three", scores=FAIR, rounds=2, status="timed_out"),
]


def means(group):
    return {name: figure["mean"] for name, figure in group["figures"].items()}


def overall(case_id):
    return next(row["tool_use"]["overall"] for row in ROWS if row["case_id"] == case_id)


def test_a_model_has_the_figures_of_its_tasks_by_the_number_of_servers():
    found = summarize_tool_use(ROWS)
    total = means(found["total"])
    assert (found["total"]["tasks"], found["single_server"]["tasks"], found["multi_server"]["tasks"]) == (4, 2, 2)
    assert {count: group["tasks"] for count, group in found["by_servers"].items()} == {"1": 2, "2": 1, "3": 1}
    assert total["overall"] == pytest.approx(fmean(map(overall, "abcd")))
    assert means(found["single_server"])["overall"] == pytest.approx(fmean(map(overall, "ab")))
    assert means(found["by_servers"]["2"])["overall"] == pytest.approx(overall("c"))
    assert total["overall"] * 4 == pytest.approx(
        means(found["single_server"])["overall"] * 2 + means(found["multi_server"])["overall"] * 2
    )
    assert total["task_fulfillment"] == pytest.approx(fmean([9, 6, 2, 6]))
    assert (total["rounds"], total["calls"], total["tokens"]) == (2, 2, 1000)
    assert (total["completed"], total["servers_used"]) == (0.75, pytest.approx(1.25))
    assert means(found["multi_server"])["cross_server"] == 1


def test_tasks_with_unknown_figures_are_left_out_of_the_mean():
    names = summarize_tool_use(ROWS)["total"]["figures"]["valid_tool_name_rate"]
    assert names == {"mean": 1.0, "ci95": None, "tasks": 3}  # b called no tool
    plans = summarize_tool_use(ROWS)["total"]["figures"]["planning_json_compliance"]
    assert plans == {"mean": None, "ci95": None, "tasks": 0}


def test_intervals_are_over_tasks():
    found = summarize_tool_use(ROWS)["total"]["figures"]
    assert found["overall"]["ci95"] is None  # of four tasks
    more = summarize_tool_use([*ROWS, row("e", "One", scores=FAIR)])["total"]["figures"]
    five = [[overall(name)] for name in "abcd"] + [[overall_of(FAIR)]]
    assert more["overall"]["ci95"] == pytest.approx(score_interval(five))
    assert 1 <= more["task_fulfillment"]["ci95"][0] < more["task_fulfillment"]["ci95"][1] <= 10
    assert found["completed"]["ci95"] == pytest.approx(wilson_interval(3, 4))


def test_repetitions_count_as_one_task():
    often = [row("a", "One", scores=GOOD, repetition=number) for number in range(1, 6)]
    found = summarize_tool_use([*often, row("b", "One", scores=POOR)])["total"]
    high, low = often[0]["tool_use"]["overall"], overall_of(POOR)
    assert (found["tasks"], found["runs"]) == (2, 6)
    assert found["figures"]["overall"]["mean"] == pytest.approx((high + low) / 2)


def overall_of(scores):
    return row("x", "One", scores=scores)["tool_use"]["overall"]


def test_the_repetitions_of_a_single_task_are_the_sample():
    rows = [
        row("a", "One", scores=scores, repetition=at) for at, scores in enumerate((GOOD, FAIR, POOR, FAIR, GOOD), 1)
    ]
    values = [each["tool_use"]["overall"] for each in rows]
    assert summarize_tool_use(rows)["total"]["figures"]["overall"]["ci95"] == pytest.approx(score_interval([values]))


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 10), st.integers(1, 3)), min_size=1, max_size=8))
@pytest.mark.slow
def test_the_total_is_the_task_weighted_mean_of_its_groups(tasks):
    rows = [
        row(f"t{at}", *"ABC"[:servers], scores=(score,) * 6, repetition=repetition)
        for at, (servers, score, repetitions) in enumerate(tasks)
        for repetition in range(1, repetitions + 1)
    ]
    found = summarize_tool_use(rows)
    groups = found["by_servers"].values()
    weighted = fsum(group["tasks"] * means(group)["overall"] for group in groups) / len(tasks)
    assert means(found["total"])["overall"] == pytest.approx(weighted)


def test_both_coefficients_of_variation_are_means_over_tasks():
    """Of task completion: 7 and 5 of one judge, sigma 1 of 6; judges at 6 and 8, sigma 1 of 7."""
    first = judgement((7, 7, 1, 1, 1, 1), (5, 5, 1, 1, 1, 1))
    second = judgement(one=[(6, 6, 1, 1, 1, 1)], other=[(8, 8, 1, 1, 1, 1)])
    rows = [
        task_row(task("A", case_id="a"), run(), first),
        task_row(task("A", case_id="b"), run(), second),
        task_row(task("A", case_id="c"), run(), judgement(GOOD, GOOD)),
    ]
    figures = summarize_tool_use(rows)["total"]["figures"]
    assert figures["cv_percent"]["mean"] == pytest.approx(100 / 6 / 2)
    assert figures["judges_cv_percent"] == {"mean": pytest.approx(100 / 7), "ci95": None, "tasks": 1}


def test_other_runs_have_none_of_this():
    report = build_report([make_row("passed", score=7.0), make_row("error")], {})
    assert [run["tool_use"] for run in report["runs"]] == [None, None]
    assert report["models"][0]["tool_use"] is None


def test_the_report_keeps_its_contract():
    report = json.loads(json.dumps(build_report([*ROWS, make_row("passed", model="other")], {})))
    properties = dict(suite_properties(report))
    session = {"session"}  # what a session itself adds
    errors = [error for error in SCHEMA.iter_errors(report) if error.absolute_path[0] not in session]
    assert [error.message for error in errors] == []
    assert properties["agentbench.model.gpt.tool_use.total"] == pytest.approx(fmean(map(overall, "abcd")))
    assert properties["agentbench.model.gpt.tool_use.single_server"] == pytest.approx(fmean(map(overall, "ab")))


def test_junit_has_how_a_run_used_its_tools():
    found = dict(user_properties(ROWS[2]))
    assert found["agentbench.tool_use.overall"] == overall("c")
    assert (found["agentbench.tool_use.calls"], found["agentbench.tool_use.cross_server"]) == (4, True)
    assert found["agentbench.metric.execution_success_rate"] == 1
    assert {f"agentbench.judge.{name}" for name in TOOL_USE_DIMENSIONS} < found.keys()
    assert "agentbench.tool_use.overall" not in dict(user_properties(row("a", "One")))


class Lines:
    hasmarkup, verbosity, no_summary = False, 0, False

    def __init__(self):
        self.text = ""

    def write(self, content, **_):
        self.text += content

    def line(self, msg="", **_):
        self.text += f"{msg}\n"

    write_line = line

    def write_sep(self, sep, title=None, **_):
        self.line(title)


def test_the_summary_has_a_line_for_each_model_that_ran_mcp_tasks():
    written = Lines()
    write_summary(written, build_report([*ROWS, make_row("passed", model="other")], {}))
    [line] = [line for line in written.text.splitlines() if "per task" in line]
    assert line == (
        f"  gpt: overall {fmean(map(overall, 'abcd')):.3f}; valid tool names 100.0%, arguments 100.0%, calls 100.0%; "
        "2.0 rounds, 2.0 calls per task, 4 tasks"
    )


def test_a_failed_task_shows_the_parts_of_its_score():
    case, artifact = task("A"), run(use("A:one"))
    evaluation = evaluated(case, artifact, judgement(POOR))
    said = "(rules 1.00, task completion 0.20, tool selection 0.10, planning 0.10)"
    assert headline(case, artifact, evaluation) == f"overall: scored 3.5, at least 5.0 of 10 is wanted {said}"
    text = failure_report(case, artifact, evaluation, None)
    assert text.startswith(f"overall: scored 3.5, at least 5.0 of 10 is wanted {said}\n    reason:   It misses half.")
