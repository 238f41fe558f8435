"""Sessions on datasets with a descriptor."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

SUMS = [{"n": n, "problem": f"{n} + {n}?", "sum": 2 * n, "level": "easy" if n < 2 else "hard"} for n in range(4)]
DESCRIPTOR = """\
schema_version: 1
name: sums
files: [sums.jsonl]
fields: {id: n, question: problem, answer: sum}
tags_from: [level]
"""
ADDING = """
import pytest

@pytest.fixture(scope="session")
def agentbench_runner():
    def add(case):
        n = int(case.messages[-1].content.split()[0])
        return str(2 * n if n != 3 else 7)
    return add
"""
ALL = [f"data/dataset.yaml::sums.{n}[agent]" for n in range(4)]


def collected(bench, *args):
    result = bench.run("--collect-only", "-q", *args)
    return [line for line in result.result.outlines if "::" in line]


@pytest.fixture
def sums(bench):
    bench.agent(ADDING)
    bench.rows("data/sums.jsonl", *SUMS)
    bench.write("data/dataset.yaml", DESCRIPTOR)
    return bench


def test_a_folder_collects_the_descriptor_and_its_files_only_through_it(sums):
    sums.rows("data/other.jsonl", {"id": 1, "question": "1 + 1?", "answer": "2"})
    assert collected(sums) == [*ALL, "data/other.jsonl::data/other.1[agent]"]
    assert collected(sums, "data") == [*ALL, "data/other.jsonl::data/other.1[agent]"]
    assert collected(sums, "data/dataset.yaml") == ALL


def test_a_named_data_file_is_read_with_its_descriptor(sums):
    sums.rows("data/more.jsonl", {"n": 9, "problem": "9 + 9?", "sum": 18, "level": "hard"})
    sums.write("data/dataset.yaml", DESCRIPTOR.replace("[sums.jsonl]", "['*.jsonl']"))
    assert collected(sums, "data/more.jsonl") == ["data/more.jsonl::sums.9[agent]"]
    assert collected(sums, "data/more.jsonl", "data/sums.jsonl")[1] == "data/sums.jsonl::sums.0[agent]"


@pytest.mark.slow
def test_it_runs_selects_and_reruns_what_failed(sums):
    finished = sums.run()
    assert finished.outcomes == {f"sums.{n}[agent]": "failed" if n == 3 else "passed" for n in range(4)}
    assert finished.runs["sums.3[agent]"]["tags"] == ["hard"]
    assert list(sums.run("--lf").outcomes) == ["sums.3[agent]"]
    assert list(sums.run("-k", "hard").outcomes) == ["sums.2[agent]", "sums.3[agent]"]
    assert list(sums.run("-m", "easy").outcomes) == ["sums.0[agent]", "sums.1[agent]"]
    assert list(sums.run("data/dataset.yaml::sums.1[agent]").outcomes) == ["sums.1[agent]"]
    assert sums.run("--agentbench-metric", "similarity>=0", "data").exit == 0


@pytest.mark.slow
def test_one_of_several_right_answers_is_enough(bench):
    bench.agent("""
import pytest

@pytest.fixture(scope="session")
def agentbench_runner():
    return lambda case: case.messages[-1].content
""")
    bench.rows("data/names.jsonl", *({"id": each, "question": each, "answer": ["a", "b"]} for each in "abc"))
    finished = bench.run("-rA")
    outcomes = {"data/names.a[agent]": "passed", "data/names.b[agent]": "passed", "data/names.c[agent]": "failed"}
    assert finished.outcomes == outcomes
    finished.result.stdout.fnmatch_lines(['*expected: any of "a", "b"*'])
    assert bench.run().outcomes == outcomes  # from the store


@pytest.mark.slow
def test_xdist_workers_collect_the_same_also_when_it_is_shuffled(sums):
    sums.write("data/dataset.yaml", DESCRIPTOR + "shuffle_seed: 3\nfew_shot: {file: sums.jsonl, count: 2}\nlimit: 3\n")
    sums.rows("data/sums.jsonl", *SUMS, '{"broken')
    alone, spread = sums.run(), sums.run("-n", "2")
    assert alone.outcomes == spread.outcomes
    assert len(alone.outcomes) == 3
    for finished in (alone, spread):
        assert "sums.jsonl:5:" in finished.text
        assert finished.exit == 1


def test_bad_rows_of_several_files_are_errors_of_their_own(sums):
    for name in ("a", "b"):
        sums.rows(f"data/{name}.jsonl", "{bad", {"n": name, "problem": "1 + 1?", "sum": 2})
    sums.write("data/dataset.yaml", DESCRIPTOR.replace("[sums.jsonl]", "[a.jsonl, b.jsonl]").replace("[level]", "[]"))
    finished = sums.run("data/dataset.yaml")
    assert finished.outcomes == {"sums.a[agent]": "passed", "sums.b[agent]": "passed"}
    finished.result.assert_outcomes(passed=2, errors=2)
    for name in ("a", "b"):
        assert f"ERROR data/dataset.yaml::{name}.jsonl line 1" in finished.text
        assert f"{name}.jsonl:1:2: not valid JSON" in finished.text


def test_a_bad_descriptor_is_one_error_with_its_places(sums):
    sums.write("data/dataset.yaml", DESCRIPTOR + "promt: x\nlimit: none\n")
    finished = sums.run()
    assert finished.exit == 1
    assert finished.runs == {}
    assert "dataset.yaml:6:1: promt: unknown field; did you mean 'prompt'?" in finished.text
    assert "dataset.yaml:7:8: limit: found 'none'" in finished.text


def test_a_metric_that_nobody_knows_is_said_once(sums):
    sums.rows("data/other.jsonl", {"id": 1, "question": "1 + 1?", "answer": "2"})
    finished = sums.run("--agentbench-metric", "similarty>=0.5")
    assert finished.exit != 0
    assert finished.runs == {}
    assert finished.text.count("--agentbench-metric: unknown metric 'similarty'; did you mean 'similarity'?") == 1


def test_a_file_that_cannot_be_read_does_not_vanish(sums):
    path = sums.rows("a_first/rows.jsonl", *SUMS)
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("this user reads everything")
    finished = sums.run()
    assert "rows.jsonl: cannot be read: Permission denied" in finished.text
    assert len(finished.outcomes) == len(SUMS)


def test_two_datasets_of_one_name_are_an_error(sums):
    sums.write("data/again.dataset.yaml", DESCRIPTOR)
    finished = sums.run("data")
    assert len(finished.outcomes) == 4
    assert "name: found 'sums', which" in finished.text
    sums.write("data/again.dataset.yaml", DESCRIPTOR.replace("name: sums", "name: again") + "limit: 1\n")
    assert collected(sums, "data") == ["data/again.dataset.yaml::again.0[agent]", *ALL]


def test_prompt_examples_tools_and_runner_settings_reach_the_agent(sums):
    sums.write(
        "data/dataset.yaml",
        DESCRIPTOR
        + """\
prompt: "Level {{ level }}: {{ problem }}"
few_shot: {examples: [{question: 0 + 0?, answer: 0, level: none}]}
context: {llm_probe: {tools: [write_file]}}
runner: {type: llm_probe, temperature: 0.5}
limit: 1
""",
    )
    sums.agent("""
import pytest

@pytest.fixture(scope="session")
def agentbench_runner():
    def look(case):
        said = [(message.role, message.content) for message in case.messages]
        assert said == [("user", "Level none: 0 + 0?"), ("assistant", "0"), ("user", "Level easy: 0 + 0?")], said
        assert case.tools == ("write_file",)
        assert case.runner.overrides == {"temperature": 0.5}
        assert case.path.name == "sums.jsonl" and case.line == 1
        return "0"
    return look
""")
    # the example has the row's own question, but is another row
    sums.rows("data/sums.jsonl", {**SUMS[0], "problem": "0 + 0?"})
    finished = sums.run("data")
    assert "AssertionError" in finished.text  # so it is not shown
    sums.write(
        "data/dataset.yaml",
        (sums.path / "data/dataset.yaml").read_text().replace("question: 0 + 0?", "question: 5 + 5?"),
    )
    text = (sums.path / "conftest.py").read_text().replace("Level none: 0 + 0?", "Level none: 5 + 5?")
    sums.agent(text)
    assert sums.run("data").outcomes == {"sums.0[agent]": "passed"}


@pytest.mark.slow
def test_a_class_beside_the_descriptor_reads_the_rows(sums):
    sums.write(
        "data/sum_items.py",
        """
from pytest_agentbench import BenchmarkItem

class Sums:
    def _parse_item(self, data, line_num):
        return BenchmarkItem(id=f"s{data['n']}", question=data["problem"], answer=str(data["sum"]), metadata=None)
""",
    )
    sums.write("data/dataset.yaml", "schema_version: 1\nname: sums\nfiles: [sums.jsonl]\nbenchmark: sum_items:Sums\n")
    assert sums.run().outcomes == {f"sums.s{n}[agent]": "failed" if n == 3 else "passed" for n in range(4)}
    sums.write(
        "test_own.py",
        """
import pytest

@pytest.mark.agentbench("sums.s2")
def test_it(agentbench_run):
    assert agentbench_run.output == "4"
""",
    )
    sums.run("test_own.py").result.assert_outcomes(passed=1)


def test_scripts_lie_beside_the_data_files(sums):
    sums.write("conftest.py", "")
    sums.rows("data/more.jsonl", {"n": 9, "problem": "9 + 9?", "sum": 18, "level": "hard"})
    sums.write("data/dataset.yaml", DESCRIPTOR.replace("[sums.jsonl]", "['*.jsonl']"))
    sums.write("data/sums.demo.yaml", {"schema_version": 1, "answers": {str(n): str(2 * n) for n in range(4)}})
    sums.write("data/more.demo.yaml", {"schema_version": 1, "answers": {"9": "18"}})
    assert set(sums.run("--model", "demo").outcomes.values()) == {"passed"}
    assert sums.run("--model", "demo", "data/more.jsonl").outcomes == {"sums.9[demo]": "passed"}


def test_descriptors_in_a_cases_folder_and_of_other_tools_are_left_alone(sums):
    (sums.path / "data/dataset.yaml").unlink()
    (sums.path / "data/sums.jsonl").unlink()
    sums.case("capital")
    sums.rows("cases/capital/sums.jsonl", *SUMS)
    sums.write("cases/capital/dataset.yaml", DESCRIPTOR)
    sums.write("yolo/dataset.yaml", "train: images\nnames: [cat]\n")
    assert collected(sums) == ["cases/capital/test.yaml::capital[agent]"]


@pytest.mark.slow
def test_a_session_whose_only_yaml_is_another_tools_loads_nothing(bench):
    bench.write("dataset.yaml", "train: images\n")
    bench.write(
        "test_plain.py",
        "import sys\n\ndef test_plain():\n    assert 'pytest_agentbench.collection' not in sys.modules\n",
    )
    finished = bench.spawn()
    assert finished.exit == 0


@pytest.mark.slow
def test_the_commands_list_rows_and_run_no_code(sums):
    listed = sums.pytester.run("agentbench", "list", "data", "--json")
    assert [case["case_id"] for case in json.loads(listed.stdout.str())] == [f"sums.{n}" for n in range(4)]
    sums.write("data/sum_items.py", "raise SystemExit('it was run')\n")
    sums.write("data/dataset.yaml", "schema_version: 1\nfiles: [sums.jsonl]\nbenchmark: sum_items:Sums\n")
    listed = sums.pytester.run("agentbench", "list", "data")
    assert listed.ret == 0
    assert listed.stdout.str() == ""
    assert "dataset.yaml:3:12: benchmark: sum_items:Sums makes the items: it is code" in listed.stderr.str()


DATA = Path(__file__).parents[3] / "shared" / "data" / "datasets"


@pytest.mark.skipif(not DATA.is_dir(), reason="the conformance data are not here")
def test_rows_without_an_answer_have_nothing_to_score_against(bench):
    bench.agent()
    (bench.path / "webagent_demo.jsonl").symlink_to(DATA / "webagent_demo.jsonl")
    finished = bench.run()
    assert set(finished.outcomes.values()) == {"error"}
    assert "webagent_demo.jsonl:1:1: there is nothing to score against: the row has neither an answer" in finished.text


@pytest.mark.skipif(not DATA.is_dir(), reason="the conformance data are not here")
def test_the_edge_cases_run_and_its_bad_rows_are_errors(bench):
    bench.agent("""
import pytest

@pytest.fixture(scope="session")
def agentbench_runner():
    return lambda case: case.reference
""")
    (bench.path / "edge.jsonl").symlink_to(DATA / "loader_edge.jsonl")
    finished = bench.run()
    outcomes = {name.partition(".")[2]: outcome for name, outcome in finished.outcomes.items()}
    assert outcomes == {"1[agent]": "passed", "item_4[agent]": "passed", "item_6[agent]": "error", "d[agent]": "passed"}
    finished.result.assert_outcomes(passed=3, errors=3)


def test_the_field_expected_is_the_answer_of_rows_without_one(bench):
    bench.agent()
    bench.rows(
        "cases/q.jsonl",
        {"id": "own", "question": "The capital of Italy?", "answer": "Paris", "expected": "Rome"},
        {"id": "right", "question": "The capital of France?", "expected": "Paris"},
        {"id": "several", "question": "The capital of France, again?", "expected": ["Paris", "Paris, France"]},
        {"id": "wrong", "question": "The capital of Spain?", "expected": "Madrid"},
    )
    finished = bench.run()
    outcomes = {name.partition("[")[0].removeprefix("cases/q."): outcome for name, outcome in finished.outcomes.items()}
    assert outcomes == {"own": "passed", "right": "passed", "several": "passed", "wrong": "failed"}
    assert finished.text.count("q.jsonl:2:1: expected: taken as the answer, here and in the rows below") == 1


def test_the_field_expected_is_no_answer_if_the_descriptor_maps_fields(bench):
    bench.agent()
    bench.rows("cases/d/rows.jsonl", {"id": "a", "question": "x", "gold": "Paris", "expected": "Rome"})
    bench.write("cases/d/dataset.yaml", {"schema_version": 1, "files": ["rows.jsonl"], "fields": {"answer": "gold"}})
    finished = bench.run()
    assert list(finished.outcomes.values()) == ["passed"]
    assert "taken as the answer" not in finished.text


def test_rows_of_a_dataset_may_only_be_reported(bench):
    bench.agent()
    bench.rows("cases/qa/rows.jsonl", {"id": "q", "question": "A?", "answer": "nothing of this"})
    descriptor = {"schema_version": 1, "files": ["rows.jsonl"], "metrics": [{"name": "similarity"}]}
    bench.write("cases/qa/dataset.yaml", descriptor)
    assert "nothing decides this case" in bench.run().text
    bench.write("cases/qa/dataset.yaml", {**descriptor, "report_only": True})
    finished = bench.run()
    [row] = finished.runs.values()
    assert (finished.exit, row["outcome"]) == (0, "passed")
    assert 0 < row["metrics"]["similarity"] < 1
