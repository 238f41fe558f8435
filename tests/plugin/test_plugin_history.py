"""Sessions append their runs to the history of the output folder, and `agentbench history` shows them."""

from __future__ import annotations

import json

import pytest

from pytest_agentbench.cli import main


def read_lines(bench):
    return [json.loads(line) for line in bench.lines("outputs/history.ndjson")]


def test_a_session_appends_the_runs_that_it_made(bench, capsys):
    bench.agent()
    bench.questions(2)
    assert bench.run().exit == 0
    assert bench.run().runs["cases/many.q0[agent]"]["reused"]
    (line,) = read_lines(bench)
    assert [verdict["outcome"] for verdict in line["verdicts"]] == ["passed", "passed"]
    capsys.readouterr()
    assert main(["history", "outputs", "--passes", "1"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[1].endswith("1/1     0      -        blocking: 1 of 1 runs passed")
    assert out[-1] == "2 cases: 2 blocking, 0 quarantined"


def test_a_history_that_cannot_be_written_is_a_warning(bench):
    bench.agent()
    bench.questions(1)
    (bench.path / "outputs").mkdir()
    (bench.path / "outputs" / "history.ndjson").symlink_to(bench.path / "pytest.ini")
    finished = bench.run()
    assert finished.exit == 0
    assert any(
        "history.ndjson: the session is not in the history: " in w for w in finished.report["session"]["warnings"]
    )
    assert (bench.path / "pytest.ini").read_text() == "[pytest]\n"


@pytest.mark.slow
def test_the_controller_of_workers_appends_one_line(bench):
    bench.agent()
    bench.questions(4)
    assert bench.spawn("-n2").exit == 0
    (line,) = read_lines(bench)
    assert len(line["verdicts"]) == 4


def test_reports_are_a_history_too_and_other_files_are_refused(bench, capsys):
    bench.agent()
    bench.questions(1)
    bench.run("--agentbench-json=a.json")
    capsys.readouterr()
    assert main(["history", "a.json", "--json"]) == 0
    (trend,) = json.loads(capsys.readouterr().out)["trends"]
    assert (trend["case_id"], trend["judged"], trend["policy"]) == ("cases/many.q0", 1, None)
    assert main(["history", "cases"]) == 1
    assert "cases: found no history.ndjson" in capsys.readouterr().err
