"""Sessions with judges of MCP tasks: their requests, stored verdicts, and reasons to ask again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.bench import ECHO_TO_FILE, HEAD, Bench, Finished
from support.fault_endpoint import FaultEndpoint

from pytest_agentbench.packs.mcp_bench.records import TOOL_USE_DIMENSIONS

SERVER = Path(__file__).parents[3] / "cases" / "mcp" / "server.py"
TASK = {
    "task_id": "train_000",
    "task_description": "Call departures from BSL to ZRH.",
    "fuzzy_description": "Which train goes to Zurich?",
    "distraction_servers": [],
}
NAME = "train_000"
FIRST = {"judge_run_id": "main", "judge_id": "main"}


def reply(score: object) -> dict[str, Any]:
    reasons = [f"{name.replace('_and_', '_')}_reasoning" for name in TOOL_USE_DIMENSIONS]
    content = {**dict.fromkeys(reasons, "So."), **dict.fromkeys(TOOL_USE_DIMENSIONS, score)}
    return {"role": "assistant", "content": json.dumps(content)}


@pytest.fixture
def endpoint() -> Iterator[FaultEndpoint]:
    with FaultEndpoint(answer=lambda body: reply(8)) as served:
        yield served


@pytest.fixture
def project(bench: Bench, endpoint: FaultEndpoint) -> Bench:
    """Return one task, an agent that records its runs, and a judge on loopback."""
    bench.agent(ECHO_TO_FILE)
    bench.write("cases/tasks.json", json.dumps({"server_tasks": [{"servers": ["Timetable"], "tasks": [TASK]}]}))
    server = {"command": "python3", "args": [str(SERVER), "timetable"], "sandbox": "local"}
    bench.write("cases/servers.yaml", {"schema_version": 1, "servers": {"Timetable": server}})
    bench.models({"model_id": "judge", "base_url": endpoint.base_url, "api_key_env": "none"})
    return bench


def session(bench: Bench, *argv: str, runs: tuple[dict[str, Any], ...] = (FIRST,), **profile: Any) -> Finished:
    judges = [{"judge_id": "main", "type": "llm_probe", "model": "judge"}]
    fields = {"evaluation_profile_id": "judged", "title": "Judged", "judges": judges, "judge_runs": list(runs)}
    bench.write("cases/evaluation_profiles/judged.yaml", {"schema_version": 1, **fields, **profile})
    return bench.run("--agentbench-evaluation-profile=judged", *argv, "cases")


def only(finished: Finished) -> dict[str, Any]:
    assert finished.runs, finished.text
    [row] = finished.runs.values()
    return row


@pytest.mark.slow
def test_five_iterations_with_five_prompts_are_kept(project: Bench, endpoint: FaultEndpoint) -> None:
    row = only(session(project))
    assert (row["outcome"], row["judge"]["grounding"]) == ("passed", 8)
    asked = [request.body for request in endpoint.requests]
    assert [body["response_format"]["json_schema"]["name"] for body in asked] == ["tool_use_verdict"] * 5
    [file] = (project.path / "outputs" / "evaluations").rglob("judge_1.prompt.user.json")
    prompts = json.loads(file.read_text())
    assert [prompt["iteration"] for prompt in prompts] == [1, 2, 3, 4, 5]
    shown = prompts[0]["messages"][1]["content"]
    for told in (
        "Which train goes to Zurich?",
        "Call departures from BSL",
        "Paris",
        "Timetable:departures: ",
    ):
        assert told in shown


@pytest.mark.slow
@pytest.mark.parametrize(("shuffle", "order"), [("axes", "shuffled"), ("none", None)])
def test_votes_say_whether_each_saw_an_order_of_its_own(project: Bench, shuffle: str, order: str | None) -> None:
    finished = session(project, mcp_tasks={"shuffle": shuffle})
    [votes] = only(finished)["judge_votes"]
    assert (votes["scores"], votes.get("order")) == ([8.0] * 5, order)
    assert finished.report is not None
    swap = finished.report["judges"][0]["order_swap"]
    assert swap is None if order is None else (swap["pairs"], swap["changed"]) == (10, 0)


@pytest.mark.slow
def test_a_second_session_asks_nothing(project: Bench, endpoint: FaultEndpoint) -> None:
    session(project)
    assert only(session(project))["reused"]
    assert len(endpoint.requests) == 5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "more"),
    [
        ({"mcp_tasks": {"shuffle": "bands"}}, 5),
        ({"mcp_tasks": {"language": "zh"}}, 5),
        ({"runs": ({**FIRST, "repetitions": 1},)}, 1),
        ({"aggregation": {"method": "median"}}, 5),
        ({"runs": ({**FIRST, "repetitions": 3, "sample_size": 2},)}, 3),
    ],
    ids=["shuffle", "language", "one said", "method said", "a sample"],
)
def test_a_change_of_the_judge_settings_repeats_the_verdict_but_not_the_run(
    project: Bench, endpoint: FaultEndpoint, change: dict[str, Any], more: int
) -> None:
    session(project)
    row = only(session(project, **change))
    assert (row["outcome"], len(endpoint.requests)) == ("passed", 5 + more)
    assert project.lines("runs.txt") == [NAME]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "score"),
    [("all_pass", 2), ("majority_vote", 8), ("median", 7), ("mean", 6)],
    ids=lambda value: str(value),
)
def test_another_method_combines_the_iterations(
    project: Bench, endpoint: FaultEndpoint, method: str, score: float
) -> None:
    """Scores of 2, 5, 7, 8 and 9: from 6 on three of five pass, whose mean is 8; all five have mean 6.2, cut to 6."""
    numbers = iter((2, 5, 7, 8, 9))
    endpoint.answer = lambda body: reply(next(numbers))
    row = only(session(project, aggregation={"method": method, "pass_threshold": 0.6}))
    assert int(row["judge"]["grounding"]) == score
    assert row["final_score"] == pytest.approx(row["judge"]["overall"])  # no call, so that there are no rules
    assert row["outcome"] == ("failed" if method == "all_pass" else "passed")


def test_a_sample_of_the_iterations_counts(project: Bench, endpoint: FaultEndpoint) -> None:
    numbers = iter((1, 4, 10))
    endpoint.answer = lambda body: reply(next(numbers))
    row = only(session(project, runs=({**FIRST, "repetitions": 3, "sample_size": 2},)))
    assert row["judge"]["grounding"] in (2.5, 5.5, 7)
    [file] = (project.path / "outputs" / "evaluations").rglob("judge_1.json")
    assert (json.loads(file.read_text())["sampled"], len(endpoint.requests)) == (2, 3)


@pytest.mark.slow
def test_a_run_that_timed_out_is_judged_by_nobody_and_counted(project: Bench, endpoint: FaultEndpoint) -> None:
    project.agent(HEAD + "async def agent(case):\n    await asyncio.sleep(60)\n")
    profile = {"schema_version": 1, "run_profile_id": "short", "title": "Short", "run_timeout_seconds": 0.2}
    project.write("cases/run_profiles/short.yaml", profile)
    finished = session(project, "--agentbench-run-profile=short")
    row = only(finished)
    assert (row["status"], row["outcome"], row["final_score"], row["judge"]) == ("timed_out", "failed", None, None)
    assert (row["tool_use"]["completed"], row["tool_use"]["overall"]) == (False, None)
    assert finished.report is not None
    figures = finished.report["models"][0]["tool_use"]["total"]["figures"]
    assert (figures["completed"]["mean"], figures["overall"]["tasks"]) == (0, 0)
    assert endpoint.requests == []


@pytest.mark.slow
def test_explicit_default_settings_reuse_the_verdict(project: Bench, endpoint: FaultEndpoint) -> None:
    session(project)
    session(project, mcp_tasks={"shuffle": "axes", "language": "en"})
    assert len(endpoint.requests) == 5


@pytest.mark.slow
def test_a_new_concrete_text_is_judged_again(project: Bench, endpoint: FaultEndpoint) -> None:
    """The agent does not see it, so that the run still counts; the judge does."""
    session(project)
    task = {**TASK, "task_description": "Call departures from BSL to ZRH, after 08:00."}
    project.write("cases/tasks.json", json.dumps({"server_tasks": [{"servers": ["Timetable"], "tasks": [task]}]}))
    session(project)
    assert len(endpoint.requests) == 10
    assert "after 08:00" in endpoint.requests[-1].message
    assert project.lines("runs.txt") == [NAME]


@pytest.mark.slow
def test_a_judge_that_never_keeps_the_contract_is_an_error(project: Bench, endpoint: FaultEndpoint) -> None:
    endpoint.answer = lambda body: reply("8")
    finished = session(project, runs=({**FIRST, "repetitions": 1},))
    row = only(finished)
    assert row["outcome"] == "error"
    assert "1 of 1 iterations failed (1 invalid_output)" in finished.text
    assert len(endpoint.requests) == 3


@pytest.mark.slow
def test_verdicts_are_recorded_and_replayed(project: Bench, endpoint: FaultEndpoint) -> None:
    numbers = iter(range(4, 9))
    endpoint.answer = lambda body: reply(next(numbers))
    recorded = only(session(project, "--agentbench-cassettes=record"))
    replayed = only(session(project, "--agentbench-cassettes=replay", "--agentbench-rejudge"))
    assert len(endpoint.requests) == 5
    assert replayed["judge"] == recorded["judge"]
    assert recorded["judge"]["grounding"] == 6
