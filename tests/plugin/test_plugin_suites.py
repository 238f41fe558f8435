from __future__ import annotations

import pytest


@pytest.fixture
def project(bench):
    """Four cases below `cases`, of which the suite `nightly` selects two; tests beside them."""
    bench.agent()
    for case_id, tags in (("one", ["smoke"]), ("two", ["smoke", "manual"]), ("three", ["smoke", "slow"]), ("four", [])):
        bench.case(case_id, tags=tags)
    suite(bench, "nightly", include_tags=["smoke"], exclude_tags=["slow"])
    bench.write("tests/test_plain.py", "def test_plain(): pass\n")
    return bench


def suite(bench, suite_id, folder="cases", models=(), **selection):
    models = list(models) or [{"model_id": "demo", "label": "Demo"}]
    content = {"schema_version": 1, "suite_id": suite_id, "title": suite_id, "models": models}
    return bench.write(f"{folder}/suites/{suite_id}.yaml", {**content, "case_selection": selection})


@pytest.mark.parametrize("name", ["nightly", "cases/suites/nightly.yaml"])
def test_a_suite_without_paths_runs_its_cases_and_models(project, name):
    finished = project.run("--agentbench-suite", name)
    assert finished.exit == 0
    assert finished.outcomes == {"one[demo]": "passed", "two[demo]": "passed"}  # a suite names its manual cases
    finished.result.assert_outcomes(passed=2, deselected=2)


def test_paths_narrow_what_a_suite_runs(project):
    finished = project.run("--agentbench-suite", "nightly", "cases/one", "tests")
    assert finished.outcomes == {"one[demo]": "passed"}
    finished.result.assert_outcomes(passed=2)


def test_a_suite_without_paths_ignores_testpaths(project):
    project.write("pytest.ini", "[pytest]\ntestpaths = tests\n")
    assert len(project.run("--agentbench-suite", "nightly").outcomes) == 2


@pytest.mark.slow
def test_a_suite_without_paths_works_over_workers(project):
    finished = project.run("--agentbench-suite", "nightly", "-n", "2")
    assert finished.exit == 0
    assert sorted(finished.outcomes) == ["one[demo]", "two[demo]"]


def test_configs_names_the_root_of_a_suite(bench):
    bench.agent()
    bench.case("one", folder="benchmarks/configs/cases")
    bench.case("elsewhere")
    suite(bench, "nightly", folder="benchmarks/configs", include_tags=["smoke"])
    bench.case("two", folder="benchmarks/configs/cases", tags=["smoke"])
    bench.write("pytest.ini", "[pytest]\nagentbench_configs = benchmarks/configs\n")
    assert list(bench.run("--agentbench-suite", "nightly").outcomes) == ["two[demo]"]
    bench.write("pytest.ini", "[pytest]\n")
    assert list(bench.run("--agentbench-suite", "nightly").outcomes) == ["two[demo]"]


def test_a_suite_in_two_roots_is_ambiguous(project):
    suite(project, "nightly", folder="more")
    project.case("third", folder="more")
    finished = project.run("--agentbench-suite", "nightly")
    assert finished.exit == 4
    assert "suite 'nightly' is ambiguous" in finished.text
    assert len(project.run("--agentbench-suite", "nightly", "cases").outcomes) == 2


@pytest.mark.parametrize("paths", [(), ("cases",)], ids=["without-paths", "with-paths"])
def test_an_unknown_suite_is_an_error_with_a_hint(project, paths):
    finished = project.run("--agentbench-suite", "nigthly", *paths)
    assert finished.exit != 0
    assert "there is no suite 'nigthly'" in finished.text
    assert "did you mean 'nightly'?" in finished.text
    assert finished.runs == {}


@pytest.mark.parametrize("workers", [(), pytest.param(("-n", "2"), marks=pytest.mark.slow)], ids=["serial", "xdist"])
@pytest.mark.parametrize("key", ["include_case_ids", "exclude_case_ids"])
def test_unknown_ids_in_a_suite_are_one_error(project, key, workers):
    suite(project, "odd", **{key: ["one", "oen"]}, include_tags=["smoke"])
    finished = project.run("--agentbench-suite", "odd", *workers)
    assert finished.exit != 0
    assert f"odd.yaml:4:5: case_selection.{key}[1]: no case has the id" in finished.text
    assert "oen" in finished.text
    assert finished.runs == {}


def test_model_on_the_command_line_wins_over_the_suites_models(project):
    finished = project.run("--agentbench-suite", "nightly", "--model", "other", "cases/one")
    assert list(finished.outcomes) == ["one[other]"]


def test_marked_tests_take_part_in_a_suite(project):
    project.write(
        "tests/test_marked.py",
        "import pytest\n"
        "@pytest.mark.agentbench('one')\ndef test_in(agentbench_run): assert agentbench_run.output == 'Paris'\n"
        "@pytest.mark.agentbench('four')\ndef test_out(agentbench_run): pass\n",
    )
    finished = project.run("--agentbench-suite", "nightly", "tests")
    assert finished.outcomes == {"test_in[demo]": "passed"}
    assert finished.exit == 0


def test_a_marked_test_names_its_manual_case(project):
    project.write(
        "tests/test_marked.py",
        "import pytest\n@pytest.mark.agentbench('two')\ndef test_it(agentbench_run): assert agentbench_run.output\n",
    )
    assert project.run("tests").outcomes == {"test_it[agent]": "passed"}
