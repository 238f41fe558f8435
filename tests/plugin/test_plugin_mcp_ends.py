"""Many servers at once, workers, and sessions that are ended: no process of a server outlives its session."""

from __future__ import annotations

import secrets
import shutil
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import docker
import pytest
from support.bench import LEAN, Bench
from support.docker_here import IMAGE, needs_bubblewrap, needs_docker
from support.mcp_projects import SERVER, McpBench, lives
from support.processes import running

pytestmark = pytest.mark.slow
HANGS = ("Own__hang", {})
KINDS = [
    pytest.param("local", id="local"),
    pytest.param({"type": "bubblewrap"}, id="bubblewrap", marks=needs_bubblewrap),
]


@pytest.fixture
def mcp(bench: Bench) -> McpBench:
    return McpBench(bench)


def test_sixteen_runs_each_with_its_own_server(mcp: McpBench) -> None:
    mcp.servers(Own=mcp.server("own"))
    for number in range(32):
        mcp.case(f"c{number}", ("Own__count", {}), ("Own__slow", {"seconds": 0.5}), servers=["Own"])
    begun = time.monotonic()

    finished = mcp.run()

    assert set(finished.outcomes.values()) == {"passed"}, finished.text
    assert [mcp.results(finished, f"c{n}") for n in range(32)] == [[("1", False), ("done", False)]] * 32
    started = mcp.starts()
    assert len(started) == 32
    assert not any(lives(pid) for _, pid in started)
    assert time.monotonic() - begun < 12  # one after the other they would take sixteen seconds and more


@pytest.mark.parametrize("sandbox", KINDS)
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT], ids=["killed", "interrupted"])
def test_a_session_that_is_ended_leaves_no_server(mcp: McpBench, sandbox: Any, how: signal.Signals) -> None:
    mark = f"mark-{secrets.token_hex(8)}"
    options = {"log": "/dev/null" if isinstance(sandbox, dict) else None}
    mcp.servers(Own=mcp.server(mark, **options), Shared=mcp.server(f"{mark}-shared", scope="session", **options))
    mcp.case("waits", ("Shared__count", {}), ("Own__noise", {}), HANGS, servers=["Own", "Shared"])
    mcp.bench.profile("here", sandbox=sandbox)
    command = [sys.executable, "-m", "pytest", *LEAN, "--model=demo", "--agentbench-run-profile=here", "cases"]

    with subprocess.Popen(command, cwd=mcp.path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as session:
        try:
            _until(lambda: running(f"{mark} ") and running(f"{mark}-shared"), session)
            session.send_signal(how)
            session.communicate(timeout=30)
        finally:
            session.kill()

    _until(lambda: not running(mark))


def test_workers_have_servers_of_their_own(mcp: McpBench) -> None:
    mcp.servers(Own=mcp.server("own"), Shared=mcp.server("shared", scope="session"))
    for number in range(6):
        mcp.case(f"c{number}", ("Own__count", {}), ("Shared__count", {}), servers=["Own", "Shared"])

    finished = mcp.run("-n2", spawn=True)

    assert set(finished.outcomes.values()) == {"passed"}, finished.text
    assert {mcp.results(finished, f"c{n}")[0] for n in range(6)} == {("1", False)}
    shared = sorted(int(mcp.results(finished, f"c{n}")[1][0]) for n in range(6))
    assert shared == [1, 1, 2, 2, 3, 3]
    started = mcp.starts()
    assert [name for name, _ in started].count("shared") == 2
    assert not any(lives(pid) for _, pid in started)


@needs_docker
def test_a_server_in_a_container_is_not_the_shell_s(mcp: McpBench) -> None:
    secret = "only-for-the-server"
    mcp.servers(Test=mcp.server("one", log="/workspace/server.log", env={"PLAIN": secret}))
    look = "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>&1 | tr '\\0' '\\n'; echo looked; cat server.log"
    asked = {"messages": [{"role": "user", "content": "?"}], "context": {"llm_probe": {"tools": ["exec_shell"]}}}
    calls = [("exec_shell", {"command": "true"}), ("Test__environment", {}), ("exec_shell", {"command": look})]
    mcp.case("looks", *calls, servers=["Test"], input=asked)

    finished = mcp.run(sandbox={"type": "docker", "image": IMAGE})

    _, (told, _), (seen, _) = mcp.results(finished, "looks")
    assert secret in told
    assert "looked" in seen
    assert "start one" in seen  # the workspace is one
    assert secret not in seen
    assert "mcp_server" not in seen.partition("looked")[0]


@needs_docker
def test_containers_of_servers_of_a_killed_session_are_removed_by_the_next(mcp: McpBench) -> None:
    folder = mcp.path / "server"
    shutil.copytree(SERVER.parent, folder, ignore=shutil.ignore_patterns("__pycache__"))
    here = {"cwd": str(folder), "log": "/dev/null"}
    mcp.servers(Own=mcp.server("own", **here), Shared=mcp.server("shared", scope="session", **here))
    mcp.case("waits", ("Shared__count", {}), HANGS, servers=["Own", "Shared"])
    mcp.bench.profile("here", sandbox={"type": "docker", "image": IMAGE})
    command = [sys.executable, "-m", "pytest", *LEAN, "--model=demo", "--agentbench-run-profile=here", "cases"]
    with subprocess.Popen(command, cwd=mcp.path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as session:
        try:
            _until(lambda: len(_containers(folder)) == 2, session)
        finally:
            session.kill()
    killed = _containers(folder)
    assert len(killed) == 2
    mcp.script("waits", [("Own__count", {})])

    finished = mcp.run(sandbox={"type": "docker", "image": IMAGE})

    assert finished.outcomes == {"waits[demo]": "passed"}, finished.text
    _until(lambda: not _containers(folder))  # the daemon may be removing the last one


def _containers(folder: Path) -> set[str]:
    """Those that show the folder, of whatever session."""
    with closing(docker.from_env()) as client:
        found = client.api.containers(all=True)
    return {each["Id"] for each in found if str(folder) in {mount["Source"] for mount in each["Mounts"]}}


def _until(holds: Any, session: subprocess.Popen[bytes] | None = None) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert session is None or session.poll() is None, session.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.05)
