"""The MCP endpoint of a run: its protocol, its bounds, and its own run only."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp_types import TextContent
from runners.gateway.gateway_support import reply, result, shown, user

from pytest_agentbench.config.sections import RunnerSettings
from pytest_agentbench.errors import SandboxError
from pytest_agentbench.models.client import Endpoints
from pytest_agentbench.records.case import Model
from pytest_agentbench.records.run import ToolCallEvent, ToolResultEvent
from pytest_agentbench.runners import agents
from pytest_agentbench.runners.base import Recorder
from pytest_agentbench.runners.chat import Requests
from pytest_agentbench.runners.gateway import mcp as endpoint_module
from pytest_agentbench.runners.gateway.gateway import Gateway
from pytest_agentbench.runners.gateway.listener import Listener
from pytest_agentbench.runners.gateway.mcp_names import ServedTools
from pytest_agentbench.runners.gateway.trace import ToolTrace
from pytest_agentbench.tools.base import Tool, ToolContext
from pytest_agentbench.tools.toolbox import Toolbox

MODEL = Model(model_id="demo", requested_model="demo", base_url="demo", api_key_env=None)
NAMES = "mcp__{server}__{tool}"


def make_tool(name: str, call: Any, **fields: Any) -> Tool:
    parameters = {"type": "object", "properties": {"text": {"type": "string"}}}
    return Tool(name, f"The tool {name}.", parameters, call, checks_arguments=False, **fields)


async def echo(arguments: dict[str, Any], context: ToolContext) -> str:
    return str(arguments.get("text"))


def no_workspace() -> Any:
    raise AssertionError("no tool here uses a workspace")


CONTEXT = ToolContext(workspace=no_workspace, sandbox=no_workspace, needs_sandbox=no_workspace)
ECHO = make_tool("Birds:echo", echo, reads_only=True)


class Run:
    """A gateway with an MCP endpoint, reached at a listener."""

    def __init__(self, listener: Listener, *tools: Tool, wraps_json: bool = False) -> None:
        self.trace = Recorder()
        requests = Requests("a_case", Endpoints().client(MODEL), RunnerSettings(), self.trace)
        served = ServedTools(tools, ["Birds"], NAMES)
        self.gateway = Gateway(requests, MODEL, self.trace, {}, served=served)
        self.gateway.serve(served, Toolbox(tools, CONTEXT), wraps_json=wraps_json)
        self.listener, self.token = listener, listener.add(self.gateway)
        self.url = f"{listener.url}/r/{self.token}/mcp"
        self.http = httpx2.AsyncClient(verify=False, timeout=20)

    async def post(self, message: Any, server: str = "Birds", **options: Any) -> httpx2.Response:
        return await self.http.post(f"{self.url}/{server}", content=json.dumps(message), **options)

    async def ask(self, method: str, **params: Any) -> Any:
        response = await self.post({"jsonrpc": "2.0", "id": 7, "method": method, "params": params})
        assert response.status_code == 200
        assert response.json()["id"] == 7
        return response.json()

    async def call(self, name: str = "echo", **arguments: Any) -> Any:
        return (await self.ask("tools/call", name=name, arguments=arguments))["result"]

    def calls(self) -> list[ToolCallEvent]:
        return [event for event in self.trace.events if isinstance(event, ToolCallEvent)]

    def results(self) -> list[ToolResultEvent]:
        return [event for event in self.trace.events if isinstance(event, ToolResultEvent)]


@asynccontextmanager
async def listening() -> AsyncIterator[Listener]:
    listener = Listener(asyncio.get_running_loop())
    try:
        yield listener
    finally:
        await listener.close()


@asynccontextmanager
async def running(*tools: Tool, **options: Any) -> AsyncIterator[Run]:
    async with listening() as listener:
        run = Run(listener, *tools, **options)
        async with run.http:
            with run.gateway.turn("Go."):
                yield run


def test_a_first_message_waits_until_all_servers_are_listed_and_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint_module, "_QUIET_SECONDS", 0.2)

    async def check() -> None:
        loop = asyncio.get_running_loop()
        async with running(ECHO) as run:
            began = loop.time()
            await run.gateway.wait_until_listed(0.05)
            assert 0.05 <= loop.time() - began < 5  # nobody listed anything
            waiting = asyncio.create_task(run.gateway.wait_until_listed(20))
            for method in ("initialize", "tools/list", "ping", "ping"):
                await asyncio.sleep(0.1)
                last = loop.time()
                await run.ask(method)
            await waiting
            assert 0.2 <= loop.time() - last < 5

    asyncio.run(check())


def test_each_method_has_its_answer() -> None:
    async def check() -> None:
        async with running(ECHO) as run:
            for asked, answered in [("2024-11-05",) * 2, ("2025-06-18",) * 2, ("2026-07-28", "2025-11-25")]:
                found = await run.ask("initialize", protocolVersion=asked, capabilities={})
                assert found["result"]["protocolVersion"] == answered
                assert found["result"]["serverInfo"]["name"] == "Birds"
            assert (await run.ask("ping"))["result"] == {}
            [tool] = (await run.ask("tools/list"))["result"]["tools"]
            assert (tool["name"], tool["inputSchema"]) == ("echo", ECHO.parameters)
            assert tool["annotations"] == {"readOnlyHint": True}
            for method in ("server/discover", "prompts/list", "resources/list"):
                assert (await run.ask(method))["error"]["code"] == -32601
            for message in ({"method": "notifications/cancelled", "params": {"requestId": 3}}, {"id": 1, "result": {}}):
                response = await run.post({"jsonrpc": "2.0", **message})
                assert (response.status_code, response.content) == (202, b"")
            assert (await run.call(text="a"))["content"] == [{"type": "text", "text": "a"}]
            unknown = await run.call("nosuch")
            assert unknown["isError"]
            assert "unknown tool 'Birds:nosuch'" in unknown["content"][0]["text"]

    asyncio.run(check())


def test_bad_requests_are_refused_with_their_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint_module, "_MOST_CALLS", 2)
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "echo"}}

    async def check() -> None:
        async with running(ECHO) as run:
            for method in ("GET", "DELETE"):
                response = await run.http.request(method, f"{run.url}/Birds")
                assert (response.status_code, response.headers["allow"]) == (405, "POST")
            response = await run.post(call, "Fish")
            assert response.status_code == 404
            assert "there are Birds" in response.text
            for message, status in [
                ([call], 400),
                ({**call, "x": "y" * 2**22}, 413),
                ({**call, "x": [[]] * 200_000}, 413),
            ]:
                assert (await run.post(message)).status_code == status
            wrong = await run.post({**call, "params": {"name": 3}})
            assert wrong.json()["error"]["code"] == -32602
            for _ in range(2):
                assert "result" in (await run.post(call)).json()
            assert "the maximum" in (await run.post(call)).json()["error"]["message"]
        assert [call.name for call in run.calls()] == ["Birds:echo"] * 2

    asyncio.run(check())


def test_a_long_call_is_answered_in_a_stream_with_signs_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint_module, "_PATIENCE_SECONDS", 0.01)
    monkeypatch.setattr(endpoint_module, "_KEEP_ALIVE_SECONDS", 0.01)

    async def check() -> None:
        goes_on = asyncio.Event()

        async def slow(arguments: dict[str, Any], context: ToolContext) -> str:
            await goes_on.wait()
            return "done"

        async with running(make_tool("Birds:slow", slow)) as run:
            params = {"name": "slow", "_meta": {"progressToken": "p-1"}}
            message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
            lines: list[str] = []
            async with run.http.stream("POST", f"{run.url}/Birds", json=message) as response:
                assert response.headers["content-type"] == "text/event-stream"
                async for line in response.aiter_lines():
                    lines.append(line)
                    if lines.count(": the call is running") == 3:
                        goes_on.set()
            messages = [json.loads(line[5:]) for line in lines if line.startswith("data:")]
            assert [message["params"]["progress"] for message in messages[:3]] == [1, 2, 3]
            assert messages[-1]["result"]["content"][0]["text"] == "done"

    asyncio.run(check())


@pytest.mark.slow
def test_the_librarys_client_lists_and_calls() -> None:
    async def check() -> None:
        async with running(ECHO) as run, Client(f"{run.url}/Birds") as client:
            assert client.protocol_version == "2025-11-25"
            assert [tool.name for tool in (await client.list_tools()).tools] == ["echo"]
            [block] = (await client.call_tool("echo", {"text": "a"})).content
            assert isinstance(block, TextContent)
            assert block.text == "a"

    asyncio.run(check())


@pytest.mark.slow
@pytest.mark.parametrize(("program", "relay"), [(sys.executable, "mcp_relay.py"), ("node", "mcp_relay.mjs")])
def test_a_relay_connects_stdin_and_stdout(monkeypatch: pytest.MonkeyPatch, program: str, relay: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    monkeypatch.setattr(endpoint_module, "_PATIENCE_SECONDS", 0.01)
    path = Path(agents.__file__).with_name(relay)

    async def slow(arguments: dict[str, Any], context: ToolContext) -> str:
        await asyncio.sleep(0.2)
        return "größe"

    async def check() -> None:
        async with running(make_tool("Birds:slow", slow)) as run:
            pipe = asyncio.subprocess.PIPE
            process = await asyncio.create_subprocess_exec(program, path, f"{run.url}/Birds", stdin=pipe, stdout=pipe)
            assert process.stdin is not None
            assert process.stdout is not None
            messages: list[dict[str, Any]] = [
                {"id": 1, "method": "tools/call", "params": {"name": "slow", "_meta": {"progressToken": 1}}},
                {"method": "notifications/initialized"},
                {"id": 2, "method": "ping"},
            ]
            process.stdin.writelines(json.dumps({"jsonrpc": "2.0", **each}).encode() + b"\n" for each in messages)
            answers: dict[Any, Any] = {}
            while len(answers) < 3:
                answer = json.loads(await process.stdout.readline())
                answers[answer.get("id")] = answer
            assert answers[None]["method"] == "notifications/progress"
            assert answers[1]["result"]["content"][0]["text"] == "größe"
            assert answers[2]["result"] == {}
            process.stdin.close()
            assert await process.wait() == 0

    asyncio.run(check())


def test_json_that_is_no_object_becomes_structured_content_if_asked() -> None:
    async def check() -> None:
        async with running(ECHO, wraps_json=True) as run:
            assert (await run.call(text="[1, 2]"))["structuredContent"] == {"result": [1, 2]}
            for text in ('{"a": 1}', "no JSON"):
                assert "structuredContent" not in await run.call(text=text)
            assert run.trace.provider["gateway"]["json_text"] == "wrap"
        async with running(ECHO) as run:
            assert "structuredContent" not in await run.call(text="[1, 2]")

    asyncio.run(check())


def test_calls_end_with_the_turn_and_later_ones_are_refused() -> None:
    async def check() -> None:
        began = asyncio.Event()

        async def hang(arguments: dict[str, Any], context: ToolContext) -> str:
            began.set()
            await asyncio.Event().wait()
            raise AssertionError

        async with listening() as listener:
            run = Run(listener, ECHO, make_tool("Birds:hang", hang))
            async with run.http:
                with run.gateway.turn("Go."):
                    calling = asyncio.create_task(run.ask("tools/call", name="hang"))
                    await began.wait()
                assert (await calling)["error"]["message"] == "the agent's turn is over"
                [ended] = run.results()
                assert (ended.content, ended.is_error) == ("the agent's turn ended before the call", True)
                message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "echo"}}
                assert (await run.post(message)).status_code == 409
                listener.remove(run.token)
                assert (await run.post(message)).status_code == 409
            assert len(run.calls()) == 1

    asyncio.run(check())


def test_a_broken_sandbox_of_a_tool_ends_the_run() -> None:
    async def breaks(arguments: dict[str, Any], context: ToolContext) -> str:
        raise SandboxError("docker is gone")

    async def check() -> None:
        async with running(make_tool("shell", breaks)) as run:
            response = await run.post(
                {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "shell"}}, "tools"
            )
            assert "docker" not in response.text
            with pytest.raises(SandboxError, match="docker is gone"):
                run.gateway.find_end(answered=True)

    asyncio.run(check())


def test_at_most_sixteen_calls_of_a_run_are_made_at_once() -> None:
    async def check() -> None:
        busy = most = 0

        async def count(arguments: dict[str, Any], context: ToolContext) -> str:
            nonlocal busy, most
            busy += 1
            most = max(most, busy)
            for _ in range(50):
                await asyncio.sleep(0.001)
            busy -= 1
            return "x"

        async with running(make_tool("Birds:count", count)) as run:
            await asyncio.gather(*(run.call("count") for _ in range(24)))
        assert most == 16

    asyncio.run(check())


def test_fifty_runs_at_one_listener_record_their_own_calls_only() -> None:
    async def check() -> None:
        async with listening() as listener:
            runs = [Run(listener, ECHO) for _ in range(50)]

            async def use(number: int, run: Run) -> None:
                with run.gateway.turn("Go."):
                    for _ in range(3):
                        assert (await run.call(text=f"run {number}"))["content"][0]["text"] == f"run {number}"
                    # The header of a run works without its path, and a token that nobody has does not
                    message = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
                    address = f"{listener.url}/mcp/Birds"
                    headers = {"x-agentbench-run": run.token}
                    assert (await run.http.post(address, json=message, headers=headers)).status_code == 200
                    headers = {"x-agentbench-run": "another"}
                    assert (await run.http.post(address, json=message, headers=headers)).status_code == 401
                await run.http.aclose()

            await asyncio.gather(*(use(number, run) for number, run in enumerate(runs)))
            for number, run in enumerate(runs):
                assert [result.content for result in run.results()] == [f"run {number}"] * 3

    asyncio.run(check())


def make_trace() -> tuple[Recorder, ToolTrace]:
    trace = Recorder()
    return trace, ToolTrace(trace, served=ServedTools([ECHO], ["Birds"], NAMES))


def test_a_call_is_joined_by_its_id_before_equal_arguments_count() -> None:
    trace, tools = make_trace()
    tools.replied(
        [user("Go.")], reply(("a", "mcp__Birds__echo", {"text": "x"}), ("b", "mcp__Birds__echo", {"text": "x"}))
    )
    second = tools.begin_served("Birds:echo", {"text": "x"}, {"b"})
    first = tools.begin_served("Birds:echo", {"text": "x"}, set())
    third = tools.begin_served("Birds:echo", {"text": "x"}, set())
    assert (second.call_id, first.call_id, third.call_id) == ("b", "a", "mcp_3")
    calls = [event for event in trace.events if isinstance(event, ToolCallEvent)]
    assert [call.asked_by_model for call in calls] == [True, True, False]


def test_another_argument_is_another_call() -> None:
    trace, tools = make_trace()
    call = ("a", "mcp__Birds__echo", {"text": "x"})
    tools.replied([user("Go.")], reply(call))
    assert tools.begin_served("Birds:echo", {"text": "y"}, set()).call_id == "mcp_2"
    tools.requested([user("Go."), shown(call), result("a", "invalid arguments: text")])
    unmade = next(event for event in trace.events if isinstance(event, ToolCallEvent) and event.call_id == "a")
    assert (unmade.executed, unmade.reason) == (False, "invalid arguments: text")
    [refused] = [event for event in trace.events if isinstance(event, ToolResultEvent)]
    assert (refused.refused, refused.is_error) == (True, True)


def test_a_call_without_an_end_is_not_executed() -> None:
    trace, tools = make_trace()
    tools.replied([user("Go.")], reply(("a", "mcp__Birds__echo", {"text": "x"}), ("b", "sh", {"command": "ls"})))
    tools.end_turn()
    calls = [event for event in trace.events if isinstance(event, ToolCallEvent)]
    assert [(call.name, call.executed) for call in calls] == [("Birds:echo", False), ("sh", True)]


@pytest.mark.parametrize(
    ("server", "slug"),
    [("Google Maps", "GoogleMaps"), ("tools", "tools2"), ("天气", "server"), ("a" * 30, "a" * 20), ("x.y", "xy")],
)
def test_slugs_of_servers(server: str, slug: str) -> None:
    served = ServedTools([], [server, f"{server}!"])
    assert [*served.servers] == [slug, served.slugs[f"{server}!"]]
    assert len(set(served.servers)) == 2
    assert all(len(each) <= 20 for each in served.servers)


def test_names_that_agents_change_are_found() -> None:
    served = ServedTools([make_tool("Birds:get-sum", echo), make_tool("lookup", echo)], ["Birds"], NAMES)
    assert served.find_called("mcp__Birds__get_sum") == "Birds:get-sum"
    assert served.find_called("mcp__tools__lookup") == "lookup"
    assert served.find_called("lookup") is None
    assert served.name_for_agent("Birds:get-sum", ["mcp__Birds__get_sum"]) == "mcp__Birds__get_sum"
    assert served.name_for_agent("Birds:get-sum", []) == "mcp__Birds__get-sum"


def test_names_with_a_hash_are_found() -> None:
    tools = [make_tool("Birds:find_bird", echo), make_tool(f"Birds:{'a' * 90}", echo)]
    served = ServedTools(tools, ["Birds"], "{server}_{tool}_*")
    assert served.find_called("Birds_find_bird_c6b3301c7dde") == "Birds:find_bird"
    assert served.find_called("find_bird") is None
    offered = ["shell", "Birds_find_bird_c6b3301c7dde"]
    assert served.name_for_agent("Birds:find_bird", offered) == "Birds_find_bird_c6b3301c7dde"
    # With a hash of sixteen characters the name is still short enough
    assert max(len(f"Birds_{name}_{'0' * 15}") for name in served.servers["Birds"]) <= 64


def test_addresses_of_servers() -> None:
    assert endpoint_module.find_server("/r/token/mcp/Birds/") == "Birds"
    assert endpoint_module.find_server("/mcp/Birds") == "Birds"
    assert endpoint_module.find_server("/v1/mcp/Birds") is None
