from __future__ import annotations

import pytest
from support.bench import ECHO_TO_FILE, check

from pytest_agentbench.metrics.registry import METRICS, V1_METRICS, metric

SAID = (
    "the metric uninstalled needs the module no_such_module; install it with: pip install 'pytest-agentbench[metrics]'"
)


@pytest.fixture
def project(bench):
    """A metric whose library is not installed, an agent that notes its runs, and a case that needs neither."""

    @metric("uninstalled", requires="no_such_module")
    def uninstalled(ground_truth, prediction):
        return 1.0

    bench.agent(ECHO_TO_FILE)
    bench.case("fine")
    bench.write("cases/models.yaml", "schema_version: 1\nmodels: []\n")
    yield bench
    del METRICS["uninstalled"]


def refused(finished):
    """The files that are said to ask for the metric, with line and column."""
    lines = [line for line in finished.text.splitlines() if SAID in line]
    return [line.rpartition("/cases/")[2].partition(": ")[0] for line in lines]


def test_cases_and_datasets_that_ask_for_it_are_refused_and_others_run(project):
    project.case("measured", metrics=[{"name": "uninstalled", "threshold": 1}], reference="Paris")
    project.case("checked", deterministic_checks=[check("it", kind="metric", name="uninstalled", reference="Paris")])
    evaluator = {"func": "uninstalled"}
    project.rows(
        "cases/facts.jsonl",
        {"id": "fr", "question": "France?", "answer": "Paris", "evaluator": evaluator},
        {"id": "it", "question": "uninstalled?", "answer": "Paris"},
    )
    finished = project.run()
    assert finished.outcomes == {"fine[agent]": "passed", "facts.it[agent]": "passed"}
    assert sorted(project.lines("runs.txt")) == ["facts.it", "fine"]
    assert [place.partition(":")[0] for place in refused(finished)] == [
        "checked/test.yaml",
        "facts.jsonl",
        "measured/test.yaml",
    ]
    assert finished.exit == 1


def test_the_metric_of_the_command_line_is_refused_for_datasets(project):
    project.questions(3)
    finished = project.run("--agentbench-metric", "uninstalled>=0.5")
    assert refused(finished) == ["many.jsonl:1:1"]
    assert project.lines("runs.txt") == ["fine"]


def test_metrics_of_a_profile_are_refused_once_at_their_place(project):
    profile = {"schema_version": 1, "evaluation_profile_id": "p", "title": "P", "metrics": [{"name": "uninstalled"}]}
    project.write("cases/evaluation_profiles/p.yaml", profile)
    project.questions(3)
    finished = project.run("--agentbench-evaluation-profile", "p")
    assert [place.partition(":")[0] for place in refused(finished)] == ["evaluation_profiles/p.yaml"]
    assert project.lines("runs.txt") == []
    assert finished.exit != 0


def test_a_marked_test_of_such_a_case_is_refused(project):
    project.case("measured", metrics=[{"name": "uninstalled"}], reference="Paris")
    source = "import pytest\n@pytest.mark.agentbench('measured')\ndef test_it(agentbench_run): pass\n"
    project.write("tests/test_marked.py", source)
    finished = project.run("tests")
    assert SAID in finished.text
    assert project.lines("runs.txt") == []


def test_the_original_definition_needs_no_library(project, monkeypatch):
    monkeypatch.setitem(V1_METRICS, "uninstalled", lambda ground_truth, prediction: 1.0)
    asked = [{"name": "uninstalled", "threshold": 1, "compat": "v1"}]
    project.case("measured", deterministic_checks=None, metrics=asked, reference="Paris")
    assert project.run("cases/measured").outcomes == {"measured[agent]": "passed"}
