"""A server at an address: calls, limits, headers, and what becomes of it when the server goes away and comes back."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path

import pytest
from support.mcp_connections import connected, failure

from pytest_agentbench.errors import McpCallError, McpServerError
from pytest_agentbench.records.case import McpServer
from pytest_agentbench.tools.mcp.connection import Connection

pytestmark = [
    pytest.mark.slow,
    # anyio 4.14 drops the socket of a connection that is cancelled at its end, as a stream of events may be at `close`
    pytest.mark.filterwarnings(
        r"ignore:Exception ignored in. <(socket|function _SelectorTransport):pytest.PytestUnraisableExceptionWarning"
    ),
]
PROGRAM = Path(__file__).parents[1] / "support" / "mcp_http_server.py"
LOST = (
    "Test ended before it had answered; the next call starts it again",
    "SSE stream ended without a response",
)
FORMS = [(), ("sessions",), ("sessions", "json")]


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def serving(port: int, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """The server, ready, until the end; it may be killed before."""
    process = subprocess.Popen([sys.executable, str(PROGRAM), str(port), *options])
    try:
        deadline = time.monotonic() + 30
        while True:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        yield process
    finally:
        process.kill()
        process.wait()


def talk(
    port: int, scene: Callable[[Connection], Awaitable[None]], environ: dict[str, str] | None = None, **headers: str
) -> None:
    async def main() -> None:
        server = McpServer(url=f"http://127.0.0.1:{port}/mcp", headers=headers)
        connection = Connection("Test", server, None, environ=environ or {})
        try:
            await scene(connection)
        finally:
            await connection.close()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


@pytest.mark.parametrize("options", FORMS)
def test_lists_and_calls_side_by_side(options: tuple[str, ...], caplog: pytest.LogCaptureFixture) -> None:
    # Before 2.3 the library has a bound of its own for events
    reads_long_events = tuple(map(int, version("mcp").split(".")[:2])) >= (2, 3)

    async def scene(connection: Connection) -> None:
        listing = await connection.listing()
        assert (listing.server_name, listing.server_version) == ("over-http", "2.0")
        assert [tool.tool_id for tool in listing.tools][:2] == ["Test:add", "Test:slow"]
        sums = await asyncio.gather(*(connection.call("add", {"a": number, "b": 1}) for number in range(30)))
        assert [result.text for result in sums] == [str(number + 1) for number in range(30)]
        wrong = await connection.call("add", {"a": "one", "b": 1})
        assert wrong.is_error
        unknown = await connection.call("no_such_tool", {})
        assert (unknown.text, unknown.is_error) == ("Unknown tool: no_such_tool", True)
        assert await failure(connection, "slow", 0.2, delay=30) == "Test did not answer within 0.2 s"
        if reads_long_events or options != ("sessions",):
            assert len((await connection.call("huge", {"megabytes": 5})).text) == 5 * 2**20
        else:
            assert "install mcp>=2.3" in await failure(connection, "huge", megabytes=5)
        told = await failure(connection, "huge", megabytes=17)
        assert any(text in told for text in ("longer than 16 MiB", "exceeded the 16777216 byte limit", "mcp>=2.3"))
        assert (await connection.call("add", {"a": 1, "b": 2})).text == "3"
        assert connection.starts == 0

    port = free_port()
    with serving(port, *options):
        talk(port, scene)
    assert "xxxxxxxx" not in caplog.text


def test_headers_have_the_values_of_variables() -> None:
    async def scene(connection: Connection) -> None:
        assert (await connection.call("authorization", {})).text == "Bearer sk-of-the-weather"

    port = free_port()
    with serving(port):
        talk(port, scene, {"WEATHER_KEY": "sk-of-the-weather"}, Authorization="Bearer ${WEATHER_KEY}")


@pytest.mark.parametrize("options", FORMS)
def test_a_server_that_goes_away_fails_what_waits_and_is_found_again(options: tuple[str, ...]) -> None:
    port = free_port()

    async def scene(connection: Connection) -> None:
        with serving(port, *options) as first:
            waiting = [asyncio.create_task(failure(connection, "slow", delay=60)) for _ in range(3)]
            assert (await connection.call("slow", {"delay": 0.1})).text == "done"
            first.kill()
            begun = time.monotonic()
            assert all([(await task).startswith(LOST) for task in waiting])
            assert time.monotonic() - begun < 10
        with serving(port, *options):
            with suppress(McpCallError):  # a session that the new server does not know
                assert (await connection.call("add", {"a": 1, "b": 2})).text == "3"
            for number in range(3):
                assert (await connection.call("add", {"a": number, "b": 2})).text == str(number + 2)

    talk(port, scene)


def test_nobody_at_the_address() -> None:
    async def scene(connection: Connection) -> None:
        with pytest.raises(McpServerError, match=r"MCP server Test: .*connect"):
            await connection.listing()
        assert "connect" in await failure(connection, "add")
        assert await failure(connection, "add") == "MCP server Test ended twice: it is not started again"

    talk(free_port(), scene)


def test_a_server_that_refuses_the_key() -> None:
    async def scene(connection: Connection) -> None:
        with pytest.raises(McpServerError, match=r"it refuses the request \(HTTP 401\): see 'headers'"):
            await connection.listing()

    port = free_port()
    with serving(port, "locked"):
        talk(port, scene)


def test_a_program_with_an_address_is_started_once_and_ended() -> None:
    port = free_port()
    server = McpServer(
        command=sys.executable,
        args=(str(PROGRAM), str(port)),
        url=f"http://127.0.0.1:{port}/mcp",
        scope="session",
    )

    async def main() -> None:
        async with connected(server) as connection:
            sums = await asyncio.gather(*(connection.call("add", {"a": number, "b": 1}) for number in range(5)))
            assert [result.text for result in sums] == ["1", "2", "3", "4", "5"]
            assert connection.starts == 1
        with pytest.raises(OSError, match="refused"), socket.create_connection(("127.0.0.1", port)):
            pass

    asyncio.run(main())


def test_a_program_with_an_address_that_ends_at_once_is_reported_with_its_last_output() -> None:
    port = free_port()
    program = "import sys; sys.exit('the port is taken')"
    server = McpServer(command="python3", args=("-c", program), url=f"http://127.0.0.1:{port}/mcp", scope="session")

    async def main() -> None:
        async with connected(server) as connection:
            with pytest.raises(McpServerError) as raised:
                await connection.listing()
            expected = "MCP server Test: its program has ended; the end of its stderr:\nthe port is taken"
            assert str(raised.value) == expected

    asyncio.run(main())
