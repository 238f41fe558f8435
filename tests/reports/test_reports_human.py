from __future__ import annotations

import json
import re
from datetime import UTC, datetime

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reports_samples import make_row

from pytest_agentbench.cli.output import Standard
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.reports.human_agreement import Label, measure_agreement, read_labels
from pytest_agentbench.reports.reading import report_schema
from pytest_agentbench.reports.report import build_report
from pytest_agentbench.reports.terminal import write_summary

SCHEMA = jsonschema.Draft202012Validator(report_schema())
JUDGE, OTHER = "a" * 16, "b" * 16
RUBRIC, EDITED = "c" * 16, "d" * 16


def judged_row(run_id, passed, score=None, *, case_id=None, by="judge", judge=JUDGE, rubric=RUBRIC):
    verdict = {"by": by, "judge": judge, "rubric": rubric, "models": ["gpt-4o"], "passed": passed, "score": score}
    return {**make_row("passed", case_id or run_id), "run_id": run_id, "judged": [verdict]}


def label(run_id, verdict, score=None, *, annotator="ann", judge=JUDGE, rubric=RUBRIC, by="judge", day=2):
    return Label(
        annotator=annotator,
        nodeid=f"cases/test.yaml::{run_id}[gpt4o]",
        run_id=run_id,
        rubric=rubric,
        judges={by: judge},
        verdict=verdict,
        score=score,
        at=datetime(2026, 1, day, tzinfo=UTC),
    )


def results(rows, labels):
    report = build_report(rows, {"started_at": None})
    report["human"] = measure_agreement(report, labels, "human.jsonl")
    SCHEMA.validate(json.loads(json.dumps(report, allow_nan=False)))
    return report


def test_a_judge_is_compared_with_human_labels():
    rows = [judged_row("r1", True, 9.0), judged_row("r2", True, 6.0), judged_row("r3", False, 2.0)]
    rows.append(judged_row("r4", False, 1.0))
    labels = [label("r1", "passed", 8.0), label("r2", "failed", 3.0), label("r3", "failed", 2.0)]
    human = results(rows, labels)["human"]
    [judge] = human["judges"]
    assert (judge["runs"], judge["labelled"], judge["n"], judge["tied"]) == (4, 3, 3, 0)
    assert (judge["both_passed"], judge["both_failed"], judge["only_judge_passed"]) == (1, 1, 1)
    assert judge["agreement"] == pytest.approx(2 / 3)
    assert judge["kappa"] == pytest.approx(0.4)
    assert judge["pass_rate"] == {"people": pytest.approx(1 / 3), "judge": pytest.approx(2 / 3)}
    assert (judge["bias_index"], judge["prevalence_index"], judge["pabak"]) == pytest.approx((1 / 3, 0, 1 / 3))
    assert judge["disagreements"] == ["cases/test.yaml::r2[gpt4o]"]
    assert judge["scores"]["n"] == 3
    assert (judge["scores"]["mean_people"], judge["scores"]["mean_judge"]) == pytest.approx((13 / 3, 17 / 3))
    assert judge["scores"]["spearman"] == pytest.approx(1.0)


def test_a_blind_label_outranks_a_later_one_with_the_verdict_in_sight():
    rows = [judged_row("r1", True), judged_row("r2", True)]
    labels = [label("r1", "failed", day=2)]
    labels += [label(run, "passed", day=3).model_copy(update={"blind": False}) for run in ("r1", "r2")]
    report = results(rows, labels)
    [judge] = report["human"]["judges"]
    assert (judge["only_judge_passed"], judge["both_passed"]) == (1, 1)
    assert (report["human"]["counted"], report["human"]["not_blind"]) == (2, 1)
    assert report["human"]["left_out"]["superseded"] == 1


def test_most_annotators_decide_and_ties_are_left_out():
    rows = [judged_row("r1", True), judged_row("r2", True)]
    said = {"ann": "passed", "bob": "failed", "cat": "passed"}
    labels = [label("r1", verdict, annotator=name) for name, verdict in said.items()]
    labels += [label("r2", said[name], annotator=name) for name in ("ann", "bob")]
    human = results(rows, labels)["human"]
    [judge] = human["judges"]
    assert (judge["labelled"], judge["tied"], judge["n"], judge["both_passed"]) == (2, 1, 1, 1)
    assert human["annotators"] == {"ann": 2, "bob": 2, "cat": 1}


def test_annotators_are_compared_with_each_other():
    """Krippendorff 2011, "Computing Krippendorff's Alpha-Reliability", example A: alpha = 0.095."""
    ann = [0, 1, 0, 0, 0, 0, 0, 0, 1, 0]
    bob = [1, 1, 1, 0, 0, 1, 0, 0, 0, 0]
    labels = [
        label(f"r{number}", "passed" if said else "failed", float(said), annotator=name)
        for name, column in (("ann", ann), ("bob", bob))
        for number, said in enumerate(column)
    ]
    human = results([judged_row(f"r{number}", True) for number in range(10)], labels)["human"]
    between = human["between_annotators"]
    assert (between["runs"], between["annotators"]) == (10, 2)
    assert between["alpha_verdicts"] == pytest.approx(0.095, abs=0.0005)
    assert between["alpha_scores"] == pytest.approx(0.095, abs=0.0005)


def test_labels_for_another_judge_or_rubric_or_run_are_left_out_and_counted():
    rows = [judged_row("r1", True), judged_row("r2", True), make_row("passed", "unjudged")]
    labels = [
        label("r1", "failed"),
        label("r1", "passed"),
        label("r2", "failed", judge=OTHER),
        label("r2", "failed", rubric=EDITED),
        label("gone", "failed"),
    ]
    human = results(rows, labels)["human"]
    assert human["left_out"] == {"other_run": 1, "other_judge": 1, "other_rubric": 1, "superseded": 1}
    assert (human["labels"], human["counted"]) == (5, 1)
    [judge] = human["judges"]
    assert (judge["n"], judge["both_passed"], judge["stale"]) == (1, 1, 2)


def test_each_judge_of_a_run_has_its_own_agreement():
    row = judged_row("r1", True, 9.0)
    row["judged"].append({**row["judged"][0], "by": "llm_judgement", "judge": OTHER, "passed": False, "score": None})
    said = label("r1", "passed", 7.0).model_copy(update={"judges": {"judge": JUDGE, "llm_judgement": OTHER}})
    panel, votes = results([row], [said])["human"]["judges"]
    assert (panel["by"], panel["both_passed"], panel["scores"]["n"]) == ("judge", 1, 1)
    assert (votes["by"], votes["only_people_passed"], votes["scores"]) == ("llm_judgement", 1, None)


def test_a_label_for_one_judge_does_not_replace_that_for_another():
    """The judge's prompt was edited and the run labelled again; then the edit was taken back."""
    row = judged_row("r1", True, 9.0)
    row["judged"].append({**row["judged"][0], "by": "llm_judgement", "judge": OTHER, "passed": False, "score": None})
    votes = {"llm_judgement": OTHER}
    before = label("r1", "passed").model_copy(update={"judges": {"judge": JUDGE, **votes}})
    after = label("r1", "failed", day=3).model_copy(update={"judges": {"judge": "e" * 16, **votes}})
    human = results([row], [before, after])["human"]
    panel, metric = human["judges"]
    assert (panel["both_passed"], panel["stale"]) == (1, 1)
    assert (metric["both_failed"], metric["stale"]) == (1, 0)
    assert (human["counted"], sum(human["left_out"].values()), human["between_annotators"]) == (2, 0, None)


def test_the_latest_label_of_an_annotator_counts_in_any_order_of_lines():
    labels = [label("r1", "failed", day=5), label("r1", "passed", day=4)]
    human = results([judged_row("r1", True)], labels)["human"]
    assert (human["left_out"]["superseded"], human["judges"][0]["only_judge_passed"]) == (1, 1)


def test_cases_of_one_name_in_two_files_are_two_cases():
    rows = [judged_row(f"r{number}", number % 3 > 0, case_id=f"c{number // 2}") for number in range(12)]
    labels = [label(f"r{number}", "passed" if number % 2 else "failed") for number in range(12)]
    apart = [
        {**row, "nodeid": row["nodeid"].replace(row["case_id"], f"{row['case_id']}/c"), "case_id": "c"} for row in rows
    ]
    (one,), (other,) = (results(each, labels)["human"]["judges"] for each in (rows, apart))
    assert other["kappa_ci95"] is not None
    assert (other["kappa_ci95"], other["agreement_ci95"]) == (one["kappa_ci95"], one["agreement_ci95"])


def test_a_run_with_two_rows_in_a_report_counts_once():
    rows = [judged_row("r1", True), {**judged_row("r1", True), "nodeid": "tests/test_x.py::test_x[gpt4o]"}]
    [judge] = results(rows, [label("r1", "passed")])["human"]["judges"]
    assert (judge["runs"], judge["n"]) == (1, 1)


def test_without_labels_there_is_nothing():
    assert results([judged_row("r1", True)], [])["human"] is None


def test_an_unknown_kappa_has_its_reason():
    [judge] = results([judged_row("r1", True)], [label("r1", "passed")])["human"]["judges"]
    assert (judge["kappa"], judge["kappa_ci95"]) == (None, None)
    assert "passed every run" in judge["kappa_undefined"]
    [judge] = results([judged_row("r1", True)], [label("r2", "passed")])["human"]["judges"]
    assert judge["kappa_undefined"] == "no run has a label that counts"
    assert (judge["agreement"], judge["pass_rate"]) == (None, {"people": None, "judge": None})


names = st.sampled_from(["r1", "r2", "r3", "r4"])
verdicts = st.sampled_from(["passed", "failed"])
labels_strategy = st.lists(
    st.builds(
        label,
        names,
        verdicts,
        st.none() | st.floats(0, 10),
        annotator=st.sampled_from(["ann", "bob", "cat"]),
        judge=st.sampled_from([JUDGE, JUDGE, OTHER]),
        rubric=st.sampled_from([RUBRIC, RUBRIC, EDITED]),
    ),
    min_size=1,
    max_size=25,
)


@pytest.mark.slow
@given(st.lists(st.tuples(names, st.booleans(), st.floats(0, 10)), unique_by=lambda row: row[0]), labels_strategy)
def test_every_label_and_every_run_is_accounted_for(given_rows, labels):
    human = results([judged_row(*row) for row in given_rows], labels)["human"]
    assert human["labels"] == len(labels) == human["counted"] + sum(human["left_out"].values())
    assert sum(human["annotators"].values()) == human["counted"]
    for judge in human["judges"]:
        kinds = ("both_passed", "both_failed", "only_people_passed", "only_judge_passed")
        assert judge["labelled"] == judge["n"] + judge["tied"]
        assert judge["n"] == sum(judge[kind] for kind in kinds)
        assert len(judge["disagreements"]) == judge["only_people_passed"] + judge["only_judge_passed"]
        assert (judge["kappa"] is None) == (judge["kappa_undefined"] is not None)


# -- told


@pytest.fixture
def told(capsys):
    def tell(report):
        write_summary(Standard(), report)
        return capsys.readouterr().out

    return tell


def test_the_summary_tells_the_agreement_and_what_is_left_out(told):
    rows = [judged_row(f"r{number}", number > 1, 5.0) for number in range(4)]
    labels = [label(f"r{number}", "passed" if number > 2 else "failed", 4.0) for number in range(4)]
    text = told(results(rows, [*labels, label("r9", "passed")]))
    assert "agreement with people (human.jsonl)" in text
    assert "judge (gpt-4o): same verdict on 3 of 4 runs (75.0 %), kappa 0.50 (95 % CI -" in text
    assert "people pass 25.0 %, the judge 50.0 %; scores of 4 runs: weighted kappa" in text
    assert "labels left out: 1 of runs that are not in this report" in text


def test_the_summary_of_a_report_without_labels_has_no_human_section(told):
    older = build_report([judged_row("r1", True)], {})
    del older["human"]
    assert "people" not in told(older)


def test_names_cannot_steer_the_terminal(told):
    row = judged_row("r1", True, by="evil\x1b[2J")
    text = told(results([row], [label("r1", "passed", by="evil\x1b[2J")]))
    assert "\x1b" not in text


# -- the file


def written(tmp_path, *lines):
    path = tmp_path / "human.jsonl"
    path.write_text("".join(lines), encoding="utf-8")
    return path


def test_a_label_is_read_as_it_was_written(tmp_path):
    labels = [label("r1", "passed", 7.5), label("r2", "failed", annotator="Ånn \u202e")]
    assert read_labels(written(tmp_path, *(each.line for each in labels))) == labels


def test_an_empty_file_has_no_label(tmp_path):
    assert read_labels(written(tmp_path)) == []


def changed(**fields):
    return json.dumps({**json.loads(label("r1", "passed").line), **fields}) + "\n"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"annotator": \n', "not valid JSON"),
        ('"x"\n', 'line: found "x"'),
        (changed(verdict="maybe"), 'verdict: found "maybe"'),
        (changed(score=11), "score: found 11"),
        (changed(score="7"), 'score: found "7"'),
        (changed(at="2026-01-02"), "at: "),
        (changed(more=1), "more: found 1"),
        (changed(schema_version=2), "schema_version: found 2"),
        ('{"annotator": "ann"}\n', "run_id: found nothing, expected a value"),
        ('{"annotator": "a", "case_id": "c", "pipeline": "plain", "agreement": 2}\n', "agentbench mcp ablation"),
    ],
)
def test_a_wrong_line_is_named_with_its_place(tmp_path, line, said):
    path = written(tmp_path, line)
    with pytest.raises(ConfigError) as raised:
        read_labels(path)
    assert re.match(rf"{path}:1:\d+: ", str(raised.value))
    assert said in str(raised.value)


def test_the_good_lines_do_not_hide_the_bad_ones(tmp_path):
    path = written(tmp_path, label("r1", "passed").line, *["{}\n"] * 30)
    with pytest.raises(ConfigError, match="more problems"):
        read_labels(path)
