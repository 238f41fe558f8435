"""`agentbench mcp tools` and `agentbench mcp call`, on the test server."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import mcp_server

from pytest_agentbench.cli import main

SERVER = Path(mcp_server.__file__)
KEY = "sk-given-to-the-server-0123456789"

Run = Callable[..., tuple[int, list[str], str]]


class Project:
    """A folder with a file of servers, which note their starts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.log = path / "starts.log"
        (path / "pyproject.toml").touch()
        self.write("cases/models.yaml", {"schema_version": 1, "models": []})

    def server(self, *options: str, **fields: Any) -> dict[str, Any]:
        args = ["-I", str(SERVER), "--log", str(self.log), *options]
        return {"command": sys.executable, "args": args, "sandbox": "local", **fields}

    def servers(self, folder: str = "cases", **servers: dict[str, Any]) -> Path:
        return self.write(f"{folder}/servers.yaml", {"schema_version": 1, "servers": servers})

    def write(self, name: str, content: Any) -> Path:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(content))
        return path

    def starts(self) -> int:
        return self.log.read_text().count("start ") if self.log.exists() else 0


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.chdir(tmp_path)
    return Project(tmp_path)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*words: str) -> tuple[int, list[str], str]:
        code = main(["mcp", *words])
        printed = capsys.readouterr()
        return code, printed.out.splitlines(), printed.err

    return call


@pytest.mark.slow
def test_tools_are_listed_and_then_known_without_a_process(project: Project, run: Run) -> None:
    project.servers(Test=project.server())

    code, lines, _ = run("tools", "Test")
    assert code == 0
    assert "  echo(text)" in lines
    assert "  add(a, b)" in lines
    known = run("tools", "Test")[1]
    assert "stored earlier" in known[0]
    assert known[1:] == lines[1:]
    assert project.starts() == 1
    run("tools", "Test", "--refresh")
    assert project.starts() == 2


def test_schemas_and_json_are_whole(project: Project, run: Run) -> None:
    project.servers(Test=project.server())

    [listed] = json.loads("\n".join(run("tools", "Test", "--json")[1]))
    schema = next(tool["input_schema"] for tool in listed["tools"] if tool["name"] == "add")
    text = "".join(run("tools", "Test", "--schemas")[1]).replace(" ", "")
    assert listed["server"] == "Test"
    assert schema["required"] == ["a", "b"]
    assert json.dumps(schema).replace(" ", "") in text


def test_the_state_of_every_server_of_a_file_is_printed(project: Project, run: Run) -> None:
    file = project.servers(
        Good=project.server(),
        Unset=project.server(env_from=["NOT_SET_ANYWHERE"]),
        Absent=project.server() | {"command": "no-such-program"},
        Broken={"command": sys.executable, "args": ["-c", "import sys; sys.exit('out of paper')"], "sandbox": "local"},
    )

    code, lines, _ = run("tools", str(file.relative_to(project.path)))

    assert code == 1
    states = {line.split(":")[0].split()[1]: line for line in lines if not line.startswith(" ")}
    assert states["Good"].startswith("ok ")
    assert "NOT_SET_ANYWHERE is not set" in states["Unset"]
    assert "no-such-program" in states["Absent"]
    assert states["Broken"].startswith("FAILED")
    assert any("out of paper" in line for line in lines)


def test_a_commands_json_is_read_as_it_is(project: Project, run: Run) -> None:
    (project.path / "server.py").write_text(SERVER.read_text())
    entry = {"cmd": "python3 -I server.py", "env": [], "cwd": "."}
    (project.path / "commands.json").write_text(json.dumps({"Some Server": entry}))
    profile = {"schema_version": 1, "run_profile_id": "trusted", "title": "Trusted", "sandbox": "local"}
    project.write("run_profiles/trusted.yaml", profile)

    code, lines, error = run("tools", "commands.json", "--profile", "trusted")
    assert (code, error) == (0, "")
    assert lines[0].startswith("ok      Some Server: ")
    assert run("call", "Some Server:add", '{"a": 1, "b": 2}', "--profile", "trusted")[:2] == (0, ["3"])


def test_the_servers_of_a_client_are_listed(project: Project, run: Run) -> None:
    (project.path / "server.py").write_text(SERVER.read_text())
    servers = {
        "Good": {"command": "python3", "args": ["-I", "server.py"], "cwd": ".", "autoApprove": ["add"]},
        "Old": {"type": "sse", "url": "https://example.org/sse"},
        "Off": {"command": "x", "disabled": True},
    }
    (project.path / ".vscode").mkdir()
    (project.path / ".vscode" / "mcp.json").write_text(json.dumps({"servers": servers}))
    profile = {"schema_version": 1, "run_profile_id": "trusted", "title": "Trusted", "sandbox": "local"}
    project.write("run_profiles/trusted.yaml", profile)

    code, lines, error = run("tools", ".vscode/mcp.json", "--profile", "trusted")
    assert code == 1
    assert lines[0].startswith("ok      Good: ")
    assert lines[1].startswith(f"FAILED  Old: {project.path}/.vscode/mcp.json:1:127: servers.Old.type: found 'sse'")
    assert len(lines) == 2
    assert "servers.Good.autoApprove: left out; calls need no confirmation" in error
    assert "servers.Off.disabled: found true, so the server is left out" in error


def test_a_file_without_a_runnable_server_gives_the_reasons(project: Project, run: Run) -> None:
    (project.path / "mcp.json").write_text('{"mcpServers": {"Off": {"command": "x", "disabled": true}}}')
    _, _, error = run("tools", "mcp.json")
    assert "mcp.json:1:1: found no servers" in error
    assert "mcpServers.Off.disabled: found true" in error


@pytest.mark.slow
def test_a_call_prints_the_result_and_how_its_arguments_fit(project: Project, run: Run) -> None:
    project.servers(Test=project.server())

    assert run("call", "Test:add", '{"a": 1, "b": 2}')[:2] == (0, ["3"])
    code, lines, said = run("call", "Test", "echo", '{"text": "a\\u001b[31mb"}')
    assert (code, lines) == (0, ["a\\x1b[31mb"])
    assert "the arguments satisfy the tool's schema" in said
    code, lines, said = run("call", "Test:fail")
    assert code == 1
    assert lines[0].startswith("it failed")
    assert said.startswith("the call failed")
    assert "the arguments do not satisfy" in run("call", "Test:add", '{"a": "one"}')[2]
    code, lines, _ = run("call", "Test:die")
    assert code == 1
    assert "ended before it had answered" in lines[0]


def test_keys_of_a_server_are_not_shown(project: Project, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAIN_NAME", KEY)
    project.servers(Test=project.server(env_from=["PLAIN_NAME"], env={"OWN_API_KEY": KEY[::-1]}))

    code, lines, _ = run("call", "Test:environment")
    assert code == 0
    assert KEY not in lines[0]
    assert KEY[::-1] not in lines[0]
    assert json.loads(lines[0])["PLAIN_NAME"] == "[redacted]"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("tools", "Tset"), "found 'Tset', expected a server that is declared"),
        (("tools", "Tset"), "did you mean 'Test'?"),
        (("call", "Test:ad"), "MCP server 'Test' has no tool 'ad'; did you mean 'add'?"),
        (("call", "Test:add", "{"), "arguments: found '{', expected a JSON object: "),
        (("call", "Test:add", "[1]"), "arguments: found '[1]', expected a JSON object"),
        (("call", "Test"), "found 'Test', expected SERVER TOOL or SERVER:TOOL"),
        (("call", "Test", "add", "{}", "{}"), "expected SERVER TOOL or SERVER:TOOL"),
        (("tools", "none.yaml"), "none.yaml: there is no such file"),
        (("tools", "empty.yaml"), "found no servers"),
        (("tools", "other.json"), "found no servers"),
    ],
)
def test_wrong_arguments_are_reported_with_a_remedy(
    project: Project, run: Run, words: tuple[str, ...], said: str
) -> None:
    project.servers(Test=project.server())
    project.write("empty.yaml", {"schema_version": 1})
    (project.path / "other.json").write_text('{"scripts": {}}')

    code, lines, error = run(*words)

    assert (code, lines) == (1, [])
    assert said in error


def test_servers_of_two_projects_below_are_not_mixed(project: Project, run: Run) -> None:
    for folder in ("one", "two"):
        project.servers(folder, Test=project.server())
        project.write(f"{folder}/models.yaml", {"schema_version": 1, "models": []})

    code, _, error = run("tools", "Test")
    assert code == 1
    assert "run this in one of these folders, or name a file" in error


def test_help_imports_no_module_of_a_command() -> None:
    code = (
        "import sys; from pytest_agentbench.cli import main\ntry: main(['mcp', '--help'])\nfinally: print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "synthesize" in done.stdout
    assert "pytest_agentbench.packs.mcp_bench" in done.stdout
    assert "pytest_agentbench.packs.mcp_bench." not in done.stdout
    assert "pydantic" not in done.stdout.splitlines()[-1]
