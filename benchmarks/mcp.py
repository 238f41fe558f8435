"""What MCP servers cost: `python benchmarks/mcp.py [--quick] [--only NAME] [--data FOLDER]`.

The sides of a scenario take turns over several rounds and the best of each counts, for other programs only ever add to
a cost. The server is that of the sample cases. `--data` names a folder with `schema_mutation_oracle.sample.jsonl` and
`tool_catalogue_live_252.json`: its tools and arguments are validated then, in place of the server's.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from tables import Measured, Section, print_table

SERVER = Path(__file__).parents[1] / "cases" / "mcp" / "server.py"
CALLS, CONCURRENCY = 10, 20
ARGUMENTS = {"station": "BSL", "to": "ZRH"}
COUNTED = """
import os, runpy, sys
with open(os.environ["STARTS"], "a") as file:
    file.write(sys.argv[1] + "\\n")
sys.argv[:2] = [os.environ["SERVER"], "timetable"]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""The server, after it has written down that it was started and by which name."""

BARE = """
import asyncio, sys, time
from mcp import Client, StdioServerParameters

async def main(server, tasks, calls, concurrency):
    free = asyncio.Semaphore(concurrency)

    async def task():
        async with free, Client(StdioServerParameters(command=sys.executable, args=[server, "timetable"])) as client:
            for _ in range(calls):
                result = await client.call_tool("departures", {"station": "BSL", "to": "ZRH"})
                assert not result.is_error

    begun = time.perf_counter()
    await asyncio.gather(*(task() for _ in range(tasks)))
    print(time.perf_counter() - begun)

asyncio.run(main(sys.argv[1], *map(int, sys.argv[2:])))
"""


CONNECTED = """
import asyncio, os, sys, time
import mcp
from pytest_agentbench.records.case import McpServer, SandboxSettings
from pytest_agentbench.tools.mcp.connection import Connection
from pytest_agentbench.tools.mcp.launching import launch_server as launch
from pytest_agentbench.workspaces.sandboxes.choice import Sandboxes
from pytest_agentbench.workspaces.sessions import Workspaces

async def main(server, tasks, calls, concurrency):
    free, workspaces = asyncio.Semaphore(concurrency), Workspaces()
    sandboxes = Sandboxes(workspaces)
    spec = sandboxes.spec(SandboxSettings(type="local"))
    declared = McpServer(command=sys.executable, args=(server, "timetable"))

    async def task():
        async with free:
            sandbox = await sandboxes.start(spec, sandboxes.workspace(spec, "case"))
            connection = Connection("Timetable", declared, lambda: launch(declared, sandbox), environ=os.environ)
            for _ in range(calls):
                result = await connection.call("departures", {"station": "BSL", "to": "ZRH"})
                assert not result.is_error
            await connection.close()
            await sandbox.stop()

    begun = time.perf_counter()
    await asyncio.gather(*(task() for _ in range(tasks)))
    print(time.perf_counter() - begun)
    await sandboxes.close()
    workspaces.close()

asyncio.run(main(sys.argv[1], *map(int, sys.argv[2:])))
"""

ENDPOINT = """
import asyncio, json, os, sys, time
from statistics import median
from urllib.parse import urlsplit

from pytest_agentbench.config.sections import RunnerSettings
from pytest_agentbench.models.client import Endpoints
from pytest_agentbench.records.case import McpServer, Model, SandboxSettings
from pytest_agentbench.runners.base import Recorder
from pytest_agentbench.runners.chat import Requests
from pytest_agentbench.runners.gateway.gateway import Gateway
from pytest_agentbench.runners.gateway.listener import Listener
from pytest_agentbench.runners.gateway.mcp_names import ServedTools
from pytest_agentbench.tools.base import ToolContext
from pytest_agentbench.tools.mcp.connection import Connection
from pytest_agentbench.tools.mcp.launching import launch_server as launch
from pytest_agentbench.tools.mcp.servers import list_servers
from pytest_agentbench.tools.toolbox import Toolbox
from pytest_agentbench.workspaces.sandboxes.choice import Sandboxes
from pytest_agentbench.workspaces.sessions import Workspaces

ARGUMENTS = {"station": "BSL", "to": "ZRH"}

async def ended():
    pass

async def post(url, token):
    # As little of a client as there can be: an agent's own is not measured
    params = {"name": "departures", "arguments": ARGUMENTS}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    head = f"POST /r/{token}/mcp/Timetable HTTP/1.1\\r\\nhost: a\\r\\ncontent-type: application/json\\r\\n"
    reader, writer = await asyncio.open_connection(urlsplit(url).hostname, urlsplit(url).port)
    writer.write(f"{head}content-length: {len(body)}\\r\\n\\r\\n".encode() + body)
    reply = await reader.read(-1)
    writer.close()
    assert b'"isError": false' in reply, reply

async def main(server, calls):
    workspaces = Workspaces()
    sandboxes = Sandboxes(workspaces)
    spec = sandboxes.spec(SandboxSettings(type="local"))
    declared = McpServer(command=sys.executable, args=(server, "timetable"))
    sandbox = await sandboxes.start(spec, sandboxes.workspace(spec, "case"))
    connection = Connection("Timetable", declared, lambda: launch(declared, sandbox), environ=os.environ)
    servers = await list_servers({"Timetable": connection}, ended)
    model, trace = Model(model_id="demo", requested_model="demo", base_url="demo", api_key_env=None), Recorder()
    served = ServedTools(servers.as_tools(), servers.names)
    requests = Requests("case", Endpoints().client(model), RunnerSettings(), trace)
    gateway = Gateway(requests, model, trace, {}, served=served)
    context = ToolContext(workspace=lambda: None, sandbox=ended, needs_sandbox=lambda: None)
    gateway.serve(served, Toolbox(servers.as_tools(), context))
    listener = Listener(asyncio.get_running_loop())
    token = listener.add(gateway)
    direct, through = [], []
    with gateway.turn("Go."):
        for number in range(calls + 20):
            begun = time.perf_counter()
            await connection.call("departures", ARGUMENTS)
            between = time.perf_counter()
            await post(listener.url, token)
            if number >= 20:
                direct.append(between - begun)
                through.append(time.perf_counter() - between)
    await listener.close()
    await connection.close()
    await sandbox.stop()
    await sandboxes.close()
    workspaces.close()
    print(json.dumps([median(direct), median(through)]))

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""

AGENT = """
import pytest

async def agent(case, context):
    tools = context.toolbox()
    for _ in range({calls}):
        output = await tools.call("Timetable:departures", {arguments})
        assert not output.is_error
    return "Done."

@pytest.fixture(scope="session")
def agentbench_runner():
    return agent
"""


def main() -> None:
    """Measures, and prints the table of docs/performance.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer tasks and rounds: for a look, not for the page")
    parser.add_argument("--only", choices=["starts", "calls", "endpoint", "schemas"])
    parser.add_argument("--data", type=Path, metavar="FOLDER")
    given = parser.parse_args()
    tasks, rounds = (20, 1) if given.quick else (200, 3)
    sections = {
        "starts": Section(starts),
        "calls": Section(lambda: calls(tasks, rounds)),
        "endpoint": Section(lambda: endpoint(10 * tasks // 2)),
        "schemas": Section(lambda: schemas(4_000, given.data)),
    }
    print_table(sections, given.only, more="more per call")


def starts() -> Iterator[Measured]:
    """Processes of a run that calls one of eleven servers, once their catalogues are known."""
    names = ["Timetable", *(f"Distraction {number}" for number in range(10))]
    with project(1, calls=1) as folder:
        (folder / "counted.py").write_text(COUNTED)
        env = {"STARTS": str(folder / "starts"), "SERVER": str(SERVER)}
        declare(folder, {name: {"args": [str(folder / "counted.py"), name], "env": env} for name in names})
        session(folder)
        first = (folder / "starts").read_text().splitlines()
        (folder / "starts").unlink()
        session(folder)
        second = (folder / "starts").read_text().splitlines()
    yield Measured(
        "a run with 1 server that is called and 10 that are not, catalogues cached: processes",
        str(len(second)),
        f"{len(first)} (first session)",
        "",
        "1",
        second == ["Timetable"] and sorted(set(first)) == sorted(names),
    )


def calls(tasks: int, rounds: int) -> Iterator[Measured]:
    """Tasks with a process of the server each: a run's connections and a whole session, against `mcp`'s bare client."""
    numbers = [str(SERVER), *map(str, (tasks, CALLS, CONCURRENCY))]
    bare, connected, whole = [], [], []
    with project(tasks, calls=CALLS) as folder:
        declare(folder, {"Timetable": {"args": [str(SERVER), "timetable"]}})
        session(folder)  # writes bytecode, as an installation does, and the catalogue
        for _ in range(rounds):
            bare.append(float(printed([sys.executable, "-c", BARE, *numbers], folder)))
            connected.append(float(printed([sys.executable, "-c", CONNECTED, *numbers], folder)))
            whole.append(session(folder))
    what, peer = f"{tasks} tasks with {CALLS} calls, {CONCURRENCY} at a time", f"{min(bare):.2f} s (`mcp.Client`)"
    more = 1000 * (min(connected) - min(bare)) / (tasks * CALLS)
    yield Measured(what, f"{min(connected):.2f} s", peer, f"{more:.1f} ms", "< 3 ms", more < 3)
    more = 1000 * (min(whole) - min(bare)) / (tasks * CALLS)
    yield Measured(f"{what}, a whole session of pytest", f"{min(whole):.2f} s", peer, f"{more:.1f} ms", "", True)


def endpoint(count: int) -> Iterator[Measured]:
    """Calls of an agent program through its run's MCP endpoint, and directly, by turns."""
    with tempfile.TemporaryDirectory(prefix="mcp-benchmark-") as name:
        output = printed([sys.executable, "-c", ENDPOINT, str(SERVER), str(count)], Path(name))
    direct, through = (1000 * seconds for seconds in json.loads(output))
    more = through - direct
    what, peer = f"{count:,} calls through a run's MCP endpoint, median", f"{direct:.2f} ms (directly)"
    yield Measured(what, f"{through:.2f} ms", peer, f"{more:.2f} ms", "< 2 ms", more < 2)


def schemas(count: int, data: Path | None) -> Iterator[Measured]:
    """Arguments against the schemas of their tools, which are compiled in that time too."""
    from pytest_agentbench.bounded.schemas import bounded_schema

    asked = list(islice(cycle(_of_data(data) if data is not None else _of_server()), count))
    begun = time.perf_counter()
    valid = sum(bounded_schema(schema).accepts(arguments) for schema, arguments in asked)
    took = time.perf_counter() - begun
    tools = len({json.dumps(schema) for schema, _ in asked})
    yield Measured(
        f"{count:,} calls validated ({valid:,} valid) by the schemas of {tools} tools",
        f"{took:.2f} s",
        "",
        "",
        "< 1 s",
        took < 1,
    )


def _of_data(folder: Path) -> list[tuple[dict[str, Any], Any]]:
    catalogue = json.loads((folder / "tool_catalogue_live_252.json").read_text())
    rows = (folder / "schema_mutation_oracle.sample.jsonl").read_text().splitlines()
    return [(catalogue[row["tool"]]["input_schema"], row["parameters"]) for row in map(json.loads, rows)]


def _of_server() -> list[tuple[dict[str, Any], Any]]:
    listing = '{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}\n'
    done = subprocess.run(
        [sys.executable, str(SERVER), "timetable"], input=listing, stdout=subprocess.PIPE, text=True, check=True
    )
    arguments = ({"name": "Bern"}, ARGUMENTS, {"train": "IC 3", "passengers": 0})
    return [(tool["inputSchema"], each) for tool in json.loads(done.stdout)["result"]["tools"] for each in arguments]


@contextmanager
def project(cases: int, *, calls: int) -> Iterator[Path]:
    """Cases whose agent calls a tool of the server Timetable, which is to be declared."""
    with tempfile.TemporaryDirectory(prefix="mcp-benchmark-") as name:
        folder = Path(name)
        (folder / "conftest.py").write_text(AGENT.format(calls=calls, arguments=ARGUMENTS))
        checks = [{"check_id": "done", "declarative": {"kind": "regex_match", "pattern": "^Done"}}]
        for number in range(cases):
            case = {"case_id": f"case-{number}", "title": "Calls", "deterministic_checks": checks}
            case |= {"runner": {"type": "llm_probe"}}
            case |= {"input": {"messages": [{"role": "user", "content": "Go."}]}}
            write(folder / f"cases/case-{number}/test.yaml", case)
        yield folder


def declare(folder: Path, servers: Mapping[str, dict[str, Any]]) -> None:
    """Programs in Python that every run has, on this machine without isolation."""
    python = {"command": sys.executable, "sandbox": "local"}
    profile = {"run_profile_id": "many", "title": "Many", "execution_policy": {"max_concurrency": CONCURRENCY}}
    profile |= {"mcp_servers": {name: {**python, **server} for name, server in servers.items()}}
    write(folder / "cases/run_profiles/many.yaml", profile)


def write(path: Path, content: Mapping[str, Any]) -> None:
    """A YAML file, in JSON's form."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"schema_version": 1, **content}))


def session(folder: Path) -> float:
    """Seconds of a session that runs all cases, from the start of its process to its end."""
    begun = time.perf_counter()
    printed([sys.executable, "-m", "pytest", "--agentbench-run-profile=many", "--agentbench-no-reuse", "-q"], folder)
    return time.perf_counter() - begun


def printed(command: list[str], folder: Path) -> str:
    """What a process writes that has to succeed."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    env["PYTHONPYCACHEPREFIX"] = str(folder / "bytecode")
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


if __name__ == "__main__":
    main()
