"""How runs used their tools, in sessions of pytest: rates of real traces, what fails by them, what is measured anew."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.bench import Bench
from support.mcp_projects import McpBench

from pytest_agentbench.cli import main
from pytest_agentbench.metrics.registry import TOOL_USE_METRICS
from pytest_agentbench.packs.mcp_bench.records import TOOL_USE_DIMENSIONS

ADD = ("Test__add", {"a": 1, "b": 2})
AGENT = """
import pytest
from pytest_agentbench import ReportedCall, RunOutput

@pytest.fixture(scope="session")
def agentbench_runner():
    def agent(case):
        with open("runs.txt", "a") as file:
            file.write(case.case_id + "\\n")
        return RunOutput(output="Paris", tool_calls=CALLS)
    return agent

def called(tool, result=None, **arguments):
    return ReportedCall(name=tool, arguments=arguments, result=result)

"""


@pytest.fixture
def mcp(bench: Bench) -> McpBench:
    return McpBench(bench)


def agent(bench: Bench, *calls: str) -> None:
    bench.agent(f"{AGENT}\nCALLS = ({', '.join(calls)},)\n")


def trace(bench: Bench, row: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((bench.path / "outputs" / row["artifact"]).read_text())["trace"]
    return [event for event in found if event["type"] == "tool_call"]


def with_tools(*names: str) -> dict[str, Any]:
    """A case's input that offers built-in tools."""
    messages = [{"role": "user", "content": "What is in the file?"}]
    return {"messages": messages, "context": {"llm_probe": {"tools": list(names)}}}


def test_a_case_with_servers_is_measured_by_every_rate(mcp: McpBench) -> None:
    mcp.servers(Test=mcp.server("one"))
    calls = [ADD, ("Test__add", {"a": "1"}), ("Test__fail", {}), ("Test__soft_error", {}), ("Test__none", {})]
    mcp.case("sums", *calls, servers=["Test"])

    finished = mcp.run()

    assert finished.runs["sums[demo]"]["metrics"] == {
        "valid_tool_name_rate": 4 / 5,
        "input_schema_compliance": 3 / 4,
        "execution_success_rate": 2 / 5,
        "soft_error_rate": 1 / 5,
        "valid_call_failure_rate": 1 / 3,
        "dependency_compliance": None,
        "planning_json_compliance": None,
    }
    assert finished.outcomes == {"sums[demo]": "passed"}
    assert finished.runs["sums[demo]"]["tool_use"] is None


@pytest.mark.slow
def test_an_invalid_schema_is_reported_once_and_scores_nothing(mcp: McpBench) -> None:
    mcp.servers(Test=mcp.server("one", "--broken-schemas"))
    for case_id in ("first", "second"):
        mcp.case(case_id, ("Test__remote", {"text": "x"}), ("Test__recursive", {}), servers=["Test"])

    finished = mcp.run()

    assert [row["metrics"]["input_schema_compliance"] for row in finished.runs.values()] == [None, None]
    assert [row["metrics"]["valid_tool_name_rate"] for row in finished.runs.values()] == [1, 1]
    assert finished.report is not None
    assert sorted(text.partition(": ")[0] for text in finished.report["session"]["warnings"] if "schema" in text) == [
        "Test:recursive",
        "Test:remote",
    ]


def test_built_in_tools_are_measured_where_a_case_asks(mcp: McpBench) -> None:
    metrics = [{"name": "input_schema_compliance", "threshold": 1}, {"name": "valid_tool_name_rate"}]
    calls = [("read_file", {"path": "a.txt"}), ("read_file", {"file": "a.txt"})]
    mcp.case("files", *calls, input=with_tools("read_file"), metrics=metrics)

    finished = mcp.run()

    assert finished.runs["files[demo]"]["metrics"] == {"input_schema_compliance": 0.5, "valid_tool_name_rate": 1}
    assert finished.outcomes == {"files[demo]": "failed"}
    finished.result.stdout.fnmatch_lines(["*metric input_schema_compliance: expected at least 1.000, got 0.500*"])


def test_calls_that_an_own_agent_reports_are_measured_too(bench: Bench) -> None:
    agent(bench, "called('read_file', 'text', path='a')", "called('read_file', 'x', wrong=1)", "called('made_up')")
    bench.case("reported", input=with_tools("read_file"), metrics=[{"name": name} for name in TOOL_USE_METRICS])

    row = bench.run("cases").runs["reported[agent]"]

    assert [(call["offered"], call["schema_valid"]) for call in trace(bench, row)] == [
        (True, True),
        (True, False),
        (False, None),
    ]
    rates = row["metrics"]
    assert (rates["valid_tool_name_rate"], rates["input_schema_compliance"]) == (2 / 3, 1 / 2)
    assert rates["execution_success_rate"] == 1


def test_a_call_that_an_own_agent_reports_with_an_error_has_failed(bench: Bench) -> None:
    failed = "ReportedCall(name='read_file', arguments={'path': 'b'}, error='it timed out')"
    agent(bench, "called('read_file', 'text', path='a')", failed)
    bench.case("reported", input=with_tools("read_file"), metrics=[{"name": name} for name in TOOL_USE_METRICS])

    row = bench.run("cases").runs["reported[agent]"]

    assert row["metrics"]["execution_success_rate"] == 1 / 2
    assert row["metrics"]["valid_call_failure_rate"] == 1 / 2


def test_of_an_agent_with_tools_of_its_own_nobody_knows_the_names(bench: Bench) -> None:
    agent(bench, "called('mine', 'text')")
    names = ["valid_tool_name_rate", "execution_success_rate"]
    bench.case("own", metrics=[{"name": name, "threshold": 0.5} for name in names])

    finished = bench.run("cases")

    assert finished.runs["own[agent]"]["metrics"] == {"valid_tool_name_rate": None, "execution_success_rate": 1}
    finished.result.stdout.fnmatch_lines(
        ["*metric valid_tool_name_rate: expected at least 0.5, got nothing to measure*"]
    )


@pytest.mark.slow
def test_a_metric_of_ones_own_sees_case_and_run(bench: Bench) -> None:
    agent(bench, "called('mine', 'text')", "called('mine', 'more')")
    own = """
from pytest_agentbench.metrics.registry import metric

@metric("called_at_most", trace=True)
def called_at_most(case, artifact, most: int):
    return float(len(artifact.tool_calls) <= most)
"""
    with (bench.path / "conftest.py").open("a") as file:
        file.write(own)
    bench.case("few", metrics=[{"name": "called_at_most", "threshold": 1, "args": {"most": 2}}])
    bench.case("many", metrics=[{"name": "called_at_most", "threshold": 1, "args": {"most": 1}}])
    assert bench.spawn("cases").outcomes == {"few[agent]": "passed", "many[agent]": "failed"}


# -- MCP tasks

SERVER = Path(__file__).parents[2] / "cases" / "mcp" / "server.py"
SHOWN = ["Timetable:find_station", "Timetable:departures"]
REPORTED = [
    "called('Timetable__departures', 'fine', station='BSL', to='ZRH')",
    "called('Timetable:find_station', '{}', name='Basel')",
    "called('Timetable:departures', 'fine', station='BSL', to='ZRH')",
]


def write_task(bench: Bench, **fields: Any) -> None:
    task = {
        "task_id": "train",
        "task_description": "Find it.",
        "fuzzy_description": "Which?",
        "distraction_servers": [],
    }
    group = {"servers": ["Timetable"], "tasks": [{**task, **fields}]}
    bench.write("cases/tasks.json", json.dumps({"server_tasks": [group]}))


@pytest.fixture
def task(bench: Bench) -> Bench:
    """A task, and an agent that reports calls and notes its runs."""
    agent(bench, *REPORTED)
    server = {"command": "python3", "args": [str(SERVER), "timetable"], "sandbox": "local"}
    bench.write("cases/servers.yaml", {"schema_version": 1, "servers": {"Timetable": server}})
    write_task(bench, dependencies={"departures": ["find_station"]})
    return bench


def test_a_metric_with_a_threshold_decides_tasks_without_a_judge(task: Bench) -> None:
    finished = task.run("--agentbench-metric", "dependency_compliance>=0.75", "cases")
    row = finished.runs["train[agent]"]
    assert row["metrics"]["dependency_compliance"] == 2 / 3
    assert (row["outcome"], row["final_score"]) == ("failed", None)
    assert (row["tool_use"]["rules"], row["tool_use"]["overall"], row["tool_use"]["rounds"]) == (1, None, None)
    assert [call["name"] for call in trace(task, row)] == [SHOWN[1], SHOWN[0], SHOWN[1]]


@pytest.mark.slow
def test_another_graph_measures_anew_without_another_run(task: Bench) -> None:
    arguments = ("--agentbench-metric", "dependency_compliance>=0.75", "cases")
    task.run(*arguments)
    same = task.run(*arguments).runs["train[agent]"]
    assert (same["reused"], same["evaluation_reused"]) == (True, True)

    write_task(task, dependencies={"find_station": ["departures"]})
    anew = task.run(*arguments).runs["train[agent]"]
    assert (anew["reused"], anew["evaluation_reused"]) == (True, False)
    assert (anew["metrics"]["dependency_compliance"], anew["outcome"]) == (1, "passed")
    assert task.lines("runs.txt") == ["train"]


def test_nothing_decides_a_task_without_either(task: Bench) -> None:
    finished = task.run("cases")
    assert finished.outcomes == {"train[agent]": "error"}
    assert "nothing decides this MCP task" in finished.text
    assert task.lines("runs.txt") == []


@pytest.mark.slow
def test_the_overall_score_fails_a_task_and_says_its_parts(mcp: McpBench, capsys: pytest.CaptureFixture[str]) -> None:
    """Rules 1 and axes of 0.2: 4 of 10."""
    mcp.servers(Test=mcp.server("one"))
    task = {"task_id": "sum", "task_description": "Add.", "fuzzy_description": "How much?", "distraction_servers": []}
    mcp.bench.write("cases/sums.json", json.dumps({"server_tasks": [{"servers": ["Test"], "tasks": [task]}]}))
    steps = [{"tool_calls": [{"name": ADD[0], "arguments": ADD[1]}]}, {"content": "3"}]
    scores = dict.fromkeys(TOOL_USE_DIMENSIONS, 2)
    script = {"schema_version": 1, "answers": {"sum": {"steps": steps}}, "judge": {"dimensions": scores}}
    mcp.bench.write("cases/sums.demo.yaml", script)
    profile = {
        "schema_version": 1,
        "evaluation_profile_id": "judged",
        "title": "Judged",
        "judges": [{"judge_id": "main", "type": "llm_probe", "model": "demo"}],
        "judge_runs": [{"judge_run_id": "main", "judge_id": "main"}],
    }
    mcp.bench.write("cases/evaluation_profiles/judged.yaml", profile)

    finished = mcp.run("--agentbench-evaluation-profile=judged", runner_defaults={"type": "llm_probe"})

    row = finished.runs["sum[demo]"]
    assert (row["outcome"], row["final_score"]) == ("failed", pytest.approx(4))
    assert (row["tool_use"]["rounds"], row["tool_use"]["cv_percent"]) == (1, 0)
    said = "overall: scored 4.0, at least 5.0 of 10 is wanted (rules 1.00, task completion 0.20, tool selection 0.20, "
    assert f"{said}planning 0.20)" in finished.text
    assert "demo: overall 0.400; valid tool names 100.0%" in finished.text

    report = mcp.bench.write("report.json", json.dumps(finished.report))
    assert main(["mcp", "report", str(report), "--markdown"]) == 0
    assert "| demo | 1 | 1 | 100.0 | 100.0 | 100.0 | 0.200 |" in capsys.readouterr().out
