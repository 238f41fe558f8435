"""`validate`, `list`, `schema` and `doctor` on servers files and task files."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from pytest_agentbench.cli import main

DOCTOR = "import sys; from pytest_agentbench.cli import main; sys.exit(main(['doctor', *sys.argv[1:]]))"
TASKS = [
    {"task_id": "sum", "servers": ["Math"], "fuzzy_description": "2 + 2?", "distraction_servers": ["Time"]},
    {"task_id": "odd", "servers": ["Math", "Nowhere"], "fuzzy_description": "3 + 3?"},
]
SERVERS = "schema_version: 1\nservers:\n  Math: {command: sh}\n  Time: {command: no-such-program}\n"
JUDGED = """\
schema_version: 1
evaluation_profile_id: judged
title: judged
judges: [{judge_id: chat, type: llm_probe, model: judge}]
judge_runs: [{judge_run_id: once, judge_id: chat}]
"""
CASE = """\
schema_version: 1
case_id: served
title: served
runner: {type: llm_probe}
input: {messages: [{role: user, content: x}]}
deterministic_checks: [{check_id: any, declarative: {kind: final_response_present}}]
mcp_servers: {Own: {url: "http://127.0.0.1:9/mcp"}, Mine: {command: sh, cwd: .}}
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, content in {
        "pyproject.toml": "",
        "servers.yaml": SERVERS,
        "tasks.json": json.dumps(TASKS),
        "served/test.yaml": CASE,
        "evaluation_profiles/judged.yaml": JUDGED,
    }.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
    return tmp_path


@pytest.fixture
def call(project, capsys):
    def call(*args):
        code = main(list(args))
        out = capsys.readouterr()
        lines = [line.replace(f"{project}/", "") for line in (out.out + out.err).splitlines()]
        return code, [line for line in lines if not line.startswith("configuration root: ")]

    return call


NOWHERE = (
    "tasks.json:1:1: no MCP server 'Nowhere' is declared; there is Math, Time; declare it in a servers.yaml beside or "
    "above the case, in the run profile, or in the fixture agentbench_mcp_servers"
)


def test_validate_looks_at_servers_files_and_tasks(project, call):
    assert call("validate") == (1, [NOWHERE, "4 files checked, 3 cases: 1 error, 0 warnings"])
    (project / "servers.yaml").write_text("schema_version: 1\nservers: {Math: {comand: sh}}\n")
    code, lines = call("validate")
    assert code == 1
    assert lines == [
        "servers.yaml:2:18: servers.Math.comand: unknown field; did you mean 'command'?",
        "4 files checked, 1 case: 1 error, 0 warnings",
    ]


def test_validate_looks_at_commands_json(project, call):
    (project / "below").mkdir()
    (project / "below" / "commands.json").write_text('{"Nowhere": {"cmd": "sh", "env": "KEY"}}')
    wrong = "below/commands.json:1:34: Nowhere.env: found 'KEY', expected a list; write [KEY]"
    assert call("validate") == (1, [wrong, NOWHERE, "5 files checked, 3 cases: 2 errors, 0 warnings"])
    assert call("validate", "below/commands.json") == (1, [wrong, "1 file checked, 0 cases: 1 error, 0 warnings"])
    (project / "below" / "commands.json").rename(project / "commands.json")
    (project / "commands.json").write_text('{"Nowhere": {"cmd": "sh"}}')
    assert call("validate") == (0, ["5 files checked, 3 cases: 0 errors, 0 warnings"])


def test_validate_names_ignored_settings_of_a_client(project, call):
    servers = '{"mcpServers": {"Nowhere": {"command": "sh", "timeout": 5}, "Old": {"type": "sse", "url": "http://x"}}}'
    (project / "commands.json").write_text(servers)
    code, lines = call("validate", "commands.json")
    assert code == 1
    assert lines[0].startswith("commands.json:1:77: mcpServers.Old.type: found 'sse', expected stdio or http")
    assert lines[1].startswith("commands.json:1:57: warning: mcpServers.Nowhere.timeout: left out; clients count it")
    assert lines[2] == "1 file checked, 0 cases: 1 error, 1 warning"


def test_validate_reports_all_problems_of_tasks(project, call):
    again = {**TASKS[0], "fuzzy_description": 5}
    (project / "tasks.json").write_text(json.dumps([*TASKS, {"task_id": "no"}, TASKS[0], again], indent=1))
    (project / "other.json").write_text(json.dumps(TASKS[:1]))
    code, lines = call("validate")
    assert code == 1
    assert [line for line in lines if "warning" not in line] == [
        "tasks.json:2:1: task_id: Duplicate case_id 'sum'; other.json has it too",
        NOWHERE.replace(":1:1:", ":12:1:"),
        "tasks.json:20:2: servers: missing; add it",
        "tasks.json:24:14: task_id: found 'sum' again, first on line 2; give each task its own id",
        "tasks.json:38:24: fuzzy_description: found 5, expected a text; put it in quotes",
    ]


def test_list_shows_tasks(call):
    assert call("list") == (
        0,
        [
            "served\t\tllm_probe\tfinal_response_present\tserved/test.yaml\t1",
            "sum\tmath,single_server\tmcp_planner\tjudge\ttasks.json\t1",
            "odd\tmath,multi_server,nowhere\tmcp_planner\tjudge\ttasks.json\t1",
        ],
    )


@pytest.mark.slow
def test_the_schema_of_servers_files(project, call):
    code, lines = call("schema", "--output", "schemas")
    assert code == 0
    assert "schemas/servers.schema.json" in lines
    schema = json.loads((project / "schemas" / "servers.schema.json").read_text())
    assert schema["$defs"]["McpServer"]["properties"]["cwd"]["description"].startswith("The folder it starts in")


def doctor(folder, *args):
    environ = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    environ["DOCKER_HOST"] = "unix:///nowhere/docker.sock"
    done = subprocess.run(
        [sys.executable, "-c", DOCTOR, "--json", *args],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    findings = json.loads(done.stdout)["findings"]
    return {each["name"]: (each["works"], each["said"]) for each in findings if each["area"] == "MCP servers"}


@pytest.mark.slow
def test_doctor_looks_for_the_servers_that_cases_name(project):
    assert doctor(project) == {
        "served/Own": (None, "is at http://127.0.0.1:9/mcp; it is asked when a run needs it"),
        "served/Mine": (True, "sh"),
        "Math": (True, "sh"),
        "Nowhere": (False, "no servers.yaml, commands.json or run profile declares it; there is Math, Time"),
        "Time": (False, "the program no-such-program is not installed"),
    }
    profile = {
        "schema_version": 1,
        "run_profile_id": "p",
        "title": "p",
        "mcp_servers": {"Nowhere": {"command": "sh", "env_from": ["NO_SUCH_VARIABLE"]}},
        "planner": {"distraction_servers": 0, "resident_servers": ["Clock"]},
    }
    (project / "run_profiles").mkdir()
    (project / "run_profiles" / "p.yaml").write_text(json.dumps(profile))
    found = doctor(project)
    assert found["p/Nowhere"] == (False, "the variable NO_SUCH_VARIABLE is not set")
    assert found["Clock"][0] is False
    assert not {"Time", "Nowhere"} & found.keys()
