"""Two campaigns with a known difference, compared as users do it: --agentbench-compare."""

from __future__ import annotations

import json

import jsonschema
import pytest
from support.fault_endpoint import FaultEndpoint

from pytest_agentbench.reports.reading import report_schema

AGENT = """
import collections, json, pathlib, pytest

ANSWERS = json.loads((pathlib.Path(__file__).parent / "answers.json").read_text())
asked = collections.Counter()

@pytest.fixture(scope="session")
def agentbench_runner():
    def agent(case):
        name = case.case_id.rpartition("q")[2]
        says = ANSWERS[int(name)][asked[name] % len(ANSWERS[int(name)])]
        asked[name] += 1
        if says == "b":
            raise OSError("no network")
        return {"p": "Paris", "f": "Rome"}[says]
    return agent
"""
SCHEMA = jsonschema.Draft202012Validator(report_schema(), format_checker=jsonschema.FormatChecker())
COMPARED = ("--agentbench-compare", "baseline.json")


@pytest.fixture
def session(bench):
    """Runs a dataset whose questions the agent answers as told: p passes, f fails, b breaks; a letter a repetition."""
    bench.agent(AGENT)

    def run(answers, *args, **fields):
        bench.write("answers.json", json.dumps(answers))
        rows = [{"id": f"q{n}", "question": f"question {n}?", "answer": "Paris"} for n in range(len(answers))]
        bench.rows("cases/many.jsonl", *rows)
        return bench.run("--agentbench-no-reuse", f"--agentbench-repetitions={max(map(len, answers))}", *args)

    return run


@pytest.fixture
def baseline(session):
    """Runs the campaign that later ones are compared with."""
    return lambda answers, *args: session(answers, "--agentbench-json=baseline.json", *args)


def compared(finished):
    SCHEMA.validate(finished.report)
    (model,) = finished.report["comparison"]["models"]
    return model


@pytest.mark.slow
def test_a_significant_regression_fails_the_session_and_names_its_cases(baseline, session):
    baseline("p" * 12)
    finished = session("p" * 4 + "f" * 8, *COMPARED)
    model = compared(finished)
    assert finished.exit == finished.report["session"]["exit_status"] == 1
    assert (model["verdict"], model["pass_rate"]["test"]) == ("worse", "exact McNemar")
    assert model["pass_rate"]["p_value"] == 2 / 2**8
    assert model["pass_rate"]["difference"] == pytest.approx(-8 / 12)
    assert [change["case_id"] for change in model["regressions"]] == [f"cases/many.q{n}" for n in range(4, 12)]
    (reason,) = finished.report["session"]["gate"]["reasons"]
    assert reason.startswith("Significant regression: agent: pass rate 100.0 % -> 33.3 % over 12 cases (-66.7 points;")
    finished.result.stdout.fnmatch_lines(["gate failed:", "  Significant regression: agent: pass rate 100.0 %*"])
    finished.result.stdout.fnmatch_lines(["*regressions (5 of 8):", "    1/1 -> 0/1  cases/many.q4  *"])


@pytest.mark.slow
def test_failures_that_were_there_before_do_not_fail_the_session(baseline, session):
    baseline("p" * 8 + "f" * 4)
    finished = session("p" * 8 + "f" * 4, *COMPARED)
    assert finished.exit == 0
    assert compared(finished)["verdict"] == "no_difference_seen"
    assert finished.report["session"]["gate"]["passed"] is True
    finished.result.stdout.fnmatch_lines(["gate passed: pass rate 0.667, completion 1.000 (wanted 0.95)"])


@pytest.mark.slow
def test_too_few_changes_to_tell_pass_and_say_how_many_would_do(baseline, session):
    baseline("p" * 12)
    finished = session("p" * 9 + "f" * 3, *COMPARED)
    model = compared(finished)
    assert (finished.exit, model["verdict"]) == (0, "not_enough_runs")
    assert model["pass_rate"]["p_value"] == 0.25
    assert model["pass_rate"]["cases_needed"] > 12
    assert "not enough runs to tell. 12 cases can show a difference of" in finished.text
    assert "would show this one." in finished.text


@pytest.mark.slow
@pytest.mark.parametrize(("allowed", "exit_status"), [("3", 0), ("2", 1), ("0", 1)])
def test_more_regressions_than_allowed_fail_however_few(baseline, session, allowed, exit_status):
    baseline("p" * 12)
    finished = session("p" * 9 + "f" * 3, *COMPARED, "--agentbench-max-regressions", allowed)
    assert finished.exit == exit_status
    if exit_status:
        (reason,) = finished.report["session"]["gate"]["reasons"]
        shown = ", ".join(f"cases/many.q{n} [agent]" for n in (9, 10, 11))
        assert reason == f"3 cases are worse than in baseline.json, at most {allowed} may be: {shown}."


@pytest.mark.slow
def test_a_better_campaign_passes(baseline, session):
    baseline("f" * 8 + "p" * 4)
    finished = session("p" * 12, *COMPARED, "--agentbench-max-regressions", "0")
    model = compared(finished)
    assert (finished.exit, model["verdict"], len(model["gains"])) == (0, "better", 8)


@pytest.mark.slow
def test_a_case_that_must_pass_fails_the_session_however_few_changed(bench, baseline, session):
    bench.case("vital", must_pass=True)
    bench.agent(AGENT.replace("        name = ", '        if case.case_id == "vital": return "Rome"\n        name = '))
    baseline("p" * 8)
    finished = session("p" * 8, *COMPARED)
    assert finished.exit == 1
    assert finished.report["session"]["gate"]["reasons"] == ["vital [agent] must pass: 0 of 1 runs passed."]


@pytest.mark.slow
def test_an_outage_is_left_out_counted_and_fails_the_gate_as_missing_completion(baseline, session):
    baseline("p" * 12)
    finished = session("p" * 4 + "b" * 8, *COMPARED)
    model = compared(finished)
    assert (finished.exit, model["verdict"], model["cases"]["paired"]) == (1, "no_difference_seen", 4)
    assert (len(model["cases"]["unjudged"]), model["runs"]["current"]["errors"]) == (8, 8)
    (reason,) = finished.report["session"]["gate"]["reasons"]
    assert reason.startswith("Completion 0.333 is below 0.950")
    assert "8 runs of agent ended in infrastructure errors in this session" in finished.text


@pytest.mark.slow
def test_an_outage_of_the_baseline_does_not_pass_as_no_difference(baseline, session):
    baseline("p" * 4 + "b" * 8)
    finished = session("p" * 12, *COMPARED)
    (reason,) = finished.report["session"]["gate"]["reasons"]
    assert finished.exit == 1
    assert reason.startswith("baseline.json is too incomplete to compare agent with: completion 0.333 is below 0.950")
    assert session("p" * 12, *COMPARED, "--agentbench-min-completion", "0.3").exit == 0


@pytest.mark.slow
def test_a_session_that_stops_early_fails_though_its_cases_are_no_worse(baseline, session):
    baseline("f" * 12)
    finished = session("f" * 12, *COMPARED, "-x")
    assert finished.exit == 1
    assert finished.report["session"]["gate"]["reasons"] == ["The session stopped early: stopping after 1 failures."]
    assert "11 cases only in the baseline: " in finished.text


@pytest.mark.slow
def test_a_selection_is_compared_and_what_it_leaves_out_is_named(baseline, session):
    baseline("p" * 12)
    finished = session("p" * 12, *COMPARED, "-k", "q1 or q2")
    cases = compared(finished)["cases"]
    assert finished.exit == 0
    assert cases["paired"] + len(cases["only_baseline"]) == 12
    assert f"{len(cases['only_baseline'])} cases only in the baseline: cases/many.jsonl::cases/many.q0" in finished.text


@pytest.mark.slow
def test_runs_from_the_store_are_said_to_be_no_evidence(bench):
    for name in ("a", "b", "c"):
        bench.case(name)
        bench.write(f"cases/{name}/demo.yaml", {"schema_version": 1, "replies": [{"content": "Paris"}]})
    bench.run("--model", "demo", "--agentbench-json=baseline.json")
    finished = bench.run("--model", "demo", *COMPARED)
    assert "note: 3 of 3 runs of demo came from the store with the baseline's fingerprints: they are" in finished.text


@pytest.mark.slow
def test_both_gates_hold_together(baseline, session):
    baseline("f" * 12)
    finished = session("f" * 12, *COMPARED, "--agentbench-fail-under", "0.5")
    assert finished.exit == 1
    assert finished.report["session"]["gate"]["reasons"][0].startswith("Pass rate 0.000 is below 0.500")


@pytest.mark.slow
def test_repetitions_are_tested_case_by_case(baseline, session):
    baseline(["pppp"] * 8)
    finished = session(["pppf", "pppf", "ppff", "ffff", "ppff", "pfff", "pppf", "pppp"], *COMPARED)
    model = compared(finished)
    assert (finished.exit, model["verdict"]) == (1, "worse")
    assert model["pass_rate"]["test"] == "exact sign flip"
    assert model["pass_rate"]["p_value"] == pytest.approx(2 / 2**7)
    worst = model["regressions"][0]
    assert (worst["case_id"], worst["baseline"], worst["current"]) == (
        "cases/many.q3",
        {"passed": 4, "judged": 4},
        {"passed": 0, "judged": 4},
    )
    assert worst["p_value"] == pytest.approx(1 / 35)
    assert worst["nodeid"].endswith("q3[agent]")


@pytest.mark.slow
def test_workers_compare_like_one_process(baseline, session):
    baseline("p" * 12)
    alone = session("p" * 4 + "f" * 8, *COMPARED)
    spread = session("p" * 4 + "f" * 8, *COMPARED, "-n", "2")
    assert spread.exit == 1
    assert compared(spread)["regressions"] == compared(alone)["regressions"]
    assert compared(spread)["pass_rate"] == compared(alone)["pass_rate"]


@pytest.mark.slow
def test_the_baseline_may_be_the_report_that_this_session_replaces(bench, baseline, session):
    path = bench.path / "outputs" / "report.json"
    session("p" * 12, "--agentbench-json=keep.json")
    path.parent.mkdir(exist_ok=True)
    path.write_bytes((bench.path / "keep.json").read_bytes())
    finished = session("p" * 4 + "f" * 8, "--agentbench-compare", "outputs/report.json")
    assert (finished.exit, compared(finished)["verdict"]) == (1, "worse")


@pytest.mark.slow
def test_nothing_in_common_fails_and_says_what_to_do(bench, baseline, session):
    baseline("p" * 4)
    report = bench.path / "baseline.json"
    text = report.read_text().replace("many", "few")  # another dataset
    report.write_text(text.replace("cases/few", "elsewhere/few"))
    finished = session("p" * 4, *COMPARED)
    (reason,) = finished.report["session"]["gate"]["reasons"]
    assert finished.exit == 1
    assert reason.startswith("Nothing could be compared with baseline.json: no case is in both, for example elsewhere/")
    assert len(compared(finished)["cases"]["only_baseline"]) == 4


@pytest.mark.slow
def test_cases_on_one_side_alone_are_named(baseline, session):
    baseline("p" * 8)
    finished = session("p" * 10, *COMPARED)
    cases = compared(finished)["cases"]
    assert (finished.exit, cases["paired"], cases["only_baseline"]) == (0, 8, [])
    assert cases["only_current"] == [f"cases/many.jsonl::cases/many.q{n}" for n in (8, 9)]
    assert (
        "2 cases not in the baseline: cases/many.jsonl::cases/many.q8, cases/many.jsonl::cases/many.q9" in finished.text
    )


@pytest.mark.slow
def test_an_edited_reference_answer_is_noted(bench, baseline, session):
    baseline("p" * 7)
    rows = [{"id": f"q{n}", "question": f"question {n}?", "answer": "Paris"} for n in range(7)]
    bench.rows("cases/many.jsonl", {**rows[0], "answer": "paris"}, *rows[1:])
    (note,) = bench.run("--agentbench-no-reuse", *COMPARED).report["comparison"]["notes"]
    assert note.startswith("1 of 7 cases of agent are not decided as in the baseline: ")


@pytest.mark.slow
def test_another_threshold_of_a_metric_is_noted(bench, baseline, session):
    baseline("p" * 7, "--agentbench-metric", "contains_answer>=1")
    notes = session("p" * 7, *COMPARED, "--agentbench-metric", "contains_answer>=0.5").report["comparison"]["notes"]
    assert [note.partition(":")[0] for note in notes] == ["7 of 7 cases of agent are not decided as in the baseline"]


@pytest.mark.slow
def test_runs_of_the_baseline_that_are_reused_are_told_as_such(bench, baseline, session):
    baseline("p" * 7)
    finished = bench.run(*COMPARED)
    (note,) = finished.report["comparison"]["notes"]
    assert note.startswith("7 of 7 runs of agent came from the store with the baseline's fingerprints")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "run pytest first, or name the report.json; leave the option out until"),
        ("{", "is no JSON"),
        ("{}", "is no report.json"),
        ('{"runs": [], "schema_version": 2}', "schema_version: found 2, expected 1"),
        ('{"runs": [{}], "schema_version": 1}', "is a required property"),
    ],
)
def test_a_missing_or_broken_baseline_is_a_usage_error_before_anything_runs(bench, session, content, said):
    if content is not None:
        bench.write("baseline.json", content)
    finished = session("p", *COMPARED)
    assert (finished.exit, finished.report) == (4, None)
    assert "--agentbench-compare: " in finished.text
    assert "baseline.json" in finished.text
    assert said in finished.text


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--agentbench-max-regressions", "1"), "found 1 without a report to compare with"),
        ((*COMPARED, "--agentbench-shard", "1/2"), "found baseline.json together with --agentbench-shard 1/2"),
        ((*COMPARED, "--agentbench-max-regressions", "-1"), "found '-1', expected a whole number of at least 0"),
    ],
)
def test_contradictory_options_are_a_usage_error(session, args, said):
    finished = session("p", *args)
    assert finished.exit == 4
    assert said in finished.text


@pytest.mark.slow
def test_a_chosen_model_of_the_baseline_is_compared_with_the_only_one_of_the_session(bench, baseline, session):
    baseline("p" * 8)
    report = json.loads((bench.path / "baseline.json").read_text())
    report["runs"] += [
        {**row, "model_id": "old", "nodeid": row["nodeid"].replace("[agent]", "[old]"), "outcome": "failed"}
        for row in report["runs"]
    ]
    bench.write("baseline.json", json.dumps(report))
    model = compared(session("p" * 8, "--agentbench-compare", "baseline.json#old"))
    assert (model["baseline_model_id"], model["model_id"], model["verdict"]) == ("old", "agent", "better")
    finished = session("p" * 8, "--agentbench-compare", "baseline.json#older")
    assert finished.exit == 4
    assert "found no run of a model 'older'; the report has agent, old" in finished.text


@pytest.mark.slow
def test_hostile_text_in_both_reports_stays_text(bench, session):
    hostile = "\x1b[31mred\x1b[0m <script>alert(1)</script> \u202egnp.exe"
    bench.agent(AGENT.replace('"f": "Rome"', f'"f": {hostile!r}'))
    session("p" * 8, "--agentbench-json=baseline.json")
    finished = session("f" * 8, *COMPARED)
    assert finished.exit == 1
    compared(finished)
    assert "\x1b[31m" not in finished.text
    assert "\u202e" not in finished.text


@pytest.mark.slow
def test_cases_pair_though_their_root_has_come_since(bench):
    """The ids of a dataset's rows are below the root, which models.yaml makes of the folder that it lies in."""
    bench.agent()
    bench.write("pyproject.toml", "[project]\nname = 'p'\n")
    bench.questions(3, name="cases/many.jsonl")
    bench.case("one")
    before = bench.run("--agentbench-json=outputs/report.json", "cases")
    bench.write("baseline.json", json.dumps(before.report))
    bench.models({"model_id": "demo", "requested_model": "demo", "scripted": True})
    after = bench.spawn("--agentbench-compare=baseline.json", "cases")  # a process remembers which folders are roots
    there, here = ({row["case_id"] for row in finished.report["runs"]} for finished in (before, after))
    assert (there - here, here - there) == ({f"cases/many.q{n}" for n in range(3)}, {f"many.q{n}" for n in range(3)})
    assert compared(after)["cases"] == {"paired": 4, "unjudged": [], "only_baseline": [], "only_current": []}


def test_a_session_of_several_models_ends_with_their_verdict_against_the_first(bench):
    bench.questions(8)
    replies = {"bad": "Rome", "good": "Paris"}
    with FaultEndpoint(answer=lambda body: {"role": "assistant", "content": replies[body["model"]]}) as endpoint:
        entry = {"base_url": endpoint.base_url, "api_key_env": "none"}
        bench.models(*({"model_id": name, "requested_model": name, **entry} for name in replies))
        options = [word for name in replies for word in ("--model", name)]
        finished = bench.run(*options, "--agentbench-fail-under", "0")
        alone = bench.run("--model", "good")
        (bench.path / "baseline.json").write_text(json.dumps(finished.report))
        compared = bench.run(*options, *COMPARED)
    [verdict] = finished.report["column_comparisons"]
    assert (verdict["baseline_model_id"], verdict["model_id"], verdict["verdict"]) == ("bad", "good", "better")
    finished.result.stdout.fnmatch_lines(["models compared with bad", "  good against bad: * better."])
    SCHEMA.validate(finished.report)
    # One column has no other, and a baseline is the reference of a session that names one
    assert "column_comparisons" not in {**alone.report, **compared.report}
