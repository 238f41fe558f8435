"""A connection to a real server: what it lists and answers, and what becomes of calls when the server misbehaves."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import resource
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from support.docker_here import needs_bubblewrap, needs_docker
from support.mcp_connections import SERVER, connected, declared_server, failure, lines_of, logged, sandbox_for
from support.mcp_server import NOISE, ODD_NAMES

from pytest_agentbench.errors import McpCallError, McpServerError, UnavailableError
from pytest_agentbench.tools.mcp.connection import Connection
from pytest_agentbench.tools.mcp.launching import launch_server

AT_ITS_END = """
import json, sys, time
for line in sys.stdin:
    message = json.loads(line)
    result = {"tools": []}
    if message["method"] == "initialize":
        protocol = message["params"]["protocolVersion"]
        result = {"protocolVersion": protocol, "capabilities": {}, "serverInfo": {"name": "x", "version": "1"}}
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
time.sleep(0.1)
open("kept", "w").write("state")
"""
KINDS = [
    "local",
    pytest.param("bubblewrap", marks=needs_bubblewrap),
    pytest.param("docker", marks=[needs_docker, pytest.mark.slow]),
]


def play(scene: Callable[[Connection], Awaitable[None]], *options: str, kind: Any = "local", **declared: Any) -> None:
    """The scene with a connection to the test server, of which no task is left."""

    async def main() -> None:
        async with connected(declared_server(*options, **declared), kind) as connection:
            await scene(connection)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


@pytest.mark.parametrize("kind", KINDS)
def test_lists_and_calls_in_every_sandbox(kind: str) -> None:
    async def scene(connection: Connection) -> None:
        listing = await connection.listing()
        assert (listing.server_name, listing.server_version) == ("calculator", "3.1")
        assert listing.protocol == "2025-06-18"
        add = next(tool for tool in listing.tools if tool.name == "add")
        assert (add.tool_id, add.description) == ("Test:add", "Tool add.")
        assert add.input_schema["required"] == ["a", "b"]
        assert [tool.name for tool in listing.tools if tool.reads_only] == ["echo", "add"]
        sums = await asyncio.gather(*(connection.call("add", {"a": number, "b": 1}) for number in range(20)))
        assert [result.text for result in sums] == [str(number + 1) for number in range(20)]
        assert connection.starts == 1

    play(scene, "--name", "calculator", "--version", "3.1", kind=kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_has_its_own_environment_and_folder_and_nothing_else(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-judge")
    monkeypatch.setenv("WEATHER_KEY", "sk-of-the-weather")

    async def scene(connection: Connection) -> None:
        found = json.loads((await connection.call("environment", {})).text)
        assert (found.pop("WEATHER_KEY"), found.pop("MODE")) == ("sk-of-the-weather", "fast")
        workspace = found.pop("AGENTBENCH_WORKSPACE")
        assert (workspace == "/workspace") == (kind != "local")
        assert found["HOME"] == workspace
        assert set(found) <= {"PATH", "HOME", "TMPDIR", "LANG", "TERM", "PWD", "SHLVL", "_", "HOSTNAME"}
        folder = (await connection.call("folder", {})).text  # a checkout below /tmp is seen below /mnt
        assert folder.removeprefix("/mnt") == str(SERVER.parent)

    play(scene, kind=kind, env={"MODE": "fast"}, env_from=("WEATHER_KEY",))


def test_a_server_without_a_folder_starts_in_the_workspace() -> None:
    async def scene(connection: Connection) -> None:
        environment = json.loads((await connection.call("environment", {})).text)
        assert (await connection.call("folder", {})).text == environment["AGENTBENCH_WORKSPACE"]

    play(scene, args=("-I", str(SERVER)), cwd=None)


@pytest.mark.slow
def test_results_are_texts() -> None:
    async def scene(connection: Connection) -> None:
        async def text(tool: str, **arguments: Any) -> str:
            result = await connection.call(tool, arguments)
            assert not result.is_error
            return result.text

        note = "12,345 bytes]"
        binary = f"a picture:\n[image/png, {note}\n[audio/wav, {note}\n[application/octet-stream, {note}\ninside"
        assert await text("binary") == binary
        assert await text("structured") == '{"answer": 42}'
        assert await text("nothing") == ""
        assert await text("link") == "report: file:///report.md"
        assert await text("soft_error") == '{"error": "no such fruit"}'
        assert await text("echo", text="größe 🙂 \n two lines") == "größe 🙂 \n two lines"
        failed = await connection.call("fail", {"why": "it rains"})
        assert (failed.text, failed.is_error) == ("it failed: it rains", True)

    play(scene)


def test_text_cut_in_the_middle_of_a_character_arrives() -> None:
    async def scene(connection: Connection) -> None:
        assert (await connection.call("cut", {})).text == "cut ?"

    play(scene)


def test_output_that_is_not_a_message_is_ignored_and_not_logged(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)

    async def scene(connection: Connection) -> None:
        assert len((await connection.listing()).tools) > 5
        for _ in range(3):
            assert (await connection.call("noise", {})).text == "spoke"
        assert connection.starts == 1

    play(scene, "--noise")
    secret = NOISE.rpartition("=")[2]
    assert secret not in caplog.text
    assert "json-rpc" not in caplog.text
    captured = capfd.readouterr()
    assert secret not in captured.out + captured.err


@pytest.mark.slow
def test_a_result_of_megabytes_comes_whole_and_one_too_long_fails_its_call() -> None:
    async def scene(connection: Connection) -> None:
        huge, echo = await asyncio.gather(connection.call("huge", {}), connection.call("echo", {"text": "beside"}))
        assert (len(huge.text), echo.text) == (5 * 2**20, "beside")
        for tool in ("huge", "huge_id_last"):
            told, echo = await asyncio.gather(
                failure(connection, tool, megabytes=17), connection.call("echo", {"text": "beside"})
            )
            assert (told, echo.text) == ("the result is longer than 16 MiB", "beside")
        assert (await connection.call("long_line", {"megabytes": 40})).text == "wrote"
        assert connection.starts == 1

    play(scene)


@pytest.mark.slow
def test_a_flood_of_notifications_makes_no_tasks_and_delays_nobody() -> None:
    async def scene(connection: Connection) -> None:
        await connection.listing()
        flood = asyncio.create_task(connection.call("flood", {"count": 100_000}))
        tasks = []
        while not flood.done():
            assert (await connection.call("echo", {"text": "beside"}, 5)).text == "beside"
            tasks.append(len(asyncio.all_tasks()))
        assert flood.result().text == "flooded"
        assert len(tasks) > 3
        assert max(tasks) < 12

    play(scene)


SPILLS = """
import json, sys

LISTS = b"[" + b"[]," * 5_000_000 + b"[]]}}\\n"
SPILLS = {
    "text": b"x" * 2**20,
    "lists in notifications": b'{"jsonrpc": "2.0", "method": "n", "params": {"a": ' + LISTS,
    "lists in responses": b'{"jsonrpc": "2.0", "id": 99, "result": {"a": ' + LISTS,
    "objects": b"{}\\n" * 500_000,
    "requests": b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\\n' * 10_000,
}

for line in sys.stdin:
    message = json.loads(line)
    while message["method"] == "tools/call":
        sys.stdout.buffer.write(SPILLS[message["params"]["name"]])
    result = {"tools": []}
    if message["method"] == "initialize":
        protocol = message["params"]["protocolVersion"]
        result = {"protocolVersion": protocol, "capabilities": {}, "serverInfo": {"name": "x", "version": "1"}}
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("what", ["text", "lists in notifications", "lists in responses", "objects", "requests"])
def test_a_server_that_never_stops_writing_holds_nobody_up(what: str) -> None:
    async def scene(connection: Connection) -> None:
        loop, lags = asyncio.get_running_loop(), []

        async def feel() -> None:
            while True:
                begun = loop.time()
                await asyncio.sleep(0.005)
                lags.append(loop.time() - begun)

        await connection.listing()
        feeling = asyncio.create_task(feel())
        assert await failure(connection, what, 2) == "Test did not answer within 2 s"
        feeling.cancel()
        assert max(lags) < 1  # it was two to ten seconds

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    play(scene, args=("-I", "-c", SPILLS), cwd=None)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 * 1024


@pytest.mark.slow
def test_a_server_that_never_reads_or_answers_costs_its_calls_alone() -> None:
    async def scene(connection: Connection) -> None:
        slow, echo = await asyncio.gather(failure(connection, "hang", 0.2), connection.call("echo", {"text": "beside"}))
        assert (slow, echo.text) == ("Test did not answer within 0.2 s", "beside")
        assert (await connection.call("deaf", {})).text == "I do not read any more"
        told = await asyncio.gather(*(failure(connection, "echo", 0.3, text="x" * 100_000) for _ in range(80)))
        assert set(told) == {"Test did not answer within 0.3 s"}

    play(scene)


@pytest.mark.slow
def test_the_declared_limit_of_a_call_holds() -> None:
    async def scene(connection: Connection) -> None:
        assert await failure(connection, "hang") == "Test did not answer within 0.25 s"

    play(scene, timeout_seconds=0.25)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_death_fails_the_calls_that_wait_and_the_next_call_starts_it_once_more(kind: str) -> None:
    async def scene(connection: Connection) -> None:
        assert (await connection.call("count", {})).text == "1"
        waiting = [asyncio.create_task(failure(connection, "hang")) for _ in range(3)]
        assert (await connection.call("count", {})).text == "2"
        told = {await failure(connection, "die"), *await asyncio.gather(*waiting)}
        assert told == {"Test ended before it had answered; the next call starts it again"}
        again = await asyncio.gather(*(connection.call("count", {}) for _ in range(5)))
        assert sorted(result.text for result in again) == ["1", "2", "3", "4", "5"]
        assert connection.starts == 2
        assert await failure(connection, "die") == "Test ended before it had answered; it is not started again"
        for _ in range(2):
            assert await failure(connection, "echo") == "MCP server Test ended twice: it is not started again"
        with pytest.raises(McpServerError, match="ended twice"):
            await connection.listing()
        assert connection.starts == 2

    play(scene, kind=kind)


def test_a_server_that_dies_between_calls_is_started_at_the_next(tmp_path: Path) -> None:
    log = tmp_path / "log"

    async def scene(connection: Connection) -> None:
        assert (await connection.call("count", {})).text == "1"
        os.kill(int(lines_of(log)[0].split()[2]), 9)
        for _ in range(2):  # its death may not be seen before a call is sent, which then fails
            with suppress(McpCallError):
                assert (await connection.call("count", {})).text in "12"
        assert connection.starts == 2

    play(scene, "--log", str(log))


def test_a_refusal_contains_the_message_of_the_server() -> None:
    async def scene(connection: Connection) -> None:
        assert await failure(connection, "no_such_tool") == "Unknown tool: no_such_tool"
        malformed = "Test returned an invalid result: content: Field required"
        assert await failure(connection, "malformed") == malformed
        assert "surrogates" in await failure(connection, "echo", text="half a character: \ud83d")
        assert (await connection.call("echo", {"text": "still there"})).text == "still there"
        assert connection.starts == 1

    play(scene)


def test_requests_of_a_server_to_its_client_are_refused_except_ping() -> None:
    async def scene(connection: Connection) -> None:
        answers = json.loads((await connection.call("ask", {})).text)
        assert answers.pop("ping") == {"result": {}}
        assert {answer["error"]["code"] for answer in answers.values()} == {-32600}
        assert set(answers) == {"roots/list", "sampling/createMessage", "elicitation/create"}

    play(scene)


def test_a_cancelled_call_is_cancelled_at_the_server(tmp_path: Path) -> None:
    log = tmp_path / "log"

    async def scene(connection: Connection) -> None:
        await connection.listing()
        call = asyncio.create_task(connection.call("hang", {}))
        await logged(log, "call hang")
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await logged(log, "notifications/cancelled")
        assert (await connection.call("echo", {"text": "still there"})).text == "still there"

    play(scene, "--log", str(log))


@pytest.mark.parametrize("kind", KINDS[:2])
def test_closing_fails_the_calls_that_wait_and_leaves_no_process(kind: str) -> None:
    async def scene(connection: Connection) -> None:
        waiting = [asyncio.create_task(failure(connection, "hang")) for _ in range(3)]
        await connection.call("echo", {})
        await connection.close()
        assert {await task for task in waiting} == {"Test was closed before it had answered"}
        await connection.close()
        assert connection.version == "1.0"
        assert await failure(connection, "echo") == "MCP server Test was closed"

    play(scene, kind=kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_may_end_by_itself_before_it_is_ended(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_agentbench.tools.mcp.session._GRACE_SECONDS", 20)  # a busy machine takes longer

    async def main() -> None:
        server = declared_server(cwd=None, args=("-I", "-c", AT_ITS_END))
        async with sandbox_for(server, kind) as sandbox:
            connection = Connection("Test", server, lambda: launch_server(server, sandbox), environ=os.environ)
            assert (await connection.listing()).tools == ()
            await connection.close()
            assert (await sandbox.get("kept", 100)) == b"state"

    asyncio.run(main())


@pytest.mark.slow
def test_servers_that_do_not_end_by_themselves_are_ended_side_by_side() -> None:
    async def scene(first: Connection) -> None:
        async with AsyncExitStack() as stack:
            server = declared_server("--stays")
            others = [await stack.enter_async_context(connected(server)) for _ in range(7)]
            await asyncio.gather(*(each.listing() for each in (first, *others)))
            begun = asyncio.get_running_loop().time()
            await asyncio.gather(*(each.close() for each in (first, *others)))
            assert asyncio.get_running_loop().time() - begun < 2

    play(scene, "--stays")


LEAKS = """
import asyncio, os, pathlib, sys
from support.mcp_connections import connected, declared_server, failure

async def life(kind):
    async with connected(declared_server(), kind) as connection:
        await connection.listing()
        await asyncio.gather(failure(connection, "hang"), failure(connection, "die"))
        await failure(connection, "hang", 0.05)
        waiting = asyncio.create_task(failure(connection, "hang"))
        await connection.call("echo", {})
    await waiting

counts = []
for _ in range(4):
    asyncio.run(life(sys.argv[1]))
    counts.append(len(os.listdir("/proc/self/fd")))
children = pathlib.Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
print(len(set(counts[1:])), children)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS[:2])
def test_many_lives_leave_no_descriptor_process_or_warning(kind: str) -> None:
    command = [sys.executable, "-W", "error", "-c", LEAKS, kind]
    environment = {**os.environ, "PYTHONPATH": str(SERVER.parents[1])}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.stderr) == ("1 []\n", "")


def test_a_connection_that_nobody_used_starts_nothing(tmp_path: Path) -> None:
    log = tmp_path / "log"

    async def scene(connection: Connection) -> None:
        await connection.close()
        assert connection.starts == 0

    play(scene, "--log", str(log))
    assert lines_of(log) == []


def test_closing_in_the_middle_of_a_start_ends_it(tmp_path: Path) -> None:
    log = tmp_path / "log"

    async def scene(connection: Connection) -> None:
        call = asyncio.create_task(failure(connection, "echo"))
        await logged(log, "start")
        await connection.close()
        assert await call == "MCP server Test was closed before it had started"

    play(scene, "--start-seconds", "60", "--log", str(log))
    pid = int(lines_of(log)[0].split()[2])
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.slow
def test_a_cancelled_wait_for_a_start_does_not_end_it_for_others(tmp_path: Path) -> None:
    log = tmp_path / "log"

    async def scene(connection: Connection) -> None:
        first = asyncio.create_task(connection.call("echo", {"text": "first"}))
        second = asyncio.create_task(connection.call("echo", {"text": "second"}))
        await logged(log, "start")
        first.cancel()
        assert (await second).text == "second"
        assert connection.starts == 1

    play(scene, "--start-seconds", "0.2", "--log", str(log))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_server_that_fails_to_start_is_reported_with_its_last_output_and_no_key(kind: str) -> None:
    async def scene(connection: Connection) -> None:
        with pytest.raises(McpServerError) as raised:
            await connection.listing()
        told = str(raised.value)
        assert told.startswith("MCP server Test: it ended before it answered; the end of its stderr:\n")
        assert told.endswith("cannot log in with [redacted]")
        assert len(told) < 5000
        assert "cannot log in" in await failure(connection, "echo")
        assert await failure(connection, "echo") == "MCP server Test ended twice: it is not started again"
        assert connection.starts == 2

    said = "x" * 10_000 + "\ncannot log in with hunter2-hunter2\n"
    play(scene, "--die-at-start", "--say", said, kind=kind, env={"LOGIN": "hunter2-hunter2"})


@pytest.mark.parametrize("after", [4000, 16_300])
def test_no_part_of_a_key_is_left_where_last_words_are_cut(after: int) -> None:
    key = "hunter2-" * 40

    async def scene(connection: Connection) -> None:
        with pytest.raises(McpServerError) as raised:
            await connection.listing()
        assert str(raised.value).rpartition("stderr:\n")[2].removeprefix("[redacted]").strip("z") == ""
        assert len(str(raised.value)) < 5000

    play(scene, "--die-at-start", "--say", key + "z" * after, env={"LOGIN": key})


@pytest.mark.parametrize(
    ("declared", "reason"),
    [
        ({"command": "no-such-program"}, "the program no-such-program is not installed"),
        ({"cwd": "/no-such-folder"}, "its folder /no-such-folder does not exist"),
        ({"env_from": ("NO_SUCH_VARIABLE",)}, "the variable NO_SUCH_VARIABLE is not set"),
    ],
)
def test_a_server_that_cannot_start_here_is_unavailable_with_the_reason(declared: dict[str, Any], reason: str) -> None:
    async def scene(connection: Connection) -> None:
        with pytest.raises(UnavailableError, match=f"^MCP server Test: {reason}$"):
            await connection.listing()
        assert await failure(connection, "echo") == f"MCP server Test: {reason}"
        assert connection.starts == 0

    play(scene, **declared)


def test_lists_are_complete_even_if_single_tools_are_malformed(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(connection: Connection) -> None:
        tools = {tool.name: tool for tool in (await connection.listing()).tools}
        assert tools["wrong_type"].input_schema == {"type": "no such type"}
        assert tools["remote"].input_schema == {"$ref": "http://127.0.0.1:9/schema.json"}
        assert tools["recursive"].input_schema == {"$ref": "#"}
        assert tools["unschooled"].input_schema == {}
        assert tools["echo"].description == "Tool echo."
        assert set(ODD_NAMES) < set(tools)
        for name in ODD_NAMES:
            assert (await connection.call(name, {"text": name})).text == name
        assert (await connection.call("wrong_type", {})).text == ""

    play(scene, "--broken-schemas", "--no-schema", "--odd-names", "--duplicates")
    assert "MCP server Test lists 'echo' twice: the first is used" in caplog.text
    assert "without a name" in caplog.text


@pytest.mark.slow
def test_lists_of_many_pages_come_whole() -> None:
    async def scene(connection: Connection) -> None:
        names = [tool.name for tool in (await connection.listing()).tools]
        assert names[-1] == "tool_300"
        assert len(names) == len(set(names)) > 300

    play(scene, "--tools", "300", "--page", "7")


@pytest.mark.slow
@pytest.mark.parametrize("options", [("--endless",), ("--tools", "10001")])
def test_a_list_without_an_end_is_refused(options: tuple[str, ...]) -> None:
    async def scene(connection: Connection) -> None:
        with pytest.raises(McpServerError, match="its list of tools has no end, or more than 10,000 tools"):
            await connection.listing()

    play(scene, *options)


def test_a_failed_listing_has_the_message_of_the_server() -> None:
    async def scene(connection: Connection) -> None:
        with pytest.raises(McpServerError, match="MCP server Test: it lists no tools: Method not found: tools/list"):
            await connection.listing()
        assert (await connection.call("echo", {"text": "works"})).text == "works"

    play(scene, "--no-list")


def test_a_server_that_dies_during_a_listing_is_reported_with_its_last_output() -> None:
    async def scene(connection: Connection) -> None:
        with pytest.raises(McpServerError) as raised:
            await connection.listing()
        assert str(raised.value) == (
            "MCP server Test: it lists no tools: it ended; the end of its stderr:\nno database at all"
        )

    play(scene, "--die-at-list", "--say", "no database at all")


@pytest.mark.parametrize("protocol", ["2024-11-05", "2025-03-26", "2025-06-18", ""])
def test_older_protocols_are_spoken(protocol: str) -> None:
    async def scene(connection: Connection) -> None:
        listing = await connection.listing()
        assert listing.tools
        assert listing.protocol == (protocol or "2025-11-25")
        assert (await connection.call("echo", {"text": protocol})).text == protocol

    play(scene, "--protocol", protocol)


@pytest.mark.slow
def test_an_unknown_protocol_is_refused() -> None:
    async def scene(connection: Connection) -> None:
        with pytest.raises(McpServerError, match="Unsupported protocol version from the server: 1999-01-01"):
            await connection.listing()

    play(scene, "--protocol", "1999-01-01")
