from __future__ import annotations

import re

import pytest

HEAD = "import pytest\n"


@pytest.fixture
def project(bench):
    """A case and a row below `cases`, an agent that writes into its workspace, tests beside them."""
    bench.agent(
        HEAD
        + """
@pytest.fixture(scope="session")
def agentbench_runner():
    def agent(case, context):
        context.workspace.write_text("notes.txt", case.case_id)
        return case.metadata.get("says", "Paris")
    return agent
"""
    )
    bench.case("one")
    bench.case("wrong", metadata={"says": "Rome"})
    bench.rows("cases/facts.jsonl", {"id": "fr", "question": "Capital of France?", "answer": "Paris"})
    return bench


def marked(bench, body, mark="'one'", **files):
    source = f"{HEAD}@pytest.mark.agentbench({mark})\ndef test_it{body}\n"
    bench.write("tests/test_marked.py", source)
    return bench.run("tests")


def test_a_mark_names_a_case_by_id_or_path(project):
    marks = {"id": "one", "file": "../cases/one/test.yaml", "folder": "../cases/one", "row": "cases/facts.fr"}
    tests = [
        f"@pytest.mark.agentbench({mark!r})\ndef test_{name}(agentbench_run):\n"
        "    assert agentbench_run.output == 'Paris'\n"
        for name, mark in marks.items()
    ]
    project.write("tests/test_marked.py", HEAD + "".join(tests))
    finished = project.run("tests")
    assert finished.outcomes == {f"test_{name}[agent]": "passed" for name in marks}
    assert finished.exit == 0


@pytest.mark.slow
def test_a_marked_case_may_name_outside_files_where_the_run_profile_says_so(project):
    project.write("outside.txt", "Capital of France?")
    project.profile("outside", allow_outside_paths=True)
    project.case("one", input={"messages": [{"role": "user", "source": {"path": "../../outside.txt"}}]})
    assert "found '../../outside.txt', which" in marked(project, "(agentbench_run): pass").text
    source = f"{HEAD}@pytest.mark.agentbench('one')\ndef test_it(agentbench_run): pass\n"
    project.write("tests/test_marked.py", source)
    finished = project.run("tests", "--agentbench-run-profile", "outside")
    assert finished.outcomes == {"test_it[agent]": "passed"}


def test_wrong_profiles_are_one_error_and_no_marked_test_runs(project):
    project.write("tests/test_first.py", f"{HEAD}@pytest.mark.agentbench('one')\ndef test_it(agentbench_run): pass\n")
    source = f"{HEAD}@pytest.mark.agentbench('one')\ndef test_it(agentbench_run): pass\ndef test_other(): pass\n"
    project.write("tests/test_second.py", source)
    finished = project.run("--agentbench-profile", "gone", "--continue-on-collection-errors", "-rs")
    finished.result.assert_outcomes(errors=1, passed=1, skipped=2)
    assert "profiles or models are wrong: see the collection error" in finished.text


def test_an_unknown_metric_of_the_evaluation_profile_is_an_error_before_anything_runs(project):
    profile = {"schema_version": 1, "evaluation_profile_id": "e", "title": "E", "metrics": [{"name": "exact_mach"}]}
    project.write("cases/evaluation_profiles/e.yaml", profile)
    finished = project.run("--agentbench-evaluation-profile", "e", "cases")
    assert "metrics[0].name: unknown metric 'exact_mach'; did you mean 'exact_match'?" in finished.text
    assert finished.runs == {}


def test_case_model_and_workspace_are_fixtures(project):
    body = """(agentbench_run, agentbench_case, agentbench_model, agentbench_workspace):
    assert agentbench_case.case_id == agentbench_run.case.case_id == "one"
    assert agentbench_model is None
    assert (agentbench_workspace.path / "notes.txt").read_text() == "one"
    assert agentbench_run.evaluation.outcome == "passed"
    assert agentbench_run.artifact.status == "success"
    assert agentbench_run.tool_calls == ()
"""
    assert marked(project, body).outcomes == {"test_it[agent]": "passed"}


@pytest.mark.slow
def test_hand_written_assertions_decide_and_not_the_cases_checks(project):
    body = "(agentbench_run):\n    assert agentbench_run.evaluation.outcome == 'failed'"
    assert marked(project, body, "'wrong'").outcomes == {"test_it[agent]": "passed"}
    finished = marked(project, "(agentbench_run):\n    assert agentbench_run.output == 'Oslo'")
    assert finished.outcomes == {"test_it[agent]": "failed"}
    assert "'Paris' == 'Oslo'" in finished.text


@pytest.mark.slow
def test_assertions_by_hand_need_no_verdict_of_the_case(project):
    project.case("undecided", deterministic_checks=None)
    body = "(agentbench_run):\n    assert agentbench_run.output == 'Paris'"
    assert marked(project, body, "'undecided'").outcomes == {"test_it[agent]": "passed"}
    project.write("tests/conftest.py", "def pytest_agentbench_checks():\n    return {'breaks': lambda s, c: 1 / 0}\n")
    project.case("undecided", deterministic_checks=[{"check_id": "odd", "declarative": {"kind": "breaks"}}])
    body += "\n    assert agentbench_run.evaluation.outcome == 'error'"
    assert marked(project, body, "'undecided'").outcomes == {"test_it[agent]": "passed"}


def test_each_parameter_of_the_runner_fixture_runs_the_case_once(bench):
    bench.agent(
        HEAD
        + """
@pytest.fixture(scope="session", params=["Paris", "Rome"])
def agentbench_runner(request):
    def agent(case):
        with open("runs.txt", "a") as file:
            file.write(request.param + "\\n")
        return request.param
    return agent
"""
    )
    bench.case("one")
    body = "(agentbench_run):\n    assert agentbench_run.output in ('Paris', 'Rome')"
    finished = marked(bench, body)
    assert list(finished.outcomes.values()) == ["passed", "passed"]
    assert bench.lines("runs.txt") == ["Paris", "Rome"]


@pytest.mark.slow
def test_a_marked_test_runs_once_per_model_and_repetition(project):
    project.write(
        "tests/test_marked.py",
        HEAD
        + """
@pytest.mark.agentbench("one")
class TestOne:
    @pytest.mark.parametrize("word", ["a", "i"])
    def test_letters(self, agentbench_run, agentbench_model, word):
        assert word in agentbench_run.output
        assert agentbench_model.model_id in ("demo", "gpt4o")
""",
    )
    finished = project.run("tests", "--model", "demo", "--model", "gpt4o", "--agentbench-repetitions", "2")
    assert len(finished.runs) == 8
    assert {row["outcome"] for row in finished.runs.values()} == {"passed"}
    assert {(row["model_id"], row["repetition"]) for row in finished.runs.values()} == {
        (model, n) for model in ("demo", "gpt4o") for n in (1, 2)
    }


def test_the_parameters_of_a_marked_test_are_cases_and_no_repetitions_of_one(project):
    project.write(
        "tests/test_marked.py",
        HEAD
        + """
@pytest.mark.agentbench("one")
@pytest.mark.parametrize("word", ["a", "zebra"])
def test_letters(agentbench_run, word):
    assert word in agentbench_run.output
""",
    )
    report = project.run("tests", "--model", "demo", "--agentbench-repetitions", "2").report
    (model,) = report["models"]
    assert [(case["case"], case["passed"], case["repetitions"], case["flakiness"]) for case in report["cases"]] == [
        ("tests/test_marked.py::test_letters[a]", 2, 2, 0),
        ("tests/test_marked.py::test_letters[zebra]", 0, 2, 0),
    ]
    assert (model["flaky_cases"], model["pass_at_k"]) == (0, {"1": 0.5, "2": 0.5})


@pytest.mark.parametrize(
    ("mark", "message"),
    [
        ("'noe'", r"no case 'noe' below.*did you mean 'one'\?"),
        ("", "expected one case id or path of a test.yaml"),
        ("'one', 'wrong'", "expected one case id or path of a test.yaml"),
    ],
)
def test_a_wrong_mark_is_an_error_that_says_what_is_expected(project, mark, message):
    finished = marked(project, "(agentbench_run): pass", mark)
    assert finished.exit == 2
    assert re.search(message, finished.text)
    assert "test_marked.py::test_it" in finished.text
    assert "Traceback" not in finished.text


@pytest.mark.slow
def test_a_fixture_without_a_mark_says_what_is_missing(project):
    for fixture in ("agentbench_run", "agentbench_case", "agentbench_model", "agentbench_workspace"):
        project.write("tests/test_plain.py", f"def test_it({fixture}): pass\n")
        finished = project.run("tests")
        finished.result.assert_outcomes(errors=1)
        assert "@pytest.mark.agentbench(" in finished.text


def test_an_exception_of_the_runner_is_an_error_of_the_test(bench):
    bench.agent(
        HEAD + "@pytest.fixture(scope='session')\ndef agentbench_runner():\n    return lambda case: 1 / 0\n",
    )
    bench.case("one")
    finished = marked(bench, "(agentbench_run): pass")
    assert finished.outcomes == {"test_it[agent]": "error"}
    assert "ZeroDivisionError" in finished.text


def test_a_module_may_bring_its_own_agent(project):
    project.write(
        "tests/test_marked.py",
        HEAD
        + """
@pytest.fixture(scope="module", name="agentbench_runner")
def my_runner():
    return lambda case: "from the module"

@pytest.mark.agentbench("one")
def test_it(agentbench_run):
    assert agentbench_run.output == "from the module"
""",
    )
    finished = project.run("tests", "cases", "--model", "gpt4o")  # no key: the model is only a name here
    assert finished.outcomes["test_it[gpt4o]"] == "passed"
    assert finished.outcomes["one[gpt4o]"] == "passed"


@pytest.mark.slow
def test_marked_tests_run_over_workers(project):
    body = "(agentbench_run):\n    assert agentbench_run.output == 'Paris'"
    marked(project, body)
    finished = project.run("tests", "cases", "-n", "2")
    assert finished.outcomes == {
        "test_it[agent]": "passed",
        "one[agent]": "passed",
        "wrong[agent]": "failed",
        "cases/facts.fr[agent]": "passed",
    }
