"""Sandboxes on another machine give the results of bubblewrap, and a lost connection is no failure of the agent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.bench import Bench, Finished, check
from support.docker_here import needs_bubblewrap
from support.mcp_projects import SERVER
from support.processes import running
from support.remote_sandbox import MACHINE

AGENT = Path(__file__).parents[1] / "support" / "stub_agent.py"
CONFTEST = """
from support.remote_sandbox import Remote

def pytest_agentbench_sandboxes():
    return {"remote": Remote()}
"""
TOOLS = ["exec_shell", "shell_session", "write_file", "read_file", "list_files"]
HIDDEN = """
import os
from add import add

def test_add():
    assert add(2, 3) == 5

def test_files():
    assert os.access("tool.sh", os.X_OK)
    assert os.readlink("link") == "tool.sh"
"""
APART = """
from agentbench_solution import Solution

def test_add():
    solution = Solution(seconds=30)
    assert solution.call("add:add", 2, 3) == 5
    assert solution.run(["./tool.sh"]) == (0, "tool\\n")
    assert solution.read("notes.txt") == b"seen\\n"
"""

pytestmark = [pytest.mark.slow, needs_bubblewrap]


@pytest.fixture
def project(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # of the machine's program, which some tests kill
    bench.agent(CONFTEST)
    return bench


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"tool_calls": [{"name": name, "arguments": arguments}]}


def tools_case(bench: Bench, *steps: Any, case_id: str = "tools", tools: Any = TOOLS, **fields: Any) -> None:
    """A case of an agent that calls tools in a workspace with a program, a link and a file."""
    asked = {"messages": [{"role": "user", "content": "Go on."}], "context": {"llm_probe": {"tools": tools}}}
    bench.case(case_id, input=asked, workspace="ws", **fields)
    bench.write(f"cases/{case_id}/ws/old.txt", "old\n")
    bench.write(f"cases/{case_id}/ws/gone.txt", "gone\n")
    bench.write(f"cases/{case_id}/ws/tool.sh", "#!/bin/sh\necho tool\n").chmod(0o755)
    (bench.path / f"cases/{case_id}/ws/link").symlink_to("tool.sh")
    replies = [{"steps": [*steps, {"content": "Paris"}]}]
    bench.write(f"cases/{case_id}/demo.yaml", {"schema_version": 1, "replies": replies})


def run(bench: Bench, sandbox: Any, *options: str) -> Finished:
    bench.profile("there", sandbox=sandbox, runner_defaults={"max_turns": 20})
    return bench.run("--model=demo", "--agentbench-run-profile=there", "--agentbench-no-reuse", *options, "cases")


def artifact(bench: Bench, case_id: str) -> dict[str, Any]:
    paths = (bench.path / "outputs/runs").rglob(f"{case_id}/run_1.json")
    return dict(json.loads(max(paths, key=lambda path: path.stat().st_mtime_ns).read_text(encoding="utf-8")))


def results(bench: Bench, case_id: str) -> dict[str, Any]:
    """Return the parts of a run that may not depend on the place of its sandbox."""
    found = artifact(bench, case_id)
    shown = [event["content"] for event in found["trace"] if event["type"] == "tool_result"]
    return {
        "tools": shown,
        "status": found["status"],
        "changes": found["changes"],
        "usage": found["provider"].get("usage_source"),
    }


def both(bench: Bench, case_id: str) -> dict[str, Any]:
    """Return the results of a case that passes in bubblewrap and remotely with the same results."""
    compared = []
    for sandbox in ("bubblewrap", "remote"):
        finished = run(bench, sandbox)
        assert finished.outcomes == {f"{case_id}[demo]": "passed"}, finished.text
        compared.append(results(bench, case_id))
    assert compared[0] == compared[1]
    return compared[1]


def test_tools_changes_and_hidden_tests_give_the_results_of_bubblewrap(project: Bench) -> None:
    tools_case(
        project,
        call("write_file", path="early.txt", content="early\n"),
        call("exec_shell", command="cat early.txt old.txt; ./link; rm gone.txt; mkdir -p a/b; echo made > a/b/c.txt"),
        call("exec_shell", command="echo changed > old.txt; chmod +x old.txt; ln -s / root; mv early.txt late.txt"),
        call("write_file", path="add.py", content="def add(a, b):\n    return a + b\n"),
        call("read_file", path="a/b/c.txt"),
        call("read_file", path="root/etc/passwd"),
        call("read_file", path="missing.txt"),
        call("list_files"),
        call("write_file", path="/tmp/private.txt", content="private\n"),
        call("exec_shell", command="cat /tmp/private.txt"),
        call("shell_session", command="cd a && X=seen"),
        call("shell_session", command="echo $X > ../notes.txt"),
        call("read_file", path="notes.txt"),
        setup="echo set up > setup.txt",
        deterministic_checks=[check("made", kind="file_contains", path="notes.txt", text="seen")],
        verify=[
            {
                "check_id": "hidden",
                "pytest": {"tests": ["tests/test_hidden.py"], "pythonpath": ["."]},
                "files": {"tests/test_hidden.py": "verify/test_hidden.py"},
            },
            {
                "check_id": "apart",
                "apart": True,
                "pytest": {"tests": ["tests/test_apart.py"]},
                "files": {"tests/test_apart.py": "verify/test_apart.py"},
            },
        ],
    )
    project.write("cases/tools/verify/test_hidden.py", HIDDEN)
    project.write("cases/tools/verify/test_apart.py", APART)
    compared = both(project, "tools")
    paths = {change["path"]: change["change"] for change in compared["changes"]}
    assert paths["gone.txt"] == "removed"
    assert paths["a/b/c.txt"] == "added"


def server_case(bench: Bench) -> None:
    """A case of an agent that calls a server, whose log is in the workspace."""
    args = ["-I", SERVER.name, "--name", "here", "--log", "/workspace/starts.log"]
    servers = {"here": {"command": "python3", "args": args, "cwd": str(SERVER.parent)}}
    bench.write("cases/servers.yaml", {"schema_version": 1, "servers": servers})
    steps = [call("here__echo", text="hi"), call("exec_shell", command="cut -d' ' -f1 starts.log | sort -u")]
    tools_case(bench, *steps, mcp_servers=["here"], case_id="server")


def program_case(bench: Bench) -> None:
    """A case of a program that asks its model, and runs the command that it is told to."""
    steps = [
        {"tool_calls": [{"name": "sh", "arguments": {"command": "echo hi > out.txt; cat out.txt"}}]},
        {"content": "Paris"},
    ]
    bench.case(
        "program",
        runner={
            "type": "command",
            "command": ["python3", "agent.py", "{message}"],
            "answer": {"from": "stdout_json", "path": "result.text"},
            "timeout_seconds": 60,
        },
        input={"turns": [{"role": "user", "content": "Write it."}]},
        workspace="ws",
    )
    bench.write("cases/program/ws/agent.py", AGENT.read_text(encoding="utf-8"))
    bench.write("cases/program/demo.yaml", {"schema_version": 1, "replies": [{"when": "Write it.", "steps": steps}]})


def test_a_server_and_a_shell_share_the_workspace_there(project: Bench) -> None:
    server_case(project)
    assert "start" in both(project, "server")["tools"][1]


def test_a_program_asks_its_model_through_the_connection(project: Bench) -> None:
    program_case(project)
    compared = both(project, "program")
    assert [change["path"] for change in compared["changes"]] == ["out.txt"]
    assert compared["usage"] == "gateway"


TOOL = """
from pytest_agentbench import Tool

async def make(arguments, context):
    sandbox = await context.sandbox()
    workspace = context.workspace()
    await sandbox.exec(["sh", "-c", "echo theirs > both.txt; echo theirs > theirs.txt"], seconds=20)
    workspace.write_text("both.txt", "ours\\n")
    workspace.write_text("/tmp/ours.txt", "ours\\n")
    workspace.path.joinpath("gone.txt").unlink()
    return (await sandbox.exec(["sh", "-c", "cat *.txt /tmp/ours.txt"], seconds=20)).output

def pytest_agentbench_tools():
    return {"make": Tool("make", "Make files.", {"type": "object"}, make)}
"""


def test_files_that_this_machine_changes_meanwhile_replace_those_there(project: Bench) -> None:
    project.agent(CONFTEST + TOOL)
    tools_case(project, call("make"), case_id="changed", tools=["make"])
    assert run(project, "remote").outcomes == {"changed[demo]": "passed"}
    found = results(project, "changed")
    assert found["tools"] == ["ours\nold\ntheirs\nours\n"]
    assert {change["path"] for change in found["changes"]} == {"both.txt", "gone.txt", "theirs.txt"}


def read_case(bench: Bench) -> None:
    """A case of an agent that runs a command and reads a file."""
    tools_case(bench, call("exec_shell", command="echo made > made.txt"), call("read_file", path="made.txt"))


@pytest.mark.parametrize(
    ("make", "request_name"),
    [
        *((read_case, name) for name in ("start", "exec", "upload", "download", "get")),
        *((server_case, name) for name in ("mount", "open", "write")),
        *((program_case, name) for name in ("serve", "exec")),
    ],
)
def test_a_lost_connection_is_an_error_and_leaves_nothing(project: Bench, make: Any, request_name: str) -> None:
    make(project)
    finished = run(project, {"type": "remote", "breaks_at": request_name})
    assert set(finished.outcomes.values()) == {"error"}, finished.text
    assert "the connection to the machine is lost" in finished.text
    assert not running(MACHINE.name)
