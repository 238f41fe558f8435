"""The fixture `agentbench_mcp_servers`, overridden in a conftest.py."""

from __future__ import annotations

import re

import pytest
from support.mcp_projects import McpBench

HTTP = """
import json, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
import pytest

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def do_GET(self):
        self.answer(405)

    do_DELETE = do_GET

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "id" not in asked:
            self.answer(202)
            return
        result = self.result(asked["method"], asked.get("params") or {})
        error = {"error": {"code": -32601, "message": "no such method"}}
        self.answer(200, {"jsonrpc": "2.0", "id": asked["id"], **({"result": result} if result else error)})

    def result(self, method, params):
        if method == "initialize":
            served = {"name": "web", "version": "1"}
            return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": served}
        if method == "tools/list":
            return {"tools": [{"name": "who", "inputSchema": {"type": "object"}}]}
        if method == "tools/call":
            return {"content": [{"type": "text", "text": self.headers["X-Key"]}]}

    def answer(self, status, body=None):
        content = json.dumps(body).encode() if body else b""
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

@pytest.fixture(scope="session")
def agentbench_mcp_servers():
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield {"Web": {"url": f"http://127.0.0.1:{server.server_port}/mcp", "headers": {"X-Key": "${WHO}"}}}
        server.shutdown()
        thread.join()
"""
"""A conftest.py that serves a tool over HTTP, which tells the value of a header."""


@pytest.fixture
def mcp(bench) -> McpBench:
    return McpBench(bench)


def declares(value: str, scope: str = "session") -> str:
    return f"import pytest\n@pytest.fixture(scope='{scope}')\ndef agentbench_mcp_servers():\n    return {value}\n"


@pytest.fixture
def serves(mcp: McpBench, monkeypatch: pytest.MonkeyPatch) -> McpBench:
    monkeypatch.setenv("WHO", "me")
    mcp.bench.agent(HTTP)
    mcp.case("asks", ("Web__who", {}))
    return mcp


@pytest.mark.slow
def test_a_server_that_a_conftest_started_serves_every_case(serves: McpBench) -> None:
    finished = serves.run()

    assert finished.exit == 0, finished.text
    assert serves.results(finished, "asks") == [("me", False)]


@pytest.mark.slow
def test_its_port_makes_a_run_no_other_one(serves: McpBench) -> None:
    serves.run()

    assert serves.run().runs["asks[demo]"]["reused"]


@pytest.mark.slow
def test_a_hand_written_test_has_it_too(serves: McpBench) -> None:
    serves.bench.write(
        "cases/test_by_hand.py",
        """
import pytest

@pytest.mark.agentbench("asks")
def test_it(agentbench_run):
    [call] = agentbench_run.artifact.tool_calls
    assert call.name == "Web:who" and call.offered
""",
    )

    finished = serves.run()

    assert finished.outcomes == {"asks[demo]": "passed", "test_it[demo]": "passed"}, finished.text


@pytest.mark.slow
@pytest.mark.parametrize("scope", ["session", "function"])
def test_it_holds_for_the_cases_below_its_conftest(mcp: McpBench, scope: str) -> None:
    mcp.bench.agent(declares(repr({"A": mcp.server("upper")})))
    mcp.bench.agent(declares(repr({"B": mcp.server("lower")}), scope), folder="cases/below")
    mcp.case("above", ("A__add", {"a": 1, "b": 1}), ("B__add", {"a": 1, "b": 1}))
    mcp.case("one", ("A__add", {"a": 1, "b": 1}), ("B__add", {"a": 1, "b": 1}), folder="cases/below")
    mcp.case("two", ("B__add", {"a": 1, "b": 1}), folder="cases/below")

    finished = mcp.run()

    failed = {case_id: [error for _, error in mcp.results(finished, case_id)] for case_id in ("above", "one", "two")}
    assert failed == {"above": [False, True], "one": [True, False], "two": [False]}


WRONG = {
    "['A']": r"agentbench_mcp_servers: its value: Input should be a valid dictionary",
    "{'A': {'comand': 'x'}}": r"agentbench_mcp_servers: A\.comand: Extra inputs are not permitted",
    "{'A': {}}": r"agentbench_mcp_servers: A: .*found neither 'command' nor 'url', expected one of them, or both",
    "{'A:B': {'command': 'x'}}": r"agentbench_mcp_servers: A:B.*without ':'",
    "{'A': {'command': 'x', 'cwd': 'tools'}}": r"A\.cwd: found 'tools', expected an absolute path",
}


@pytest.mark.parametrize("value", WRONG)
def test_a_wrong_value_is_said(mcp: McpBench, value: str) -> None:
    mcp.bench.agent(declares(value))
    mcp.case("asks")

    finished = mcp.run()

    assert finished.outcomes == {"asks[demo]": "error"}
    assert re.search(WRONG[value], finished.text), finished.text
