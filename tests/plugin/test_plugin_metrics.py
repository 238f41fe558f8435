from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.bench import COUNTING, HEAD, check

from pytest_agentbench.metrics.registry import METRICS, metric

SLOW = (
    HEAD
    + """
from pytest_agentbench.metrics.registry import metric

begun, ended = threading.Event(), threading.Event()

@metric("long_one", slow=True)
def long_one(ground_truth, prediction):
    begun.set()
    return float(ended.wait(20))

async def agent(case):
    if case.case_id == "other":
        while not begun.is_set():
            await asyncio.sleep(0)
        ended.set()
    return "Paris"
"""
)
"""The metric of one case ends when another run goes on meanwhile."""


@pytest.mark.slow
@pytest.mark.parametrize("place", ["metrics", "checks"])
def test_a_slow_metric_holds_up_no_other_run(bench, place):
    bench.agent(SLOW)
    if place == "metrics":
        bench.case("measured", metrics=[{"name": "long_one", "threshold": 1}], reference="Paris")
    else:
        bench.case("measured", deterministic_checks=[check("it", kind="metric", name="long_one", reference="Paris")])
    bench.case("other")
    assert bench.spawn().outcomes == {"measured[agent]": "passed", "other[agent]": "passed"}


# -- what cannot be measured is refused before a run is paid


COUNTED = (
    COUNTING
    + """
def pytest_sessionfinish(session):
    note("asked.txt", str(most))
"""
)


@pytest.fixture
def project(bench):
    """An agent that notes whether it was run, and two metrics of one's own."""

    @metric("limited")
    def limited(ground_truth, prediction, *, words: int = 3, **more: object):
        return float(len(prediction.split()) <= words)

    @metric("untyped")
    def untyped(ground_truth, prediction, slack=0):
        return float(abs(len(ground_truth) - len(prediction)) <= slack)

    bench.agent(COUNTED)
    bench.write("cases/models.yaml", "schema_version: 1\nmodels: []\n")
    yield bench
    del METRICS["limited"], METRICS["untyped"]


def refused(project, said):
    finished = project.run()
    assert said in finished.text
    assert project.lines("asked.txt") == ["0"]
    return finished


WRONG = [
    ({"name": "numeric_match", "args": {"tol": 1}}, "unexpected keyword argument 'tol'"),
    ({"name": "numeric_match", "args": {"rel_tol": "1%"}}, 'args.rel_tol: found "1%", '),
    ({"name": "numeric_match", "args": {"abs_tol": -1}}, "args.abs_tol: found -1, "),
    ({"name": "numeric_match", "compat": "v1", "args": {"abs_tol": 1}}, "unexpected keyword argument 'abs_tol'"),
    ({"name": "json_match", "args": {"ignore_order": "yes"}}, 'args.ignore_order: found "yes", '),
    ({"name": "rouge_score", "args": {"stem": 1}}, "args.stem: found 1, "),
    ({"name": "multiple_choice", "args": {"choices": 4}}, "args.choices: found 4, "),
    ({"name": "exact_match", "args": {"prediction": "x"}}, "multiple values for argument 'prediction'"),
    ({"name": "llm_judgement", "args": {"context": "x"}}, "multiple values for keyword argument 'context'"),
    ({"name": "limited", "args": {"words": "many"}}, 'args.words: found "many", '),
    ({"name": "untyped", "args": {"tolerance": 1}}, "unexpected keyword argument 'tolerance'"),
    ({"name": "pass_at_k", "args": {"k": 1}}, "a run gives one answer"),
]


def test_a_case_with_an_uncomputable_metric_is_refused(project):
    for number, (asked, _) in enumerate(WRONG):
        project.case(f"measured{number}", metrics=[asked], reference="Paris")
    lines = refused(project, "measured0/test.yaml:").text.splitlines()
    for number, (asked, problem) in enumerate(WRONG):
        [line] = [line for line in lines if f"measured{number}/test.yaml:" in line and problem in line]
        assert f"metric {asked['name']}: " in line


def test_a_check_with_an_uncomputable_metric_is_refused(project):
    problems = [
        ({"name": "llm_judgement"}, "asks a model, which a check cannot; list it under `metrics`"),
        ({"name": "pass_hat_k"}, "a run gives one answer"),
        ({"name": "numeric_match", "args": {"tol": 1}}, "unexpected keyword argument 'tol'"),
    ]
    for number, (asked, _) in enumerate(problems):
        checks = [check("it", kind="metric", reference="Paris", **asked)]
        project.case(f"checked{number}", deterministic_checks=checks)
    lines = refused(project, "checked0/test.yaml:").text.splitlines()
    for number, (_, problem) in enumerate(problems):
        assert any(f"checked{number}/test.yaml:" in line and problem in line for line in lines)


def test_votes_that_cannot_be_counted_are_refused(project):
    counts = [0, -1, 1.5, "two", True, None]
    for number, repetitions in enumerate(counts):
        asked = {"name": "llm_judgement", "args": {"model": "demo", "repetitions": repetitions}}
        project.case(f"measured{number}", metrics=[asked], reference="Paris")
    text = refused(project, "metric llm_judgement").text
    for repetitions in counts:
        assert f"metric llm_judgement: args.repetitions: found {json.dumps(repetitions)}, " in text


@pytest.mark.slow
def test_rows_datasets_and_profiles_are_refused_too(project):
    wrong = {"func": "numeric_match", "args": {"tol": 1}}
    project.rows("cases/facts.jsonl", {"id": "fr", "question": "France?", "answer": "1", "evaluator": wrong})
    said = "metric numeric_match: args: got an unexpected keyword argument 'tol'"
    refused(project, said)
    Path(project.path, "cases/facts.jsonl").unlink()
    Path(project.path, "asked.txt").unlink()
    project.questions(2)
    metrics = [{"name": "numeric_match", "args": {"tol": 1}}]
    project.write(
        "cases/many.dataset.yaml", {"schema_version": 1, "name": "many", "files": ["many.jsonl"], "metrics": metrics}
    )
    refused(project, said)
    Path(project.path, "cases/many.dataset.yaml").unlink()
    profile = {"schema_version": 1, "evaluation_profile_id": "p", "title": "P", "metrics": metrics}
    project.write("cases/evaluation_profiles/p.yaml", profile)
    finished = project.run("--agentbench-evaluation-profile=p")
    assert said in finished.text
    assert not finished.runs


def test_template_values_are_checked_only_after_substitution(project):
    project.rows("cases/facts.jsonl", {"id": "fr", "question": "France?", "answer": "A", "options": ["Paris", "Nice"]})
    metrics = [{"name": "multiple_choice", "threshold": 1, "args": {"choices": "{{ options }}"}}]
    project.write(
        "cases/facts.dataset.yaml", {"schema_version": 1, "name": "facts", "files": ["facts.jsonl"], "metrics": metrics}
    )
    assert project.run().outcomes == {"facts.fr[agent]": "passed"}


OSWORLD = {
    "func": ["exact_match", "is_installed"],
    "conj": "or",
    "result": [{"type": "vm_command_line"}, {"type": "vm_file"}],
    "expected": [{"type": "rule", "rules": {"expected": "true"}}, {}],
}


@pytest.mark.slow
def test_a_row_without_answer_is_decided_by_a_metric_of_ones_own(bench):
    bench.agent("""
import pytest
from pytest_agentbench import metric

@metric("is_open")
def is_open(ground_truth, prediction, evaluator=None):
    assert ground_truth == ""
    return float("spotify" in prediction and (evaluator is None or evaluator["conj"] == "or"))

@pytest.fixture(scope="session")
def agentbench_runner():
    return lambda case: f"{case.messages[0].content}: {case.metadata['evaluator']['conj']}"
""")
    rows = [{"id": app, "question": f"Open {app}", "answer": "", "evaluator": OSWORLD} for app in ("spotify", "gimp")]
    bench.rows("data/apps.jsonl", *rows)
    undecided = bench.run()
    assert undecided.outcomes == {"data/apps.spotify[agent]": "error", "data/apps.gimp[agent]": "error"}
    assert "neither an answer nor an evaluator that is a check or metric" in undecided.text
    decided = {"data/apps.spotify[agent]": "passed", "data/apps.gimp[agent]": "failed"}
    assert bench.run("--agentbench-metric", "is_open>=1").outcomes == decided
    metrics = [{"name": "is_open", "threshold": 1, "args": {"evaluator": "{{ evaluator }}"}}]
    bench.write("data/dataset.yaml", {"schema_version": 1, "files": ["apps.jsonl"], "metrics": metrics})
    assert bench.run().outcomes == decided


def test_a_rows_evaluator_may_name_a_metric_of_ones_own_without_an_answer(bench):
    bench.agent("""
import pytest
from pytest_agentbench import metric

@metric("is_short")
def is_short(ground_truth, prediction):
    return float(len(prediction) < 3)

@pytest.fixture(scope="session")
def agentbench_runner():
    return lambda case: case.messages[0].content
""")
    rows = [{"id": text, "question": text, "evaluator": {"func": "is_short"}} for text in ("a", "abcd")]
    bench.rows("data/short.jsonl", *rows)
    assert bench.run().outcomes == {"data/short.a[agent]": "passed", "data/short.abcd[agent]": "failed"}


@pytest.mark.slow
def test_replies_that_go_on_with_a_further_question_are_a_warning_of_the_session(bench):
    bench.agent(HEAD + 'async def agent(case):\n    return "Paris: #### 18\\n\\nQuestion: 1 + 2?\\nAnswer:\\n#### 3"\n')
    bench.case("sums", metrics=[{"name": "numeric_match", "threshold": 1}], reference="18")
    finished = bench.spawn()
    assert finished.outcomes == {"sums[agent]": "passed"}
    assert "warning: agent: 1 reply goes on with a further question: the first answer was scored" in finished.text
    assert finished.runs["sums[agent]"]["run_on"] == ["numeric_match"]
