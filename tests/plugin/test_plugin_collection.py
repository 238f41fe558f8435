from __future__ import annotations

import sys

import pytest
from support.bench import ECHO_TO_FILE, check
from support.special_files import make

PARIS = {"id": "fr", "question": "Capital of France?", "answer": "Paris", "tags": ["europe"]}


def collected(bench, *args):
    result = bench.run("--collect-only", "-q", *args)
    return [line for line in result.result.outlines if "::" in line]


def test_ids_name_file_case_model_and_repetition(bench):
    bench.case("capital")
    bench.rows("cases/facts.jsonl", PARIS)
    assert collected(bench, "--model", "demo", "--model", "gpt4o", "--agentbench-repetitions", "2") == [
        f"cases/{file}::{case}[{model}{repetition}]"
        for file, case in (("capital/test.yaml", "capital"), ("facts.jsonl", "cases/facts.fr"))
        for model in ("demo", "gpt4o")
        for repetition in ("", "-r2")
    ]


def test_a_dataset_whose_first_row_is_long_is_seen_without_any_other_case(bench):
    bench.rows("cases/long.jsonl", {"context": "word " * 20_000, "question": "Capital of France?", "answer": "Paris"})
    assert collected(bench) == ["cases/long.jsonl::cases/long.item_1[none]"]


def test_collecting_runs_nothing(bench):
    bench.agent(ECHO_TO_FILE)
    bench.case("capital")
    for option in ("--collect-only", "--setup-plan", "--setup-only"):
        finished = bench.run(option)
        assert finished.exit == 0
        assert finished.report is None
    assert bench.lines("runs.txt") == []
    assert not (bench.path / "outputs").exists()


def test_keywords_and_marks_select_by_tag(bench):
    bench.case("one", tags=["smoke", "maths"])
    bench.case("two", tags=["smoke", "über-tag", "skip"])
    bench.case("three")
    assert [line.split("::")[1] for line in collected(bench, "-m", "smoke and not maths")] == ["two[none]"]
    assert [line.split("::")[1] for line in collected(bench, "-k", "maths or three")] == ["one[none]", "three[none]"]
    assert [line.split("::")[1] for line in collected(bench, "-m", "über-tag")] == ["two[none]"]


def test_tags_hold_under_strict_markers_and_never_act(bench):
    bench.agent()
    bench.case("one", tags=["smoke", "skip", "xfail", "parametrize", "usefixtures", "timeout"])
    finished = bench.run("--strict-markers", "-W", "error")
    assert finished.outcomes == {"one[agent]": "passed"}


def test_an_id_on_the_command_line_selects_one(bench):
    bench.agent()
    bench.case("one")
    bench.rows("cases/facts.jsonl", PARIS, {**PARIS, "id": "it"})
    finished = bench.run("cases/facts.jsonl::cases/facts.it[agent]")
    assert finished.outcomes == {"cases/facts.it[agent]": "passed"}


@pytest.mark.slow
def test_last_failed_runs_only_what_failed(bench):
    bench.agent()
    bench.case("good")
    bench.case("bad", metadata={"says": "Rome"})
    bench.rows("cases/facts.jsonl", PARIS, {**PARIS, "id": "it", "answer": "Rome"})
    failed = {"bad[agent]": "failed", "cases/facts.it[agent]": "failed"}
    assert {name: "failed" for name, outcome in bench.run().outcomes.items() if outcome == "failed"} == failed
    assert bench.run("--lf").outcomes == failed
    assert list(bench.run("--ff").outcomes)[:2] == list(failed)


@pytest.mark.slow
def test_a_bad_file_is_one_error_and_the_rest_runs(bench):
    bench.agent()
    bench.case("good")
    bench.write("cases/bad/test.yaml", "schema_version: 1\ncase_id: bad\ntitel: x\n")
    for args in ((), ("-n", "2")):
        finished = bench.run(*args)
        assert finished.exit == 1
        assert finished.outcomes == {"good[agent]": "passed"}
        finished.result.assert_outcomes(passed=1, errors=1)
        assert "test.yaml:3:1: titel" in finished.text
        assert "Traceback" not in finished.text


@pytest.mark.slow
def test_an_oversized_or_deeply_nested_file_is_one_error(bench):
    bench.agent()
    bench.case("good")
    nested = "(" * 3_000 + "a" + ")" * 3_000
    bench.case("pattern", deterministic_checks=[check("c", kind="regex_match", pattern=nested)])
    schema = bench.case("schema", deterministic_checks=[check("c", kind="json_schema", schema="HERE")])
    schema.write_text(schema.read_text().replace("HERE", '{"not": ' * 3_000 + "{}" + "}" * 3_000))
    bench.rows(
        "cases/rows.jsonl", PARIS, '{"id": "deep", "question": "q", "answer": ' + "[" * 3_000 + "]" * 3_000 + "}"
    )
    for kind in ("pipe", "zero", "sparse"):
        make(kind, bench.path / "cases" / kind / "test.yaml")
    finished = bench.spawn()
    assert finished.outcomes == {"good[agent]": "passed", "cases/rows.fr[agent]": "passed"}
    finished.result.assert_outcomes(passed=2, errors=4)  # pipes and devices pytest does not look at
    validated = bench.pytester.run(sys.executable, "-m", "pytest_agentbench.cli", "validate", "cases", timeout=60)
    for text in (finished.text, validated.stdout.str() + validated.stderr.str()):
        for said in (
            "pattern: a pattern has more than 50 groups inside of one another",
            "found more than 100 levels of nesting",
            "nested too deeply",
            "found 2,147,483,648 bytes, expected at most 4,194,304",
        ):
            assert said in text
        assert "RecursionError" not in text


def test_a_bad_row_is_one_error_and_the_rest_runs(bench):
    bench.agent()
    bench.rows("cases/facts.jsonl", PARIS, '{"id": "broken", "question": ', {**PARIS, "id": "it"}, PARIS)
    finished = bench.run()
    assert finished.exit == 1
    assert finished.outcomes == {"cases/facts.fr[agent]": "passed", "cases/facts.it[agent]": "passed"}
    finished.result.assert_outcomes(passed=2, errors=2)  # the broken line, and the id that is there twice
    assert "facts.jsonl:2:" in finished.text
    assert "facts.jsonl:4:" in finished.text


def test_an_error_outside_case_files_still_stops_the_session(bench):
    bench.agent()
    bench.case("good")
    bench.write("test_broken.py", "import nothing_of_that_name\n")
    finished = bench.run()
    assert finished.exit == 2
    assert finished.runs == {}


def test_json_beside_a_case_is_its_own_affair(bench):
    bench.agent()
    bench.case("good")
    bench.rows("cases/good/fixture.jsonl", PARIS)
    bench.rows("cases/good/deeper/fixture.jsonl", PARIS)
    assert list(bench.run().outcomes) == ["good[agent]"]


def test_files_of_other_tools_are_ignored(bench):
    bench.write("other/test.yaml", "steps:\n  - run: make\n")
    bench.write("other/data.json", '{"question": "no dataset"}')
    bench.write("test_plain.py", "def test_plain(): pass\n")
    finished = bench.run()
    assert finished.exit == 0
    assert finished.report is None
    said = [line for line in finished.text.splitlines() if not line.startswith("plugins: ")]
    assert not any("agentbench" in line for line in said)


def test_a_foreign_file_that_is_named_is_an_error(bench):
    bench.write("other/test.yaml", "steps:\n  - run: make\n")
    finished = bench.run("other/test.yaml")
    assert finished.exit != 0
    assert "schema_version" in finished.text


@pytest.mark.parametrize(
    "workers", [pytest.param((), id="serial"), pytest.param(("-n", "2"), id="xdist", marks=pytest.mark.slow)]
)
def test_an_unknown_profile_is_one_clear_error(bench, workers):
    bench.profile("standard")
    bench.case("one")
    bench.case("two")
    bench.rows("cases/facts.jsonl", PARIS)
    finished = bench.run("--model", "demo", "--agentbench-run-profile", "standrad", *workers)
    assert finished.exit != 0
    assert finished.text.count("there is no run profile 'standrad'") in (1, 2)  # the second time in pytest's summary
    assert "did you mean 'standard'?" in finished.text


def test_a_session_of_cases_alone_without_a_model_is_a_wrong_call(bench):
    bench.case("one")
    bench.models({"model_id": "local", "base_url": "http://127.0.0.1:9/v1", "api_key_env": None})
    finished = bench.run()
    assert (finished.exit, finished.outcomes) == (4, {})
    assert "no model was named, so no case can run: name one of models.yaml (local)" in finished.text


def test_without_a_model_cases_next_to_other_tests_are_skipped_with_the_reason(bench):
    bench.case("one")
    bench.write("test_other.py", "def test_other(): pass\n")
    finished = bench.run("-rs", ".")
    assert finished.exit == 0
    assert finished.outcomes == {"one[none]": "skipped"}
    assert "--model" in finished.runs["one[none]"]["message"]


def test_strict_makes_such_a_skip_an_error(bench):
    bench.case("one")
    bench.write("test_other.py", "def test_other(): pass\n")
    finished = bench.run("--agentbench-strict", ".")
    assert finished.exit == 1
    assert finished.outcomes == {"one[none]": "error"}


@pytest.mark.parametrize(
    "workers", [pytest.param((), id="serial"), pytest.param(("-n", "2"), id="xdist", marks=pytest.mark.slow)]
)
def test_a_missing_key_is_said_once_before_anything_runs(bench, workers):
    bench.case("one")
    bench.write("test_other.py", "def test_other(): open('ran.txt', 'w')\n")
    finished = bench.run("--model", "gpt4o", *workers)
    assert finished.exit not in (0, 5)
    assert "OPENAI_API_KEY" in finished.text
    assert finished.text.count("OPENAI_API_KEY is not set") <= 2
    assert "Traceback" not in finished.text
    assert not (bench.path / "ran.txt").exists()


@pytest.mark.slow
def test_manual_cases_run_only_when_they_are_named(bench):
    bench.agent()
    bench.case("by_hand", tags=["manual", "slow_one"])
    bench.case("other")
    assert list(bench.run().outcomes) == ["other[agent]"]
    assert list(bench.run("-k", "by_hand").outcomes) == ["by_hand[agent]"]
    assert list(bench.run("-m", "manual").outcomes) == ["by_hand[agent]"]
    assert list(bench.run("cases/by_hand/test.yaml::by_hand[agent]").outcomes) == ["by_hand[agent]"]
    assert list(bench.run("-m", "not manual").outcomes) == ["other[agent]"]
    assert list(bench.run("-k", "not other").outcomes) == []


def test_a_file_named_twice_runs_twice_only_with_keep_duplicates(bench):
    bench.agent()
    bench.case("one")
    assert bench.run("cases", "cases").result.parseoutcomes()["passed"] == 1
    finished = bench.run("--keep-duplicates", "cases", "cases")
    assert finished.exit == 0
    assert finished.result.parseoutcomes()["passed"] == 2


@pytest.mark.slow
def test_ini_options_serve_where_the_command_line_is_silent(bench):
    bench.agent(ECHO_TO_FILE)
    bench.case("one")
    bench.write(
        "pytest.ini",
        "[pytest]\nagentbench_model = demo\nagentbench_repetitions = 2\nagentbench_output = results\n"
        "agentbench_fail_under = 0.5\n",
    )
    finished = bench.run()
    assert finished.exit == 0
    assert (bench.path / "results" / "report.json").is_file()
    assert bench.lines("runs.txt") == ["one", "one"]
    bench.run("--agentbench-repetitions", "1", "--agentbench-output", "elsewhere")
    assert len(bench.lines("runs.txt")) == 3
    assert (bench.path / "elsewhere" / "report.json").is_file()


def test_a_wrong_ini_value_is_a_usage_error(bench):
    bench.write("pytest.ini", "[pytest]\nagentbench_fail_under = often\n")
    finished = bench.run()
    assert finished.exit == 4
    assert "ini option agentbench_fail_under: found 'often', expected a number" in finished.text


@pytest.mark.parametrize("where", ["conftest", "plugin"])
def test_model_may_belong_to_somebody_else(bench, where):
    source = "def pytest_addoption(parser):\n    parser.addoption('--model', default='theirs')\n"
    source += "def pytest_report_header(config):\n    return 'their model: ' + config.getoption('--model')\n"
    bench.write("conftest.py" if where == "conftest" else "their_plugin.py", source)
    bench.case("one")
    bench.pytester.syspathinsert()
    extra = () if where == "conftest" else ("-p", "their_plugin")
    finished = bench.run("--model", "x", "--agentbench-model", "demo", *extra)
    assert "their model: x" in finished.text
    assert "one[demo]" in finished.runs


def test_a_model_named_twice_is_a_usage_error(bench):
    finished = bench.run("--model", "demo", "--agentbench-model", "demo")
    assert finished.exit == 4
    assert "twice" in finished.text


def test_two_cases_of_one_id_are_an_error(bench):
    bench.agent()
    bench.case("one")
    bench.case("one", folder="cases/deeper")
    finished = bench.run()
    assert finished.exit == 1
    assert finished.outcomes == {"one[agent]": "passed"}
    assert finished.text.count("Duplicate case_id 'one'") == 1
