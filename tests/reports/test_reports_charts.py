from __future__ import annotations

import json

import pytest
import vl_convert
from reports_samples import DEMO, MODEL, make_row
from support.random_reports import MODELS, random_report

from pytest_agentbench.records.case import Model
from pytest_agentbench.records.run import Usage
from pytest_agentbench.reports.charts import MOST_TAGS, by_tag, charts, pass_rates, score_against, size_spec
from pytest_agentbench.reports.report import build_report
from pytest_agentbench.reports.rows import Report

FEW = Model(model_id="few", requested_model="few")


def values(chart):
    return chart.spec["data"]["values"]


def test_pass_rates_come_with_their_intervals_and_counts():
    report = build_report([make_row(), make_row("failed", "b"), make_row("error", "c"), make_row(model=DEMO)], {})
    gpt, demo = values(pass_rates(report))
    assert (gpt["model"], gpt["pass_rate"], gpt["runs"]) == ("GPT-4o", 0.5, 2)
    assert [gpt["low"], gpt["high"]] == report["models"][0]["pass_rate_ci95"]
    assert (demo["model"], demo["pass_rate"], demo["runs"]) == ("demo", 1.0, 1)


def test_score_against_cost_is_over_runs_whose_cost_is_known_and_names_models_that_lack_it():
    rows = [
        make_row(score=8.0, usage=Usage(cost_usd=0.02)),
        *(make_row(case_id=f"b{n}", score=6.75, usage=Usage(cost_usd=0.0325)) for n in range(4)),
        make_row("error", "c"),
        make_row(model=DEMO, score=9.0, usage=None),
        *(make_row(case_id=f"b{n}", model=FEW, score=9.0, usage=Usage(cost_usd=0.1)) for n in range(4)),
    ]
    chart = score_against(build_report(rows, {}), "cost")
    (point,) = values(chart)
    assert point["model"] == "GPT-4o"
    assert point["cost_usd"] == pytest.approx(0.03)
    assert point["mean_score"] == 7.0
    assert "Not drawn, for fewer than 5 of its cases were judged: few." in chart.note
    assert chart.note.endswith("Not drawn, for its cost or its mean score is unknown: demo.")


def test_without_scores_the_chart_shows_the_pass_rate_against_time():
    chart = score_against(build_report([make_row(seconds=3.0), make_row("failed", "b", seconds=5.0)], {}), "time")
    assert chart.title == "Pass rate against time"
    (point,) = values(chart)
    assert (point["seconds"], point["pass_rate"]) == (4.0, 0.5)


def test_tags_of_some_runs_are_shown_by_model_the_most_frequent_first():
    rows = [
        make_row(tags=("all", "web")),
        make_row("failed", "b", tags=("all", "web")),
        make_row(case_id="c", tags=("all", "files")),
    ]
    rows += [make_row("failed", "b", DEMO, tags=("all", "web")), make_row("error", "c", DEMO, tags=("all", "files"))]
    found = [
        (each["tag"], each["model"], each["pass_rate"], each["cases"])
        for each in values(by_tag(build_report(rows, {})))
    ]
    assert found == [("web", "GPT-4o", 0.5, 2), ("web", "demo", 0.0, 1), ("files", "GPT-4o", 1.0, 1)]


def test_of_many_tags_the_most_frequent_are_drawn_and_the_note_says_so():
    rows = [make_row(case_id=f"c{n}", tags=(f"t{n}",)) for n in range(MOST_TAGS + 5)]
    chart = by_tag(build_report(rows, {}))
    assert len(values(chart)) == MOST_TAGS
    assert chart.note.endswith(f"The {MOST_TAGS} most frequent of {MOST_TAGS + 5} tags.")


def test_tags_without_a_verdict_take_no_room_from_those_that_have_one():
    rows = [make_row("error", f"e{n}", tags=(f"broken{n}",), repetition=r) for n in range(MOST_TAGS) for r in (1, 2)]
    rows += [make_row(case_id=f"c{n}", tags=(f"t{n}",)) for n in range(3)]
    chart = by_tag(build_report(rows, {}))
    assert [each["tag"] for each in values(chart)] == ["t0", "t1", "t2"]
    assert "most frequent" not in chart.note


def test_models_of_one_label_are_distinguished_and_hostile_names_are_only_text():
    twin = Model(model_id="gpt4o-b", requested_model="gpt-4o", label="GPT-4o")
    hostile = Model(model_id="x", requested_model="x", label="<b>\x1b[31m\u202egnp")
    report = build_report([make_row(), make_row(model=twin), make_row(model=hostile)], {})
    assert [each["model"] for each in values(pass_rates(report))] == [
        "GPT-4o (gpt4o)",
        "GPT-4o (gpt4o-b)",
        "<b>\\x1b[31m\\u202egnp",
    ]


@pytest.mark.slow
def test_names_of_any_length_are_drawn_in_seconds():
    models = [Model(model_id=f"m{n}", requested_model="x", label="long " * 200_000) for n in range(2)]
    rows = [
        make_row(model=model, score=5.0, tags=(tag,))
        for model in models
        for tag in ("a" * 1_000_000, f"{'a' * 99_999}b")
    ]
    report = build_report(rows, {})
    for chart in charts(report):
        assert len(json.dumps(chart)) < 10_000
        assert vl_convert.vegalite_to_png(size_spec(chart["spec"], 320)).startswith(b"\x89PNG")
    assert len({each["model"] for each in values(pass_rates(report))}) == 2
    assert len({each["tag"] for each in values(by_tag(report))}) == 2


@pytest.mark.parametrize("report", [build_report([], {}), build_report([make_row("error")], {})])
def test_a_report_without_verdicts_has_no_chart(report):
    assert [chart["id"] for chart in charts(report)] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "report", [build_report([make_row(score=5.0, tags=("a",)), make_row(case_id="b")], {}), random_report(12)]
)
def test_every_chart_can_be_drawn_as_a_picture(report):
    for chart in charts(report):
        json.dumps(chart, allow_nan=False)
        svg = vl_convert.vegalite_to_svg(size_spec(chart["spec"], 640), allowed_base_urls=[])
        assert all((model["label"] or model["model_id"]) in svg for model in report["models"])
    assert {chart["id"] for chart in charts(random_report(12, MODELS))} == {
        "pass-rate",
        "score-cost",
        "score-time",
        "tags",
    }


def test_a_model_of_one_case_has_a_mark_without_a_line():
    spec = score_against(build_report([make_row(score=5.0, model=MODEL)], {}), "time").spec
    assert [layer["mark"]["type"] for layer in spec["layer"]] == ["point"]


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
    ("costs", "scale"),
    [((0.001, 0.1), "log"), ((0.01, 0.1), None), ((0.0, 0.1), None), ((0.0, 0.0), None), ((), None)],
)
def test_costs_that_are_far_apart_stand_on_a_logarithmic_axis_that_says_so(costs, scale):
    axis = score_against(at_costs(*costs), "cost").spec["encoding"]["x"]
    assert axis.get("scale", {}).get("type") == scale
    assert ("logarithmic" in axis["title"]) == (scale is not None)


def test_models_at_one_point_are_named():
    assert "At one point: m0, m2." in score_against(at_costs(0.1, 0.2, 0.1), "cost").note


def test_many_models_differ_in_colour_or_shape():
    found = score_against(at_costs(0.1), "cost").spec["config"]["range"]
    looks = [(n % len(found["category"]), n % len(found["symbol"])) for n in range(56)]
    assert len(set(looks)) == 56
