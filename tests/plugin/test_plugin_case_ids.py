"""A dataset's case ids, and so what is stored of it, wherever a session is started and whatever else there is."""

from __future__ import annotations

import json

import pytest

from pytest_agentbench.cli import main

AGENT = """
from pathlib import Path
import pytest

HERE = Path(__file__).parent
PROMPT = HERE / "prompt.txt"

@pytest.fixture(scope="session")
def agentbench_runner():
    def answer(case):
        with open(HERE / "asked.txt", "a") as asked:
            asked.write(case.messages[0].content + "\\n")
        return "4"
    return answer
"""
SUM = {"id": "q1", "question": "2 + 2?", "answer": "4"}


@pytest.fixture
def bare(bench):
    """A folder without an ini-file: pytest's rootdir is what its arguments and the current folder have in common."""
    (bench.path / "pytest.ini").unlink()
    bench.agent(AGENT, folder="sums/data")
    bench.rows("sums/data/a.jsonl", SUM)
    (bench.path / "elsewhere").mkdir()
    return bench


@pytest.mark.slow
def test_ids_do_not_depend_on_where_pytest_is_started(bare, monkeypatch):
    output, rows = str(bare.path / "outputs"), bare.path / "sums" / "data" / "a.jsonl"
    # From the root itself no folder is common but that: there, rootdir changes once the output folder is there
    for at, folder in enumerate(["/", "/", "elsewhere", "", "sums", "sums/data"]):
        monkeypatch.chdir(bare.path / folder)
        finished = bare.run(str(rows), "--agentbench-output", output)
        assert finished.outcomes == {"a.q1[agent]": "passed"}
        assert [row["reused"] for row in finished.report["runs"]] == [at > 0]
    assert bare.lines("sums/data/asked.txt") == ["2 + 2?"]


@pytest.mark.slow
def test_a_file_is_named_below_its_project_however_it_is_asked_for(bare, monkeypatch):
    bare.write("sums/pyproject.toml", "")
    bare.rows("sums/more/a.jsonl", SUM)
    bare.agent(AGENT, folder="sums/more")
    for folder, asked in (("sums", "."), ("sums/data", "../more"), ("sums/more", ".")):
        monkeypatch.chdir(bare.path / folder)
        assert "more/a.q1[agent]" in bare.run(asked, "--agentbench-output", str(bare.path / "outputs")).outcomes


def test_two_files_that_nothing_tells_apart_are_an_error(bare):
    bare.rows("sums/more/a.jsonl", SUM)
    finished = bare.run("sums")
    assert "name: found 'a', which" in finished.text
    assert "name one of them in a dataset.yaml" in finished.text
    bare.write("marked/pytest.ini", "[pytest]\n")
    bare.agent(AGENT, folder="marked")
    bare.rows("marked/one/a.jsonl", SUM)
    bare.rows("marked/two/a.jsonl", SUM)
    output = str(bare.path / "outputs")
    assert set(bare.run("marked", "--agentbench-output", output).outcomes) == {"one/a.q1[agent]", "two/a.q1[agent]"}


@pytest.mark.slow
def test_another_file_of_the_name_changes_no_id(bench):
    bench.agent(AGENT)
    bench.rows("data/a.jsonl", SUM)
    assert bench.run().outcomes == {"data/a.q1[agent]": "passed"}
    bench.write("data/a.json", json.dumps([SUM]))
    assert bench.run("data/a.jsonl").report["totals"]["reused"] == 1
    assert bench.lines("asked.txt") == ["2 + 2?"]
    assert "name: found 'data/a', which" in bench.run().text


def test_another_file_that_a_pattern_matches_changes_no_id(bench):
    bench.agent(AGENT)
    bench.rows("data/a.jsonl", {"question": "2 + 2?", "answer": "4"})
    bench.write("data/dataset.yaml", {"schema_version": 1, "files": ["*.jsonl"]})
    assert bench.run().outcomes == {"data.a.item_1[agent]": "passed"}
    bench.rows("data/b.jsonl", {"question": "1 + 3?", "answer": "4"})
    assert bench.run().outcomes == {"data.a.item_1[agent]": "passed", "data.b.item_1[agent]": "passed"}
    assert bench.lines("asked.txt") == ["2 + 2?", "1 + 3?"]


@pytest.mark.slow
@pytest.mark.parametrize("above", ["models.yaml", "agents/x/agent.yaml"])
def test_a_folder_above_the_project_changes_no_id_and_its_stored_runs_are_reused(bare, above, monkeypatch, capsys):
    bare.write(above, "schema_version: 1\n")
    bare.write("p/pytest.ini", "[pytest]\n")
    bare.agent(AGENT, folder="p")
    bare.rows("p/data/a.jsonl", SUM)
    for folder, reused in (("p", False), ("p/data", True)):
        monkeypatch.chdir(bare.path / folder)
        finished = bare.run("--agentbench-output", str(bare.path / "outputs"))
        assert finished.outcomes == {"data/a.q1[agent]": "passed"}
        assert [row["reused"] for row in finished.report["runs"]] == [reused]
        capsys.readouterr()
        main(["list"])
        assert capsys.readouterr().out.startswith("data/a.q1\t")
    assert bare.lines("p/asked.txt") == ["2 + 2?"]
