"""`agentbench show`: a run of a finished session as people read it."""

from __future__ import annotations

import json

import pytest
from support.bench import case_yaml

from pytest_agentbench.cli import main

TOOLED = {
    "input": {
        "messages": [{"role": "user", "content": "Note it."}],
        "context": {"llm_probe": {"tools": ["write_file"]}},
    }
}
SCRIPT = {
    "schema_version": 1,
    "replies": [
        {
            "steps": [
                {"tool_calls": [{"name": "write_file", "arguments": {"path": "../a.txt", "content": "x"}}]},
                {"content": "Rome, \x1b[31m I think."},
            ]
        }
    ],
}


@pytest.fixture
def session(bench, monkeypatch):
    monkeypatch.chdir(bench.path)
    bench.write("cases/wrong/test.yaml", case_yaml("wrong", **TOOLED))
    bench.write("cases/wrong/demo.yaml", SCRIPT)
    bench.write("cases/right/test.yaml", case_yaml("right"))
    bench.write("cases/right/demo.yaml", {"schema_version": 1, "replies": [{"steps": [{"content": "Paris"}]}]})
    done = bench.run("--model", "demo", "--agentbench-repetitions", "2", "--agentbench-json", "report.json")
    assert "a run with its conversation: agentbench show NODEID --report " in done.text
    return bench


def show(capsys, *arguments):
    capsys.readouterr()
    code = main(["show", "--report", "report.json", *arguments])
    output = capsys.readouterr()
    return code, output.out, output.err


def test_a_run_is_shown_with_its_faults_conversation_and_answer(session, capsys):
    code, text, _ = show(capsys, "wrong[demo-r2]")
    assert code == 0
    order = [
        "wrong on demo: failed",
        "\nWhy\n  check paris: the final output does not match\n    expected: Paris\n    got:      Rome",
        "\nQuestion\n  Note it.\n",
        "\nExpected\n  matches Paris\n",
        "\nConversation\n  calls write_file\n",
        "an error came back:",
        "\nAnswer\n  Rome, \\x1b[31m I think.\n",
        "\nStored\n",
    ]
    places = [text.find(part) for part in order]
    assert -1 not in places
    assert places == sorted(places)
    assert "\x1b" not in text


def test_without_a_name_the_runs_that_did_not_pass_are_listed(session, capsys):
    code, text, _ = show(capsys)
    assert code == 0
    assert text.splitlines()[0] == "2 runs did not pass"
    assert "cases/wrong/test.yaml::wrong[demo-r2]" in text
    assert "right[demo]" not in text


@pytest.mark.parametrize(("name", "problem"), [("wrong", "found 2 runs 'wrong', expected one"), ("no", "found no run")])
def test_a_name_of_no_run_or_of_several_is_refused(session, capsys, name, problem):
    code, _, error = show(capsys, name)
    assert code == 1
    assert problem in error


def test_a_run_whose_files_are_gone_is_shown_as_the_report_has_it(session, capsys):
    report = json.loads((session.path / "report.json").read_text())
    for row in report["runs"]:
        row["artifact"], row["evaluation"] = "runs/gone/run_1.json", "../../outside.json"
    (session.path / "report.json").write_text(json.dumps(report))
    code, text, _ = show(capsys, "right[demo]")
    assert code == 0
    assert "\nAnswer\n  Paris\n" in text
    assert "runs/gone/run_1.json" in text
