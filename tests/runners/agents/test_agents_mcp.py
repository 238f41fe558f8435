"""A case's MCP servers and tools, given to a program: a small agent of a project's own adapter, and a command."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from support.bench import Bench, Finished, check
from support.docker_here import needs_bubblewrap
from support.mcp_projects import McpBench
from support.skills import ADAPTER

from pytest_agentbench.config.agent_file import McpPlace, find_place_problems

AGENT = Path(__file__).parents[2] / "support" / "mcp_agent.py"

HTTP = {"url": "{url}"}
MCP = {
    "file": "{home}/.stub/mcp.json",
    "at": "mcpServers",
    "http": HTTP,
    "stdio": {"command": "{command}", "args": "{args}"},
    "names": "mcp__{server}__{tool}",
}


class Project:
    """A project with the test server `Birds`, and one case of the stub agent."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.mcp = bench, McpBench(bench)

    def adapter(self, mcp: dict[str, Any] | None = None, **fields: Any) -> None:
        place = None if mcp is None else {**MCP, **mcp}
        adapter = {name: value for name, value in {**ADAPTER, "mcp": place, **fields}.items() if name != "skills"}
        self.bench.write("cases/agents/stub/agent.yaml", adapter)

    def case(self, text: str, *steps: dict[str, Any], servers: Any = ("Birds",), **fields: Any) -> None:
        runner = {"type": "agent", "agent": "stub", "sandbox": "local", "timeout_seconds": 60}
        case = {
            "runner": {**runner, **fields.pop("runner", {})},
            "input": {"turns": [{"role": "user", "content": text}], **fields.pop("input", {})},
            "mcp_servers": list(servers),
            "workspace": "ws",
            **fields,
        }
        self.bench.case("one", **{name: value for name, value in case.items() if value})
        self.bench.write("cases/one/ws/agent.py", AGENT.read_text(encoding="utf-8"))
        replies = [{"steps": [*steps, {"content": "Paris"}]}]
        self.bench.write("cases/one/demo.yaml", {"schema_version": 1, "replies": replies})

    def run(self, *options: str) -> Finished:
        return self.mcp.run(*options)

    def artifact(self) -> dict[str, Any]:
        [path] = self.bench.path.glob("outputs/runs/**/run_1.json")
        return dict(json.loads(path.read_text(encoding="utf-8")))

    def events(self, kind: str) -> list[dict[str, Any]]:
        """The run's events of a type, or the runner's events of a name."""
        trace = self.artifact()["trace"]
        return [each for each in trace if kind in (each["type"], each.get("name"))]


@pytest.fixture
def project(bench: Bench) -> Project:
    project = Project(bench)
    project.mcp.servers(Birds=project.mcp.server("birds"))
    project.adapter({})
    return project


def called(tool: str, **arguments: Any) -> dict[str, Any]:
    """A step of the script that calls a tool of the case."""
    return {"tool_calls": [{"portable": {"mcp": tool}, "arguments": arguments}]}


ECHO = called("Birds:echo", text="kingfisher")
CALLED = [check("called", kind="tool_called", name="Birds:echo", arguments={"text": "kingfisher"})]


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["http", "stdio"])
@pytest.mark.parametrize("sandbox", ["local", pytest.param("bubblewrap", marks=needs_bubblewrap)])
def test_an_agent_calls_a_server_and_the_trace_has_one_call(project: Project, sandbox: str, transport: str) -> None:
    project.adapter({"transport": transport})
    project.case("Ask.", ECHO, runner={"sandbox": sandbox}, deterministic_checks=CALLED)
    finished = project.run()
    assert finished.outcomes == {"one[demo]": "passed"}, finished.text
    [call] = project.events("tool_call")
    assert (call["name"], call["agent_name"], call["recorded_by"]) == ("Birds:echo", "mcp__Birds__echo", "mcp")
    assert (call["offered"], call["schema_valid"]) == (True, True)
    assert "executed" not in call
    [result] = project.events("tool_result")
    assert (result["content"], result["is_error"], result["call_id"]) == ("kingfisher", False, call["call_id"])
    assert "shown" not in result
    assert project.artifact()["request"]["mcp"]["mcp__Birds__echo"] == "Birds:echo"
    assert "could not call" not in finished.text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Please connect none.", "the agent did not ask for them before the turn's end"),
        ("Please hide them.", "the agent asked for them, and offered none in the turn"),
    ],
)
def test_a_run_warns_once_of_each_server_whose_tools_its_model_could_not_call(
    project: Project, text: str, reason: str
) -> None:
    project.mcp.servers(Birds=project.mcp.server("birds"), Fish=project.mcp.server("fish"))
    project.adapter({}, resume_argv=ADAPTER["argv"])
    given = {
        "turns": [{"role": "user", "content": text}] * 2,
        "context": {"llm_probe": {"tools": ["write_file"]}},
    }
    project.case(text, servers=["Birds", "Fish"], input=given)
    finished = project.run()
    assert finished.outcomes == {"one[demo]": "passed"}, finished.text
    names = ["the case's own tools", "the tools of the MCP server 'Birds'", "the tools of the MCP server 'Fish'"]
    warned = [line.partition("could not call ")[2] for line in finished.text.splitlines() if "could not call" in line]
    assert warned == [f"{name}: {reason}" for name in names]
    assert project.artifact()["provider"]["gateway"]["servers_not_offered"] == ["tools", "Birds", "Fish"]


@pytest.mark.slow
def test_servers_without_names_in_an_agent_share_a_tool_name_and_are_told_apart(project: Project) -> None:
    project.mcp.servers(Birds=project.mcp.server("birds"), Fish=project.mcp.server("fish"))
    project.adapter({"names": "{tool}"}, env={"STUB_NAMES": "TOOL"})
    project.case(
        "Ask.", called("Birds:echo", text="kingfisher"), called("Fish:echo", text="pike"), servers=["Birds", "Fish"]
    )
    finished = project.run()
    assert finished.outcomes == {"one[demo]": "passed"}, finished.text
    calls = [(call["name"], call["agent_name"], call["arguments"]["text"]) for call in project.events("tool_call")]
    assert calls == [("Birds:echo", "Birds_echo", "kingfisher"), ("Fish:echo", "Fish_echo", "pike")]
    assert sorted(project.mcp.names()) == ["birds", "fish"]


@pytest.mark.slow
def test_odd_names_are_shortened_for_the_agent_and_whole_in_the_trace(project: Project) -> None:
    project.mcp.servers(**{"Google Maps": project.mcp.server("maps", "--odd-names")})
    names = ["echo", "a" * 100, "dots.and/slashes"]
    project.case("Ask.", *(called(f"Google Maps:{name}", text=name) for name in names), servers=["Google Maps"])
    finished = project.run()
    assert finished.outcomes == {"one[demo]": "passed"}, finished.text
    calls = project.events("tool_call")
    assert [call["name"] for call in calls] == [f"Google Maps:{name}" for name in names]
    shown = [call["agent_name"] for call in calls]
    assert shown[0] == "mcp__GoogleMaps__echo"
    assert shown[1].endswith("aa_1")
    assert len(shown[1]) == 64
    assert shown[2] == "mcp__GoogleMaps__dots_and_slashes"
    assert [result["content"] for result in project.events("tool_result")] == names


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "tool", "reason"),
    [
        ("Ask, and deny it.", "Birds:echo", "The user denied permission for this call."),
        ("Ask.", "Birds:nosuch", "the run has no tool 'Birds:nosuch'"),
    ],
)
def test_a_call_that_the_agent_does_not_make_fails_the_check(
    project: Project, text: str, tool: str, reason: str
) -> None:
    checks = [check("called", kind="tool_called", name=tool)]
    project.case(text, called(tool, text="kingfisher"), deterministic_checks=checks)
    finished = project.run()
    assert finished.outcomes == {"one[demo]": "failed"}
    [call] = project.events("tool_call")
    assert (call["name"], call["executed"], call["reason"]) == (tool, False, reason)
    assert "recorded_by" not in call
    assert f"the agent did not make 1 further calls, which do not count: {reason}" in finished.text
    assert project.mcp.names() == ["birds"]  # only to list its tools


@pytest.mark.slow
def test_a_call_that_no_model_asked_for_counts_as_a_call(project: Project) -> None:
    project.case("Ask, by itself too.", deterministic_checks=[check("called", kind="tool_called", name="Birds:echo")])
    finished = project.run()
    assert finished.outcomes == {"one[demo]": "passed"}, finished.text
    [call] = project.events("tool_call")
    assert (call["asked_by_model"], call["arguments"]) == (False, {"text": "of its own accord"})


@pytest.mark.slow
def test_equal_calls_of_one_reply_are_joined_by_their_ids_and_late_messages_mean_nothing(project: Project) -> None:
    twice = {"tool_calls": [*called("Birds:count")["tool_calls"], *called("Birds:count")["tool_calls"]]}
    project.case("Ask with ids, discover, and late cancel.", twice)
    finished = project.run()
    assert finished.outcomes == {"one[demo]": "passed"}, finished.text
    assert [call["recorded_by"] for call in project.events("tool_call")] == ["mcp", "mcp"]
    results = [(result["call_id"], result["content"]) for result in project.events("tool_result")]
    assert results == list(zip((call["call_id"] for call in project.events("tool_call")), "12", strict=True))
    assert not project.events("agent_gave_up")
    assert not project.artifact()["provider"]["gateway"].get("refused_endpoint")


@pytest.mark.slow
def test_a_server_that_dies_fails_the_call_and_is_restarted_once(project: Project) -> None:
    project.case("Ask.", called("Birds:die"), ECHO, called("Birds:die"), ECHO)
    finished = project.run()
    assert finished.outcomes == {"one[demo]": "passed"}, finished.text
    died, again = "Birds ended before it had answered", "the next call starts it again"
    results = [result["content"] for result in project.events("tool_result")]
    assert results[:2] == [f"error: {died}; {again}", "kingfisher"]
    assert results[2] == f"error: {died}; it is not started again"
    assert "ended twice" in results[3]
    assert [event["data"]["server"] for event in project.events("mcp_server_died")] == ["Birds", "Birds"]


@pytest.mark.slow
def test_a_server_that_never_starts_is_an_error_before_the_agent_runs(project: Project) -> None:
    project.mcp.servers(Birds=project.mcp.server("birds", "--die-at-start"))
    project.case("Ask.", ECHO)
    finished = project.run()
    assert finished.outcomes == {"one[demo]": "error"}
    assert "MCP server Birds: it ended before it answered" in finished.text


@pytest.mark.slow
def test_a_call_that_the_agent_gives_up_is_executed_and_noted(project: Project) -> None:
    project.case(
        "Ask, and give up.",
        called("Birds:slow", seconds=2),
        {"tool_calls": [{"name": "sh", "arguments": {"command": "sleep 3"}}]},
    )
    finished = project.run()
    assert finished.outcomes == {"one[demo]": "passed"}, finished.text
    call = project.events("tool_call")[0]
    assert (call["recorded_by"], "executed" in call) == ("mcp", False)
    [event] = project.events("agent_gave_up")
    assert event["data"]["call_id"] == call["call_id"]
    result = next(each for each in project.events("tool_result") if each["call_id"] == call["call_id"])
    assert (result["content"], result["shown"]) == ("done", "MCP error: timed out")


@pytest.mark.parametrize(
    ("mcp", "content", "problem"),
    [
        ({}, "x: 1", "found a text, expected a mapping, the form of `mcp`"),
        ({}, {"mcpServers": []}, "mcpServers: found a list, expected a mapping, the form of `mcp`"),
        ({"at": "a.b.c"}, {"a": {"b": 3}}, "a.b: found 3, expected a mapping, the form of `mcp`"),
        ({"list": True}, {"mcpServers": {}}, "mcpServers: found a mapping, expected a list, the form of `mcp`"),
        ({"format": "toml"}, {"a": 1}, "found a mapping, expected TOML as a text, the form of `mcp`"),
    ],
)
def test_a_file_that_takes_no_servers(mcp: dict[str, Any], content: Any, problem: str) -> None:
    [(loc, text)] = find_place_problems({MCP["file"]: content}, McpPlace.model_validate({**MCP, **mcp}))
    assert loc[:2] == ("files", MCP["file"])
    assert ": ".join([".".join(map(str, loc[2:])), text]).lstrip(": ") == problem


@pytest.mark.slow
def test_a_file_that_takes_no_servers_is_an_error_of_the_adapter_or_case(project: Project) -> None:
    project.adapter({}, files={MCP["file"]: "x: 1"})
    project.case("Ask.", ECHO)
    problem = "found a text, expected a mapping, the form of `mcp`"
    assert re.search(rf"agent\.yaml:\d+:\d+: files\.{re.escape(MCP['file'])}: {problem}", project.run().text)
    project.adapter({})
    project.case("Ask.", ECHO, runner={"files": {MCP["file"]: "x: 1"}})
    finished = project.run()
    assert finished.outcomes == {"one[demo]": "error"}
    assert f"runner.files.{MCP['file']}: {problem}" in finished.text


@pytest.mark.parametrize(
    ("mcp", "content"),
    [
        ({}, {"other": 1}),
        ({}, {"mcpServers": None}),
        ({"at": "a.b"}, {"a": {"c": 1}}),
        ({"list": True}, {"mcpServers": []}),
        ({"format": "toml"}, "a = 1"),
    ],
)
def test_a_file_that_takes_servers_is_accepted(mcp: dict[str, Any], content: Any) -> None:
    place = McpPlace.model_validate({**MCP, **mcp})
    assert list(find_place_problems({MCP["file"]: content}, place)) == []


@pytest.mark.slow
def test_an_agent_without_a_place_for_servers_refuses_them_before_anything_runs(project: Project) -> None:
    project.adapter(None)
    project.case("Ask.", ECHO)
    finished = project.run()
    text = "agent 'stub' takes no MCP servers (its adapter has no `mcp`); remove mcp_servers or choose another agent"
    assert text in finished.text
    assert not project.mcp.starts()
    project.bench.case(
        "one",
        runner={"type": "agent", "agent": "mini_swe_agent"},
        input={"messages": [{"role": "user", "content": "Go."}], "context": {"llm_probe": {"tools": ["read_file"]}}},
    )
    finished = project.run()
    assert (
        "input.context.llm_probe.tools: agent 'mini_swe_agent' takes no tools (its adapter has no `mcp`)"
        in finished.text
    )


@pytest.mark.slow
@pytest.mark.parametrize("sandbox", ["local", pytest.param("bubblewrap", marks=needs_bubblewrap)])
def test_a_cases_own_tools_work_in_the_agents_workspace(project: Project, sandbox: str) -> None:
    canned = {"name": "price", "parameters": {"bird": "string"}, "returns": [5, 7]}
    wrote = called("write_file", path="bird.txt", content="kingfisher")
    reads = {"tool_calls": [{"portable": "shell", "arguments": {"command": "cat bird.txt"}}]}
    checks = [check("wrote", kind="tool_called", name="write_file"), check("price", kind="tool_called", name="price")]
    project.adapter({"json_text": "wrap"})
    project.case(
        "Ask.",
        wrote,
        reads,
        called("exec_shell", command="echo $HOME; cat bird.txt"),
        called("price", bird="kingfisher"),
        servers=[],
        runner={"sandbox": sandbox},
        input={"context": {"llm_probe": {"tools": ["write_file", "exec_shell", canned]}}},
        deterministic_checks=checks,
    )
    finished = project.run()
    assert finished.outcomes == {"one[demo]": "passed"}, finished.text
    results = [result["content"] for result in project.events("tool_result")]
    assert results[1] == "kingfisher"
    assert "kingfisher" in results[2]
    assert results[3] == "[5, 7]"
    assert project.artifact()["provider"]["gateway"]["json_text"] == "wrap"
    assert project.artifact()["request"]["mcp"]["mcp__tools__price"] == "price"


@pytest.mark.slow
@pytest.mark.parametrize("relay", [False, True])
def test_a_command_names_the_addresses_itself(project: Project, relay: bool) -> None:
    entry: dict[str, Any] = {"url": "{base}/mcp/Birds"}
    if relay:
        entry = {"command": "{mcp_relay}", "args": ["{base}/mcp/Birds"]}
    runner = {
        "type": "command",
        "agent": None,
        "command": ["python3", "agent.py", "{message}"],
        "files": {"{home}/.stub/mcp.json": {"mcpServers": {"birds": entry}}},
        "env": {"STUB_NAMES": "TOOL"},
        "answer": {"from": "stdout_json", "path": "result"},
    }
    project.case("Ask.", ECHO, runner=runner, deterministic_checks=CALLED)
    finished = project.run()
    assert finished.outcomes == {"one[demo]": "passed"}, finished.text
    [call] = project.events("tool_call")
    assert (call["name"], call["agent_name"], call["recorded_by"]) == ("Birds:echo", "echo", "mcp")


@pytest.mark.slow
def test_a_result_reaches_the_agent_as_the_server_sent_it(project: Project) -> None:
    project.case("Ask, and print results.", called("Birds:binary"), called("Birds:structured"))
    finished = project.run()
    assert finished.outcomes == {"one[demo]": "passed"}, finished.text
    binary, structured = (json.loads(result["shown"]) for result in project.events("tool_result"))
    assert [block["type"] for block in binary["content"]] == ["text", "image", "audio", "resource", "resource"]
    assert len(binary["content"][1]["data"]) > 12_345
    assert structured == {"content": [], "structuredContent": {"answer": 42}, "isError": False}
    assert "[image/png, 12,345 bytes]" in project.events("tool_result")[0]["content"]
