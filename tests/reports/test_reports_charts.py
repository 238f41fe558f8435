from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest
from reports_samples import DEMO, MODEL, make_row
from support.cpu_seconds import at_most
from support.random_reports import MODELS, random_report

from pytest_agentbench.records.case import Model
from pytest_agentbench.records.run import Usage
from pytest_agentbench.reports.charts import (
    MOST_BOXES,
    PASS_RATE,
    SCORE,
    against_cost,
    charts,
    scores,
    times,
    write_chart,
)
from pytest_agentbench.reports.drawing import WIDTH, Axis, svg_text
from pytest_agentbench.reports.report import build_report
from pytest_agentbench.reports.rows import Report
from pytest_agentbench.reports.topics import MOST_GROUPS, find_topics

FEW = Model(model_id="few", requested_model="few")


def marks(chart, kind):
    return [mark for mark in chart.marks if mark.attributes.get("class", "").startswith(kind)]


def names(chart):
    return [mark.text for mark in marks(chart, "name")]


def test_score_against_cost_is_over_runs_of_known_cost_and_names_what_is_not_drawn():
    rows = [
        make_row(score=8.0, usage=Usage(cost_usd=0.02)),
        *(make_row(case_id=f"b{n}", score=6.75, usage=Usage(cost_usd=0.0325)) for n in range(4)),
        make_row("error", "c"),
        make_row(model=DEMO, score=9.0, usage=None),
        *(make_row(case_id=f"b{n}", model=FEW, score=9.0, usage=Usage(cost_usd=0.1)) for n in range(4)),
    ]
    chart = against_cost(build_report(rows, {}), SCORE)
    [dot] = marks(chart, "dot")
    assert dot.hint == "GPT-4o: 7 at $0.0300"
    assert names(chart) == ["GPT-4o"]
    assert chart.omissions == [
        "Not drawn, as fewer than 5 of its cases were judged: few.",
        "Not drawn, as its cost or mean score is unknown: demo.",
    ]


def test_a_pass_rate_stands_at_its_place_with_its_interval():
    report = build_report([make_row(), make_row("failed", "b"), make_row(model=DEMO, usage=Usage(cost_usd=0.1))], {})
    chart = against_cost(report, PASS_RATE)
    low, high = report["models"][0]["pass_rate_ci95"]
    up = Axis(0, 1, 162, 12)
    [line, _] = marks(chart, "range")
    assert (line.attributes["y1"], line.attributes["y2"]) == (up.place(low), up.place(high))
    first, best = marks(chart, "dot")
    assert (first.attributes["cy"], best.attributes["cy"]) == (up.place(0.5), up.place(1.0))
    assert best.attributes["class"] == "dot best"


def at_costs(*costs: float) -> Report:
    models = [Model(model_id=f"m{n}", requested_model="m") for n in range(len(costs))]
    return build_report(
        [
            make_row(case_id=f"c{number}", model=model, score=5.0, usage=Usage(cost_usd=usd))
            for model, usd in zip(models, costs, strict=True)
            for number in range(5)
        ],
        {},
    )


@pytest.mark.parametrize(
    ("costs", "labels"),
    [
        ((0.001, 0.2), ["$0.001", "$0.01", "$0.1", "$1"]),
        ((0.01, 0.1), ["$0", "$0.05", "$0.1"]),
        ((0.0, 400.0), ["$0", "$100", "$200", "$300", "$400"]),
    ],
)
def test_costs_far_apart_have_a_logarithmic_axis(costs, labels):
    chart = against_cost(at_costs(*costs), SCORE)
    assert [mark.text for mark in chart.marks if mark.text and mark.text.startswith("$")] == labels


def test_names_do_not_overlap_and_those_without_room_are_listed():
    chart = against_cost(at_costs(*[0.1] * 6, 0.2), SCORE)
    assert names(chart) == ["m0", "m1", "m2", "m3", "m6"]
    assert chart.omissions == ["No room for the names of: m4, m5."]


def test_times_are_drawn_from_the_runs_of_each_column():
    rows = [make_row(case_id=f"c{n}", seconds=float(n)) for n in range(1, 101)]
    chart = times(build_report([*rows, make_row(model=DEMO, seconds=190.0)], {}))
    assert "GPT-4o: median 50.0 s; demo: median 3:10." in chart.note
    axis_end = next(mark for mark in chart.marks if mark.text == "3 min")
    assert axis_end.attributes["x"] < WIDTH
    [box, _] = marks(chart, "box")
    [hair, _] = marks(chart, "hair")
    assert hair.attributes["x1"] < box.attributes["x"] < box.attributes["x"] + box.attributes["width"]


def test_runs_without_a_time_worth_telling_have_no_chart_of_times():
    assert times(build_report([make_row(seconds=0.004)], {})) is None
    assert times(build_report([make_row(seconds=None)], {})) is None


def test_scores_of_a_single_column_are_counted_by_outcome():
    rows = [make_row("failed", "a", score=2.5), make_row(case_id="b", score=9.0), make_row(case_id="c", score=10.0)]
    chart = scores(build_report(rows, {}))
    assert chart.note == "Runs by score, failed ones in red. 2 to 3: 1; 9 to 10: 2."
    assert [mark.attributes["class"] for mark in marks(chart, "bar")] == ["bar failed", "bar passed"]


def test_columns_of_one_label_are_distinguished_and_hostile_names_are_only_text(tmp_path):
    twin = Model(model_id="gpt4o-b", requested_model="gpt-4o", label="GPT-4o")
    hostile = Model(model_id="x", requested_model="x", label="<b>\x1b[31m\u202egnp")
    report = build_report([make_row(), make_row(model=twin), make_row(model=hostile)], {})
    assert names(times(report)) == ["GPT-4o (gpt4o)", "GPT-4o (gpt4o-b)", "<b>\\x1b[31m\\u202egnp"]
    write_chart(report, tmp_path / "chart.svg")
    hints = [element.text for element in ET.parse(tmp_path / "chart.svg").iter("{http://www.w3.org/2000/svg}title")]
    assert hints[-1] == "<b>\\x1b[31m\\u202egnp: 100 % at $0.0123"


def test_names_of_any_length_and_many_columns_are_drawn_within_bounds():
    models = [Model(model_id=f"m{n}", requested_model="x", label="long " * 200_000) for n in range(60)]
    rows = [make_row(model=model, score=5.0, tags=("a" * 1_000_000,)) for model in models]
    report = build_report(rows, {})
    with at_most(5):
        assert all(len(svg_text(chart)) < 40_000 for chart in (against_cost(report, PASS_RATE), times(report)))
        assert times(report).omissions == [f"{60 - MOST_BOXES} more in the table above."]


@pytest.mark.parametrize("report", [build_report([], {}), build_report([make_row("error")], {})])
def test_a_report_without_verdicts_has_no_chart_on_the_page_and_a_file_that_says_so(report, tmp_path):
    assert charts(report) == []
    write_chart(report, tmp_path / "chart.svg")
    assert "No model has both a cost and a pass rate." in (tmp_path / "chart.svg").read_text()


def test_the_page_has_charts_of_several_columns_or_of_one():
    assert [chart["id"] for chart in charts(random_report(12, MODELS))] == ["cost", "times"]
    assert [chart["id"] for chart in charts(random_report(12, MODELS[:1]))] == ["scores", "times"]
    assert [chart["id"] for chart in charts(build_report([make_row(model=MODEL)], {}))] == ["times"]


# -- groups of cases


def test_groups_of_five_or_more_cases_have_a_rate_for_each_column():
    rows = [make_row("failed" if n else "passed", f"web{n}", tags=("web",)) for n in range(5)]
    rows += [make_row("passed", f"web{n}", DEMO, tags=("web",), repetition=r) for n in range(4) for r in (1, 2)]
    rows += [make_row(case_id=f"files{n}", tags=("files",)) for n in range(4)]
    found = find_topics(build_report(rows, {}))
    assert found["rows"] == [{"field": "tag", "value": "web", "cases": 5, "rates": [0.2, 1.0]}]
    assert found["left_out"] == 1


def test_of_many_groups_the_largest_are_shown():
    rows = [make_row(case_id=f"c{n}", tags=(f"t{n % 20}",)) for n in range(110)]
    found = find_topics(build_report(rows, {}))
    assert len(found["rows"]) == MOST_GROUPS
    assert found["left_out"] == 4
    assert {row["cases"] for row in found["rows"][:10]} == {6}
