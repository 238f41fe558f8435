"""The published MCP servers that `.ci/full` installs, and the results of a client's calls to each of them.

`python tests/support/published_servers.py` prints the table. AGENTBENCH_TEST_PYTHON_SERVERS names the virtual
environment with those of PyPI, AGENTBENCH_TEST_NPM_SERVERS the folder whose `node_modules` has those of npm.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import os
import select
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import pytest

from pytest_agentbench.errors import McpCallError
from pytest_agentbench.records.case import McpServer, SandboxSettings
from pytest_agentbench.tools.mcp.connection import Connection
from pytest_agentbench.tools.mcp.launching import launch_server, list_mounts
from pytest_agentbench.workspaces.sandboxes.choice import Sandboxes
from pytest_agentbench.workspaces.sessions import Workspaces
from pytest_agentbench.workspaces.template import fill_workspace
from pytest_agentbench.workspaces.workspace import WORKSPACE

SANDBOXES: tuple[Literal["local", "bubblewrap"], ...] = ("local", "bubblewrap")
_PYTHON, _NPM = "AGENTBENCH_TEST_PYTHON_SERVERS", "AGENTBENCH_TEST_NPM_SERVERS"
_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Published:
    """A server with its number of tools, a call with a part of its result, and a call that it refuses.

    `{workspace}` in the arguments stands for the run's workspace as the server sees it.
    """

    name: str
    kind: Literal["python", "npm"]
    tools: int
    call: tuple[str, dict[str, Any], str]
    refused: tuple[str, dict[str, Any]]
    args: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)

    @property
    def program(self) -> str:
        """Return a part of the command line."""
        return f"mcp_server_{self.name}" if self.kind == "python" else f"@modelcontextprotocol/server-{self.name}/"

    def server(self, workspace: str) -> McpServer:
        """Return the declaration for a run with that workspace. Raise KeyError if the server is not installed."""
        args, env = tuple(_filled(self.args, workspace)), _filled(self.env, workspace)
        if self.kind == "python":
            python = f"{os.environ[_PYTHON]}/bin/python"
            return McpServer(command=python, args=("-m", self.program, *args), env=env, cwd=os.environ[_PYTHON])
        program = f"node_modules/{self.program}dist/index.js"
        return McpServer(command="node", args=(program, *args), env=env, cwd=os.environ[_NPM])


THOUGHT = {"thought": "It works.", "thoughtNumber": 1, "totalThoughts": 1, "nextThoughtNeeded": False}
TOKYO = {"source_timezone": "Asia/Tokyo", "time": "12:00", "target_timezone": "Asia/Kolkata"}

PUBLISHED = (
    Published(
        "time",
        "python",
        2,
        ("convert_time", TOKYO, "08:30"),
        ("get_current_time", {"timezone": "Mars/Olympus"}),
        ("--local-timezone", "UTC"),
    ),
    Published(
        "git",
        "python",
        12,
        ("git_log", {"repo_path": "{workspace}"}, "The first commit"),
        ("git_show", {"repo_path": "{workspace}", "revision": "no-such-revision"}),
        env={"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"},
    ),
    Published("everything", "npm", 13, ("get-sum", {"a": 2, "b": 40}, "42"), ("get-sum", {"a": "two", "b": 40})),
    Published(
        "filesystem",
        "npm",
        14,
        ("list_directory", {"path": "{workspace}"}, "[FILE] notes.txt"),
        ("read_text_file", {"path": "/etc/passwd"}),
        ("{workspace}",),
    ),
    Published(
        "memory",
        "npm",
        9,
        ("read_graph", {}, "entities"),
        ("add_observations", {"observations": [{"entityName": "Nobody", "contents": ["x"]}]}),
        env={"MEMORY_FILE_PATH": "{workspace}/memory.jsonl"},
    ),
    Published(
        "sequential-thinking", "npm", 1, ("sequentialthinking", THOUGHT, "thoughtNumber"), ("sequentialthinking", {})
    ),
)


def lacks(published: Published) -> str | None:
    """Return the reason why the server is not installed, or None."""
    variable = _PYTHON if published.kind == "python" else _NPM
    if variable not in os.environ:
        return f"{variable} is not set: .ci/full installs published MCP servers and sets it"
    return "there is no node" if published.kind == "npm" and shutil.which("node") is None else None


needs_published_servers = pytest.mark.skipif(
    any(map(lacks, PUBLISHED)), reason=next(filter(None, map(lacks, PUBLISHED)), "")
)


@functools.cache
def repository() -> Path:
    """Return a git repository with one commit, the template of workspaces for servers that read files."""
    folder = Path(tempfile.mkdtemp(prefix="published-servers-"))
    atexit.register(shutil.rmtree, folder)
    (folder / "notes.txt").write_text("42\n")
    author = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "commit.gpgsign=false"]
    for command in (["init", "-q"], ["add", "notes.txt"], [*author, "commit", "-q", "-m", "The first commit"]):
        subprocess.run(["git", "-C", str(folder), *command], check=True)
    return folder


@asynccontextmanager
async def connected(
    published: Published, kind: Literal["local", "bubblewrap"], environ: Mapping[str, str] = os.environ
) -> AsyncIterator[tuple[Connection, str]]:
    """Yield a connection to the server in a new sandbox, and the workspace as the server sees it."""
    workspaces = Workspaces()
    sandboxes = Sandboxes(workspaces)
    spec = sandboxes.spec(SandboxSettings(type=kind))
    workspace = sandboxes.workspace(spec, published.name)
    fill_workspace(workspace, repository())
    seen = WORKSPACE if kind == "bubblewrap" else str(workspace.path)
    server = published.server(seen)
    sandbox = await sandboxes.start(replace(spec, mounts=list_mounts(server, kind)), workspace)
    connection = Connection(published.name, server, lambda: launch_server(server, sandbox, environ), environ=environ)
    try:
        yield connection, seen
    finally:
        await connection.close()
        await sandbox.stop()
        await sandboxes.close()
        workspaces.close()


@dataclass(frozen=True, slots=True)
class Driven:
    """Results of the calls. Times are in seconds, texts as the agent reads them; `starts` counts the process's
    starts.
    """

    tools: int
    list_seconds: float
    call_seconds: float
    result: str
    refused: str
    time_out: str
    death: str
    result_after_restart: str
    restart_seconds: float
    starts: int


async def drive(published: Published, connection: Connection, workspace: str) -> Driven:
    """Return the results of a list, of a good, a refused, a hanging and a fatal call, and of one more call."""
    tool, arguments, _ = published.call
    arguments = _filled(arguments, workspace)
    begun = time.perf_counter()
    tools = len((await connection.listing()).tools)
    listed = time.perf_counter()
    result = await connection.call(tool, arguments)
    called = time.perf_counter()
    refused = await _failure(connection, published.refused[0], _filled(published.refused[1], workspace))
    with _stopped(_process(published.program)):
        time_out = await _failure(connection, tool, arguments, seconds=0.3)
    assert (await connection.call(tool, arguments)).text
    pid = _process(published.program)
    with _stopped(pid):
        pending = asyncio.create_task(_failure(connection, tool, arguments))
        await asyncio.to_thread(_wait_for_unread, pid)
        os.kill(pid, signal.SIGKILL)
        death = await pending
    killed = time.perf_counter()
    again = await connection.call(tool, arguments)
    return Driven(
        tools=tools,
        list_seconds=listed - begun,
        call_seconds=called - listed,
        result=result.text,
        refused=refused,
        time_out=time_out,
        death=death,
        result_after_restart=again.text,
        restart_seconds=time.perf_counter() - killed,
        starts=connection.starts,
    )


async def _failure(
    connection: Connection, tool: str, arguments: Mapping[str, Any], seconds: float | None = None
) -> str:
    """Return the text that an agent reads of a failed call. Raises AssertionError if the call succeeds."""
    try:
        result = await connection.call(tool, arguments, seconds)
    except McpCallError as error:
        return str(error)
    assert result.is_error, result.text
    return result.text


def _filled(given: Any, workspace: str) -> Any:
    """Return the value with the workspace in all texts."""
    if isinstance(given, str):
        return given.replace("{workspace}", workspace)
    if isinstance(given, dict):
        return {name: _filled(value, workspace) for name, value in given.items()}
    return [_filled(value, workspace) for value in given] if isinstance(given, list | tuple) else given


@contextmanager
def _stopped(pid: int) -> Iterator[None]:
    """Yield a process that is stopped, and may be killed meanwhile."""
    os.kill(pid, signal.SIGSTOP)
    try:
        while not _rests(pid):  # a thread that waits in a read may still get what comes
            time.sleep(0.001)
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def _rests(pid: int) -> bool:
    threads = Path(f"/proc/{pid}/task").glob("*/stat")
    return all(thread.read_text().rpartition(")")[2].split()[0] == "T" for thread in threads)


def _process(mark: str) -> int:
    """Return the process below this one with the text in its command line, not the programs that start it."""
    parents = {int(path.parent.name): _parent(path) for path in Path("/proc").glob("[0-9]*/stat")}
    named = {pid for pid in parents if _is_below(pid, parents) and mark in _command(pid)}
    [found] = named - {parents[pid] for pid in named}
    return found


def _parent(status: Path) -> int:
    try:
        return int(status.read_text().rpartition(")")[2].split()[1])
    except OSError:  # it ended meanwhile
        return 0


def _is_below(pid: int, parents: Mapping[int, int]) -> bool:
    while pid := parents.get(pid, 0):
        if pid == os.getpid():
            return True
    return False


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def _wait_for_unread(pid: int) -> None:
    """Return when unread data is in the process's stdin, the first pipe that it reads: some put it elsewhere."""
    descriptors = sorted(Path(f"/proc/{pid}/fd").iterdir(), key=lambda path: int(path.name))
    stdin = next(path for path in descriptors if path.is_fifo() and not path.lstat().st_mode & stat.S_IWUSR)
    pipe = os.open(stdin, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert select.select([pipe], [], [], _SECONDS)[0]
    finally:
        os.close(pipe)


def main() -> None:
    """Print the table."""
    print("| server | sandbox | tools | list s | call ms | error | time-out | death | restart s | starts |")
    print("|---|---|---:|---:|---:|---|---|---|---:|---:|")
    for published in PUBLISHED:
        for kind in SANDBOXES:
            driven = asyncio.run(_drive(published, kind))
            texts = [" ".join(text.split())[:48] for text in (driven.refused, driven.time_out, driven.death)]
            numbers = f"{driven.tools} | {driven.list_seconds:.2f} | {1000 * driven.call_seconds:.1f}"
            print(f"| {published.name} | {kind} | {numbers} | {' | '.join(texts)} | ", end="")
            print(f"{driven.restart_seconds:.2f} | {driven.starts} |", flush=True)


async def _drive(published: Published, kind: Literal["local", "bubblewrap"]) -> Driven:
    async with connected(published, kind) as (connection, workspace):
        return await drive(published, connection, workspace)


if __name__ == "__main__":
    main()
