from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from pytest_agentbench.reports.reading import report_schema

BROKEN_AGENT = """
import pytest

@pytest.fixture(scope="session")
def agentbench_runner():
    raise RuntimeError("the agent is not to be asked")
"""


@pytest.fixture
def project(bench):
    """Three rows and a case; nothing that could answer them but predictions."""
    bench.rows(
        "cases/facts.jsonl",
        {"id": "fr", "question": "Capital of France?", "answer": "Paris"},
        {"id": "it", "question": "Capital of Italy?", "answer": "Rome"},
        {"id": 3, "question": "1 + 2?", "answer": "3"},
    )
    bench.case("one")
    return bench


def predicted(bench, predictions, *args, name="preds.json"):
    content = predictions if isinstance(predictions, str) else json.dumps(predictions)
    bench.write(name, content)
    return bench.run("--agentbench-predictions", name, *args)


def test_predictions_are_scored_and_nobody_is_asked(project):
    project.agent(BROKEN_AGENT)
    finished = predicted(project, {"fr": "Paris", "cases/facts.it": "Milan", "3": 3, "one": "Paris!"})
    assert finished.outcomes == {
        "cases/facts.fr[preds]": "passed",
        "cases/facts.it[preds]": "failed",
        "cases/facts.3[preds]": "passed",
        "one[preds]": "passed",
    }
    assert finished.exit == 1
    assert "got:      Milan" in finished.text
    assert "warning" not in finished.text


def test_models_of_the_ini_file_and_of_a_suite_are_not_asked(project):
    project.write("pytest.ini", "[pytest]\nagentbench_model = gpt4o\n")
    suite = {"schema_version": 1, "suite_id": "small", "title": "Small", "models": [{"model_id": "gpt4o"}]}
    project.write("cases/suites/small.yaml", {**suite, "case_selection": {"include_case_ids": ["one"]}})
    answers = {"fr": "Paris", "it": "Rome", "3": "3", "one": "Paris"}
    assert set(predicted(project, answers).outcomes.values()) == {"passed"}
    assert predicted(project, answers, "--agentbench-suite", "small").outcomes == {"one[preds]": "passed"}


@pytest.mark.parametrize("model", ["--model", "--agentbench-model"])
def test_a_model_beside_predictions_is_a_usage_error(project, model):
    finished = predicted(project, {"fr": "Paris"}, model, "gpt4o")
    assert finished.exit == 4
    assert "no model is asked: give one of the two" in finished.text
    assert finished.report is None


def test_missing_null_and_wrong_predictions_are_failures_of_their_items_only(project):
    finished = predicted(project, {"fr": None, "it": {"answer": "Rome"}, "one": "Paris"})
    rows = finished.runs
    assert {name: (row["outcome"], row["status"]) for name, row in rows.items()} == {
        "cases/facts.fr[preds]": ("failed", "failed"),
        "cases/facts.it[preds]": ("failed", "invalid"),
        "cases/facts.3[preds]": ("failed", "failed"),
        "one[preds]": ("passed", "success"),
    }
    assert "preds.json: 'fr': found null" in rows["cases/facts.fr[preds]"]["message"]
    assert "found an object, expected a text" in rows["cases/facts.it[preds]"]["message"]
    assert "no prediction of 'cases/facts.3' or '3'" in rows["cases/facts.3[preds]"]["message"]
    assert finished.report["totals"]["errors"] == 0


def test_predictions_of_no_case_are_warned_about(project):
    answers = {"fr": "Paris", "it": "Rome", "3": "3", "one": "Paris", **{f"x{n}": "?" for n in range(7)}}
    finished = predicted(project, answers)
    said = "preds.json: 7 of 11 predictions are of no case that was collected: 'x0', 'x1', 'x2', 'x3', 'x4', ..."
    assert finished.report["session"]["warnings"] == [said]
    assert said in finished.text.replace("\n", "")
    assert finished.exit == 0


def test_predictions_of_deselected_cases_are_not_reported_as_unused(project):
    answers = {"fr": "Paris", "it": "Rome", "3": "3", "one": "Paris"}
    finished = predicted(project, answers, "-k", "one")
    assert finished.outcomes == {"one[preds]": "passed"}
    assert finished.report["session"]["warnings"] == []


@pytest.mark.slow
def test_reports_say_that_no_model_answered(project):
    junit = project.path / "junit.xml"
    finished = predicted(project, {"fr": "Paris"}, "cases/facts.jsonl", f"--junit-xml={junit}", name="my run.json")
    [model] = finished.report["models"]
    marks = ("model_id", "predictions", "scripted", "own_agent", "label")
    assert [model[mark] for mark in marks] == ["my run", "my run.json", False, False, None]
    row = finished.runs["cases/facts.fr[my run]"]
    assert (row["predictions"], row["own_agent"], row["scripted"]) == ("my run.json", False, False)
    assert "predictions from my run.json" in finished.text
    properties = {each.get("name"): each.get("value") for each in ElementTree.parse(junit).iter("property")}
    assert properties["agentbench.model.my run.predictions"] == "my run.json"
    import jsonschema

    jsonschema.validate(finished.report, report_schema())


def test_predictions_have_no_cost_or_time_and_use_no_budget(project):
    finished = predicted(project, {"fr": "Paris"}, "cases/facts.jsonl", "--agentbench-max-cost", "1")
    row = finished.runs["cases/facts.fr[preds]"]
    assert (row["cost_usd"]["run"], row["duration_seconds"], row["usage"]["total_tokens"]) == (None, None, None)
    assert finished.report["totals"]["cost_usd"] == {"run": None, "judge": 0.0}
    assert finished.report["session"]["warnings"] == []


def test_the_stored_run_says_where_its_answer_came_from(project):
    row = predicted(project, {"fr": "Paris"}, "cases/facts.jsonl").runs["cases/facts.fr[preds]"]
    stored = json.loads((project.path / "outputs" / row["artifact"]).read_text())
    assert (stored["runner_type"], stored["model"]["model_id"]) == ("predictions", "preds")
    assert stored["provider"]["predictions"] == "preds.json"
    assert len(stored["provider"]["sha256"]) == 64


@pytest.mark.slow
def test_other_predictions_are_other_runs(project):
    prints = [
        predicted(project, {"fr": text}, "cases/facts.jsonl").runs["cases/facts.fr[preds]"]["fingerprint"]
        for text in ("Paris", "Lyon", "Paris")
    ]
    assert prints[0] == prints[2] != prints[1]


SAMPLES = {"fr": ["Paris", "Lyon", "Paris"], "it": ["Rome", "Rome"], "3": "3"}


def test_samples_answer_the_repetitions(project):
    finished = predicted(project, SAMPLES, "cases/facts.jsonl")
    assert [(name.partition(".")[2], outcome) for name, outcome in finished.outcomes.items()] == [
        ("fr[preds]", "passed"),
        ("fr[preds-r2]", "failed"),
        ("fr[preds-r3]", "passed"),
        ("it[preds]", "passed"),
        ("it[preds-r2]", "passed"),
        ("it[preds-r3]", "failed"),
        ("3[preds]", "passed"),
        ("3[preds-r2]", "failed"),
        ("3[preds-r3]", "failed"),
    ]
    assert "found 2 predictions, none for repetition 3" in finished.runs["cases/facts.it[preds-r3]"]["message"]
    [first, *_] = finished.report["cases"]
    assert first["pass_at_k"] == {"1": pytest.approx(2 / 3), "2": 1.0, "3": 1.0}
    [said] = finished.report["session"]["warnings"]
    assert "2 of 3 predictions have fewer samples than the 3 repetitions" in said
    assert said.endswith("missing samples count as failed: 'it', '3'")


def test_a_file_of_something_else_asks_for_no_repetitions(project):
    finished = predicted(project, {"runs": [{"n": n} for n in range(50)], "cases": []}, "cases/facts.jsonl")
    assert finished.report["totals"]["failed"] == 3
    assert "2 of 2 predictions are of no case" in finished.text


@pytest.mark.slow
def test_repetitions_that_are_asked_for_win_over_the_number_of_samples(project):
    project.profile("twice", policy={"run_repetitions": 2})
    project.profile("silent")
    assert len(predicted(project, SAMPLES, "cases/facts.jsonl", "--agentbench-repetitions", "1").runs) == 3
    assert len(predicted(project, SAMPLES, "cases/facts.jsonl", "--agentbench-run-profile", "twice").runs) == 6
    assert len(predicted(project, SAMPLES, "cases/facts.jsonl", "--agentbench-run-profile", "silent").runs) == 9


def test_a_list_answers_the_rows_of_one_dataset_in_order(project):
    finished = predicted(project, ["Paris", "Milan", 3], "cases/facts.jsonl")
    assert list(finished.outcomes.values()) == ["passed", "failed", "passed"]


def test_a_list_keeps_its_place_where_a_row_is_bad(bench):
    good = ({"id": each, "question": "q?", "answer": each} for each in "ac")
    bench.rows("cases/facts.jsonl", next(good), "{bad", next(good))
    finished = predicted(bench, ["a", "b", "c"])
    assert set(finished.outcomes.values()) == {"passed"}
    assert finished.exit == 1  # the bad row is an error


@pytest.mark.parametrize(
    ("predictions", "path", "said"),
    [
        (["Paris", "Rome"], "cases/facts.jsonl", "facts.jsonl has 3 items, the list 2"),
        (["Paris", "Rome", "3", "4"], "cases/facts.jsonl", "facts.jsonl has 3 items, the list 4"),
        (["Paris", "Rome", "3"], "cases", "the case one is no row of a dataset"),
        (["Paris", "Rome", "3"], "cases/facts.jsonl cases/more.jsonl", "the session has several datasets"),
    ],
)
def test_a_list_that_could_answer_the_wrong_questions_scores_nothing(project, predictions, path, said):
    project.rows("cases/more.jsonl", *({"question": f"{n}?", "answer": "Paris"} for n in range(3)))
    if path == "cases":
        (project.path / "cases/more.jsonl").unlink()
    finished = predicted(project, predictions, *path.split())
    assert finished.exit == 4
    assert said in finished.text
    assert "name predictions by id instead" in finished.text
    assert finished.report is None


@pytest.mark.slow
def test_files_of_one_dataset_that_are_named_one_by_one_do_not_share_a_list(bench):
    for name in "ab":
        bench.rows(f"cases/{name}.jsonl", *({"question": f"{n}?", "answer": f"{name}{n}"} for n in range(2)))
    bench.write("cases/dataset.yaml", {"schema_version": 1, "files": ["*.jsonl"]})
    answers = ["a0", "a1", "b0", "b1"]
    assert set(predicted(bench, answers, "cases").outcomes.values()) == {"passed"}
    assert set(predicted(bench, answers[2:], "cases/b.jsonl").outcomes.values()) == {"passed"}
    finished = predicted(bench, answers[:2], "cases/a.jsonl", "cases/b.jsonl")
    assert finished.exit == 4
    assert "the session has several datasets" in finished.text
    assert "cases/a.jsonl has 2 items, the list 4" in predicted(bench, answers, "cases/a.jsonl").text


@pytest.mark.slow
def test_a_list_cannot_answer_a_dataset_that_is_taken_in_another_order(bench):
    bench.rows("cases/facts.jsonl", *({"id": n, "question": f"{n}?", "answer": str(n)} for n in range(9)))
    described = {"schema_version": 1, "name": "facts", "files": ["facts.jsonl"]}
    bench.write("cases/dataset.yaml", {**described, "shuffle_seed": 7})
    answers = [str(n) for n in range(9)]
    finished = predicted(bench, answers)
    assert finished.exit == 4
    assert "dataset.yaml takes its rows in another order or leaves some out" in finished.text
    assert set(predicted(bench, dict(enumerate(answers))).outcomes.values()) == {"passed"}
    bench.write("cases/dataset.yaml", {**described, "limit": 3})
    assert list(predicted(bench, answers[:3]).outcomes.values()) == ["passed"] * 3
    assert predicted(bench, answers).exit == 4


@pytest.mark.slow
def test_a_short_id_that_two_datasets_have_needs_the_full_one(project):
    project.rows("cases/more.jsonl", {"id": "fr", "question": "France?", "answer": "Paris"})
    finished = predicted(project, {"fr": "Paris", "it": "Rome", "3": "3", "one": "Paris"})
    assert set(finished.outcomes) == {*(f"cases/facts.{key}[preds]" for key in ("fr", "it", "3")), "one[preds]"}
    assert "found the prediction of 'fr' in preds.json, which" in finished.text
    assert "such as 'cases/more.fr'" in finished.text
    assert finished.exit == 1
    full = predicted(project, {"cases/facts.fr": "Paris", "cases/more.fr": "Paris"}, "-k", "fr")
    assert full.outcomes == {"cases/facts.fr[preds]": "passed", "cases/more.fr[preds]": "passed"}


def test_a_file_that_cannot_be_read_ends_the_session_before_anything_is_scored(project):
    finished = predicted(project, "id,prediction\nfr,Paris\n", name="preds.csv")
    assert finished.exit == 4
    assert "preds.csv:1:1: not valid JSON: expecting value" in finished.text
    assert finished.report is None
    text = project.run("--agentbench-predictions", "gone.json").text
    assert "--agentbench-predictions: found gone.json, expected an existing file" in text


def test_an_id_that_node_ids_cannot_carry_finds_its_row(bench):
    bench.rows("cases/facts.jsonl", {"id": "a[1]::b", "question": "q?", "answer": "yes"})
    assert list(predicted(bench, {"a[1]::b": "yes"}).outcomes.values()) == ["passed"]


def test_the_last_failed_run_again(project):
    answers = {"fr": "Paris", "it": "Milan", "3": "3", "one": "Paris"}
    predicted(project, answers, "-pcacheprovider")
    finished = predicted(project, answers | {"it": "Rome"}, "--lf", "-pcacheprovider")
    assert finished.outcomes == {"cases/facts.it[preds]": "passed"}


def test_a_marked_test_gets_its_prediction(project):
    project.agent(
        "import pytest\n\n@pytest.fixture\ndef agentbench_runner():\n    return lambda case: 'from the agent'\n"
    )
    project.write(
        "tests/test_marked.py",
        "import pytest\n"
        "@pytest.mark.agentbench('cases/facts.it')\n"
        "def test_row(agentbench_run, agentbench_model):\n"
        "    assert (agentbench_run.output, agentbench_model) == ('Rome', None)\n"
        "@pytest.mark.agentbench('one')\n"
        "def test_case(agentbench_run):\n"
        "    assert agentbench_run.output == 'Paris'\n",
    )
    finished = predicted(project, {"it": "Rome", "one": "Paris"}, "tests")
    assert finished.outcomes == {"test_row[preds]": "passed", "test_case[preds]": "passed"}
    in_order = predicted(project, ["Paris", "Rome", "3"], "tests", "-k", "row")
    assert in_order.exit == 4  # the case `one` has no place in a list
    assert "the case one is no row of a dataset" in in_order.text


def test_a_marked_row_gets_its_prediction_from_a_list(project):
    project.write(
        "tests/test_marked.py",
        "import pytest\n"
        "@pytest.mark.agentbench('cases/facts.it')\n"
        "def test_row(agentbench_run):\n"
        "    assert agentbench_run.output == 'Rome'\n",
    )
    finished = predicted(project, ["Paris", "Rome", "3"], "tests")
    assert finished.outcomes == {"test_row[preds]": "passed"}


@pytest.mark.slow
def test_workers_share_predictions_and_the_controller_warns(bench):
    bench.questions(20)
    answers = {f"q{n}": "Paris" for n in range(19)} | {"q99": "Paris"}
    finished = predicted(bench, answers, "-n", "2")
    assert finished.report["totals"]["passed"] == 19
    assert finished.outcomes["cases/many.q19[preds]"] == "failed"
    [warning] = finished.report["session"]["warnings"]
    assert "1 of 20 predictions are of no case that was collected: 'q99'" in warning
    [model] = finished.report["models"]
    assert model["predictions"] == "preds.json"


JUDGED = {
    "schema_version": 1,
    "evaluation_profile_id": "judged",
    "title": "Judged",
    "judges": [{"judge_id": "main", "type": "llm_probe", "model": "demo"}],
    "judge_runs": [{"judge_run_id": "main", "judge_id": "main", "repetitions": 1}],
}
VERDICT = {"summary": "Fine.", "overall": 9, "expectations": [{"kind": "soft", "index": 0, "met": 1}]}


def test_a_judge_scores_predictions_but_none_that_is_missing(bench):
    for case_id in ("one", "two"):
        bench.case(case_id, expectations={"soft_expectations": [{"text": "friendly"}]})
        bench.write(f"cases/{case_id}/demo.yaml", {"schema_version": 1, "judge": VERDICT})
    bench.write("cases/evaluation_profiles/judged.yaml", JUDGED)
    finished = predicted(bench, {"one": "Paris"}, "--agentbench-evaluation-profile", "judged")
    assert finished.runs["one[preds]"]["judge"]["overall"] == 9
    assert finished.runs["two[preds]"]["judge"] is None
    assert finished.outcomes == {"one[preds]": "passed", "two[preds]": "failed"}
    [model] = finished.report["models"]
    assert (model["scripted"], model["predictions"]) == (False, "preds.json")


def test_checks_of_more_than_the_answer_are_errors_for_predictions(bench):
    checks = [
        {"kind": "tool_called", "name": "web_search"},
        {"kind": "tool_not_called", "name": "web_search"},
        {"kind": "max_seconds", "seconds": 60},
        {"kind": "max_cost_usd", "usd": 1},
        {"kind": "file_exists", "path": "report.md"},
        {"kind": "regex_match", "pattern": "Paris", "path": "report.md"},
    ]
    ids = [f"case{number}" for number in range(len(checks))]
    for case_id, declarative in zip(ids, checks, strict=True):
        bench.case(case_id, deterministic_checks=[{"check_id": "it", "declarative": declarative}])
    bench.case("two")
    finished = predicted(bench, dict.fromkeys([*ids, "two"], "Paris"))
    assert finished.outcomes == {f"{case_id}[preds]": "error" for case_id in ids} | {"two[preds]": "passed"}
    for case_id in ids:
        assert "predictions contain only answers" in finished.runs[f"{case_id}[preds]"]["message"]


def test_tool_checks_are_decided_by_the_calls_of_a_prediction(bench):
    checks = [
        ({"kind": "tool_called", "name": "search"}, "passed"),
        ({"kind": "tool_called", "name": "search", "arguments": {"q": "y"}}, "failed"),
        ({"kind": "tool_not_called", "name": "search"}, "failed"),
        ({"kind": "tool_call_count", "count": 1}, "passed"),
        ({"kind": "max_turns", "count": 1}, "error"),
        ({"kind": "file_exists", "path": "report.md"}, "error"),
    ]
    outcomes = {f"case{number}": outcome for number, (_, outcome) in enumerate(checks)}
    for case_id, (declarative, _) in zip(outcomes, checks, strict=True):
        bench.case(case_id, deterministic_checks=[{"check_id": "it", "declarative": declarative}])
    call = {"name": "search", "arguments": {"q": "x"}}
    finished = predicted(bench, {case_id: [{"output": "Paris", "tool_calls": [call]}] for case_id in outcomes})
    assert finished.outcomes == {f"{case_id}[preds]": outcome for case_id, outcome in outcomes.items()}


@pytest.mark.slow
def test_a_file_of_answers_is_not_a_dataset_but_can_be_used_as_predictions(project):
    asked = [("fr", "Capital of France?", "Paris"), ("it", "Capital of Italy?", "Milan"), (3, "1 + 2?", "3")]
    logs = [
        {"task_id": key, "question": question, "answer": answer, "messages": [{"role": "user"}], "success": True}
        for key, question, answer in asked
    ]
    results = [
        {"item_id": str(key), "question": question, "ground_truth": "?", "prediction": answer, "score": True}
        for key, question, answer in asked
    ]
    # All of a log's first row may be longer than what is read of a file to know what it holds
    long = [{**logs[0], "messages": [{"role": "user", "content": "x" * 70_000}]}, *logs[1:]]
    project.rows("cases/results_facts.jsonl", *logs)
    project.write("cases/logs.json", json.dumps(long))
    saved = {"benchmark_info": {}, "evaluation_results": results, "summary": {}}
    project.write("cases/evaluation_facts.json", json.dumps(saved))
    for name in ("cases/results_facts.jsonl", "cases/logs.json", "cases/evaluation_facts.json"):
        model = Path(name).stem
        assert predicted(project, (project.path / name).read_text(), name=name).outcomes == {
            f"cases/facts.fr[{model}]": "passed",
            f"cases/facts.it[{model}]": "failed",
            f"cases/facts.3[{model}]": "passed",
            f"one[{model}]": "failed",
        }


def test_the_stored_answers_of_a_conversation_are_its_turns(bench):
    looks_up = {"check_id": "looks-up", "declarative": {"kind": "tool_called", "name": "find"}}
    turns = [
        {"role": "user", "content": "Where is 1042?", "checks": [looks_up]},
        {"role": "user", "content": "And 1043?"},
    ]
    says = {"check_id": "says", "turn": 1, "declarative": {"kind": "contains", "text": "Oslo"}}
    ends = {"check_id": "ends", "declarative": {"kind": "contains", "text": "Bergen"}}
    names = ["both", "short", "last", "other"]
    for case_id in names:
        bench.case(case_id, input={"messages": [], "turns": turns}, deterministic_checks=[says, ends])
    first = {"output": "In Oslo.", "tool_calls": [{"name": "find", "arguments": {"id": 1042}}]}
    second = {"output": "In Bergen.", "tool_calls": []}
    finished = predicted(
        bench,
        {
            "both": {"answers": [first, second]},
            "short": {"answers": [first]},
            "last": "In Bergen.",
            "other": {"answers": ["In Oslo, too.", "In Bergen."]},
        },
    )
    runs = {name: finished.runs[f"{name}[preds]"] for name in names}
    assert [runs[name]["outcome"] for name in names] == ["passed", "failed", "error", "error"]
    assert "answers: found 1 answer, expected a lis" in runs["short"]["message"]
    assert "the prediction has only the last answer" in runs["last"]["message"]
    assert "tool calls, files, time and cost are unknown" in runs["other"]["message"]
    assert runs["both"]["conversation"] == {"turns": 2, "requests": None, "turn_seconds": None}
