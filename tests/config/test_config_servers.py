"""Where MCP servers are declared: servers.yaml, commands.json, cases, datasets and run profiles."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from pytest_agentbench.config.base import load
from pytest_agentbench.config.case_file import TestCaseFile
from pytest_agentbench.config.dataset_file import DatasetDescriptor
from pytest_agentbench.config.profiles import RunProfile
from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.config.sections import ServersFile
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.sources.dataset import Row, open_dataset
from pytest_agentbench.sources.rows import read_rows, row_case
from pytest_agentbench.sources.test_yaml import load_case

SHARED = Path(__file__).parents[3] / "shared" / "data" / "mcp"

HEAD = "schema_version: 1\n"
CASE = """\
schema_version: 1
case_id: sum
title: A sum
runner: {type: llm_probe}
input: {messages: [{role: user, content: "2 + 2?"}]}
"""
DATASET = "schema_version: 1\nfiles: [rows.jsonl]\n"
RUN = "schema_version: 1\nrun_profile_id: p\ntitle: p\n"


@pytest.fixture
def write(tmp_path):
    def write(name, content):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content, indent=2), encoding="utf-8")
        return path

    return write


def lines(path, call):
    """The lines of the error that a call gives, without the file's name."""
    with pytest.raises(ConfigError) as raised:
        call()
    return [line.removeprefix(f"{path}:") for line in str(raised.value).splitlines()]


def test_a_server_is_found_by_the_nearest_file_that_declares_it(tmp_path, write):
    write("servers.yaml", HEAD + "servers: {A: {command: top}, B: {command: top}, C: {command: top}}\n")
    write("cases/servers.yaml", HEAD + "servers: {A: {command: middle}, B: {command: middle}}\n")
    write("cases/commands.json", {"B": {"cmd": "never"}, "D": {"cmd": "middle"}})
    write("cases/deep/commands.json", {"A": {"cmd": "deep"}})
    root = ConfigRoot(tmp_path)
    found = root.mcp_servers(tmp_path / "cases" / "deep" / "test.yaml")
    assert {name: server.command for name, server in found.items()} == {
        "A": "deep",
        "B": "middle",
        "C": "top",
        "D": "middle",
    }
    assert root.mcp_servers(tmp_path / "test.yaml")["A"].command == "top"
    assert ConfigRoot(tmp_path / "cases").mcp_servers(tmp_path / "cases" / "x.json").keys() == {"A", "B", "D"}


def test_a_case_outside_of_the_root_has_the_servers_of_its_folder_and_of_the_root(tmp_path, write):
    write("configs/servers.yaml", HEAD + "servers: {A: {command: root}, B: {command: root}}\n")
    write("cases/x/servers.yaml", HEAD + "servers: {A: {command: own}}\n")
    found = ConfigRoot(tmp_path / "configs").mcp_servers(tmp_path / "cases" / "x" / "test.yaml")
    assert {name: server.command for name, server in found.items()} == {"A": "own", "B": "root"}


def test_a_loaded_file_is_cached_until_it_changes(tmp_path, write):
    file = write("servers.yaml", HEAD + "servers: {A: {command: one}}\n")
    commands = write("commands.json", {"B": {"cmd": "one"}})
    root, near = ConfigRoot(tmp_path), tmp_path / "tasks.json"
    first = root.mcp_servers(near)
    assert root.mcp_servers(near)["A"] is first["A"]
    assert root.mcp_servers(near)["B"] is first["B"]
    file.write_text(HEAD + "servers: {A: {command: other}}\n")
    commands.write_text(json.dumps({"B": {"cmd": "other"}}))
    assert [server.command for server in root.mcp_servers(near).values()] == ["other", "other"]
    commands.unlink()
    assert [*root.mcp_servers(near)] == ["A"]


def test_two_servers_files_in_one_folder_are_ambiguous(tmp_path, write):
    write("servers.yaml", HEAD)
    write("servers.yml", HEAD)
    with pytest.raises(ConfigError, match=r"'servers' is ambiguous: it names .*servers\.yaml and .*servers\.yml"):
        ConfigRoot(tmp_path).mcp_servers(tmp_path / "x.json")


@pytest.mark.parametrize(
    ("cwd", "expected"), [("bin", "top/bin"), ("../x", "x"), ("/opt/x", "/opt/x"), (".", "top"), ("~/x", "home/x")]
)
def test_a_servers_folder_is_relative_to_the_file_that_declares_it(tmp_path, write, monkeypatch, cwd, expected):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    write("top/servers.yaml", HEAD + f"servers: {{A: {{command: x, cwd: {cwd}}}}}\n")
    profile = write("top/p.yaml", RUN + f"mcp_servers: {{A: {{command: x, cwd: {cwd}}}}}\n")
    declared = ConfigRoot(tmp_path / "top").mcp_servers(tmp_path / "top" / "a" / "test.yaml")["A"]
    assert declared.cwd == load(profile, RunProfile).mcp_servers["A"].cwd == os.path.join(tmp_path, expected)


@pytest.mark.parametrize(
    ("servers", "expected"),
    [
        ("{A: {}}", ["2:14: servers.A: found neither 'command' nor 'url', expected one of them, or both"]),
        (
            "{A: {command: x, url: 'http://127.0.0.1:1'}}",
            [
                "2:14: servers.A: a server with both 'command' and 'url' has one address for all runs: "
                "set scope: session"
            ],
        ),
        (
            "{A: {command: x, arg: [y]}, B: {url: 5}}",
            [
                "2:27: servers.A.arg: unknown field; did you mean 'args'?",
                "2:47: servers.B.url: found 5, expected a text; put it in quotes",
            ],
        ),
        (
            "{A: {command: x, env_from: ['sk-secret value']}}",
            ["2:38: servers.A.env_from[0]: expected the name of an environment variable, never a key itself"],
        ),
        (
            "{A: {command: x, env: {PORT: 80}}}",
            ["2:39: servers.A.env.PORT: found 80, expected a text; put it in quotes"],
        ),
        (
            "{A: {command: x, timeout_seconds: 0}}",
            ["2:44: servers.A.timeout_seconds: found 0, expected more than 0"],
        ),
        ("[A]", ["2:10: servers: found ['A'], expected a mapping"]),
        (
            "{A: {url: 'ftp://x/y'}}",
            ["2:20: servers.A.url: found 'ftp://x/y', expected an address that begins with http:// or https://"],
        ),
        (
            r'{A: {url: "http://x", headers: {X: "hush\r\nEvil: 1"}}}',
            ["2:41: servers.A.headers: found a header 'X' that HTTP does not allow, expected one line of ASCII"],
        ),
        (
            "{A: {command: x, env: {A=B: hush}}}",
            ["2:32: servers.A.env: expected names that are not empty and have no '=', and no NUL in names and values"],
        ),
        (
            r'{A: {command: x, args: ["a\0b"]}}',
            ["2:34: servers.A.args[0]: found a NUL character, which no program accepts"],
        ),
    ],
)
def test_a_wrong_declaration_is_reported_with_its_place(tmp_path, write, servers, expected):
    path = write("servers.yaml", HEAD + f"servers: {servers}\n")
    assert lines(path, lambda: load(path, ServersFile)) == expected
    assert lines(path, lambda: ConfigRoot(tmp_path).mcp_servers(tmp_path / "test.yaml")) == expected


@pytest.mark.parametrize("name", ["a:b", " ", "", "a\x1bb", "a\nb", "a\u202eb"])
@pytest.mark.parametrize("kind", [ServersFile, TestCaseFile, RunProfile, DatasetDescriptor])
def test_a_name_that_would_break_tool_ids_or_terminals_is_refused(write, name, kind):
    field, head = {
        ServersFile: ("servers", HEAD),
        TestCaseFile: ("mcp_servers", CASE),
        RunProfile: ("mcp_servers", RUN),
        DatasetDescriptor: ("mcp_servers", DATASET),
    }[kind]
    write("rows.jsonl", '{"question": "q"}')
    path = write("file.yaml", f"{head}{field}: {{{json.dumps(name)}: {{command: x}}}}\n")
    found = "\n".join(lines(path, lambda: load(path, kind)))
    assert "expected the name of a server: no blank text, without ':'" in found
    assert found.startswith(f"{head.count(chr(10)) + 1}:")


@pytest.mark.parametrize("name", ["Math MCP", "größe", "a/b", "C++", "北京", "x" * 300])
def test_other_odd_names_are_names(write, name):
    path = write("servers.yaml", json.dumps({"schema_version": 1, "servers": {name: {"command": "x"}}}))
    assert [*load(path, ServersFile).servers] == [name]


def test_a_case_declares_servers_or_names_them(tmp_path, write):
    root = ConfigRoot(tmp_path)
    (tmp_path / "cases" / "sum" / "bin").mkdir(parents=True)
    path = write(
        "cases/sum/test.yaml", CASE + "mcp_servers: {A: {command: x, cwd: bin}, B: {url: 'http://127.0.0.1:1'}}\n"
    )
    declared = load_case(path, root).mcp_servers
    assert [*declared] == ["A", "B"]
    assert declared["A"].cwd == str(tmp_path / "cases" / "sum" / "bin")
    path.write_text(CASE + "mcp_servers: [Time, Math MCP]\n")
    assert load_case(path, root).mcp_servers == {"Time": None, "Math MCP": None}
    path.write_text(CASE)
    assert load_case(path, root).mcp_servers == {}


def test_a_dataset_gives_its_servers_to_every_row(tmp_path, write):
    write("rows.jsonl", '{"question": "q"}\n{"question": "r"}\n')
    for given, expected in (("[Time]", {"Time": None}), ("{A: {command: x, cwd: .}}", {"A": str(tmp_path)})):
        path = write("dataset.yaml", DATASET + f"mcp_servers: {given}\n")
        dataset = open_dataset(path, ConfigRoot(tmp_path))
        cases = [row_case(dataset, row) for row in read_rows(dataset) if isinstance(row, Row)]
        assert [{name: server and server.cwd for name, server in case.mcp_servers.items()} for case in cases] == [
            expected
        ] * 2


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            "{A: {command: x, sandbox: local}}",
            "6:40: mcp_servers.A.sandbox: a case does not choose where its servers run",
        ),
        ("{A: {command: x, cwd: ../..}}", "6:36: mcp_servers.A.cwd: found '../..', which leaves"),
        ("{A: {command: x, cwd: gone}}", "6:36: mcp_servers.A.cwd: found 'gone', expected an existing folder"),
        ("{A: {}, B: {command: 5}}", "6:35: mcp_servers.B.command: found 5, expected a text; put it in quotes"),
        ("{A: null}", "6:18: mcp_servers.A: found nothing, expected a mapping"),
        ("[A, 5]", "6:18: mcp_servers[1]: found 5, expected a text; put it in quotes"),
        ("A", "6:14: mcp_servers: found 'A', expected a mapping"),
    ],
)
def test_invalid_servers_of_a_case_are_errors(tmp_path, write, given, expected):
    path = write("root/sum/test.yaml", CASE + f"mcp_servers: {given}\n")
    assert any(
        line.startswith(expected) for line in lines(path, lambda: load_case(path, ConfigRoot(tmp_path / "root")))
    )


COMMANDS = {
    "Plain": {"cmd": "python -m some.server --name 'two words'", "env": ["KEY"], "cwd": "../plain"},
    "Far": {"cmd": "node x.js", "env": [], "cwd": "../outside"},
    "Web": {"cmd": "node cli.js --port 3007", "transport": "http", "port": 3007, "endpoint": "/mcp/v1"},
    "Default": {"cmd": "node cli.js", "transport": "http", "note": "other keys are not ours"},
}


def test_commands_json_is_read_as_it_is(tmp_path, write):
    """MCP-Bench has the servers' folders next to the file, and writes `../plain` for them."""
    (tmp_path / "mcp_servers" / "plain").mkdir(parents=True)
    write("mcp_servers/commands.json", COMMANDS)
    found = ConfigRoot(tmp_path).mcp_servers(tmp_path / "mcp_servers" / "tasks.json")
    plain, far, web, default = found.values()
    assert (plain.command, *plain.args) == ("python", "-m", "some.server", "--name", "two words")
    assert (plain.env, plain.env_from, plain.scope, plain.url) == ({}, ("KEY",), "run", None)
    assert plain.cwd == str(tmp_path / "mcp_servers" / "plain")
    assert far.cwd == str(tmp_path / "outside")
    assert (web.command, web.url, web.scope, web.cwd) == ("node", "http://127.0.0.1:3007/mcp/v1", "session", None)
    assert default.url == "http://127.0.0.1:3001/mcp"


@pytest.mark.skipif(not SHARED.is_dir(), reason="the conformance data are not here")
def test_the_real_commands_json():
    found = ConfigRoot(SHARED).mcp_servers(SHARED / "tasks.json")
    assert len(found) == 28
    assert [name for name, server in found.items() if server.url] == ["Google Maps"]
    assert {name: server.env_from for name, server in found.items() if server.env_from} == {
        "Google Maps": ("GOOGLE_MAPS_API_KEY",),
        "BioMCP": ("NCI_API_KEY",),
        "Hugging Face": ("HF_TOKEN",),
        "National Parks": ("NPS_API_KEY",),
        "NASA Data": ("NASA_API_KEY",),
    }
    assert (found["Wikipedia"].command, *found["Wikipedia"].args) == ("uv", "run", "python", "-m", "wikipedia_mcp")


def test_all_problems_of_commands_json_are_reported_at_once(tmp_path, write):
    entries = [
        '"Good": {"cmd": "x"}',
        '"Open": {"cmd": "x \'y"}',
        '"None": {"cmd": " ", "port": 70000}',
        '"Un:named": {"cmd": "x"}',
        '"Env": {"cmd": "x", "env": "KEY"}',
        '"How": {"cmd": "x", "transport": "sse"}',
        '"No": {}',
    ]
    path = write("commands.json", "{" + ",\n".join(entries) + "}")
    found = lines(path, lambda: ConfigRoot(tmp_path).mcp_servers(tmp_path / "x.json"))
    assert [line.partition(", expected")[0] for line in found] == [
        '2:17: Open.cmd: found "x \'y"',
        "3:17: None.cmd: found ' '",
        "3:30: None.port: found 70000",
        "4:13: Un:named: found 'Un:named'",
        "5:28: Env.env: found 'KEY'",
        "6:34: How.transport: found 'sse'",
        "7:7: No.cmd: missing; add it",
    ]


@pytest.mark.parametrize(
    "content", ["{}", "[1]", '{"version": "1", "commands": [{"name": "build"}]}', '{"a": {"b": 1}}']
)
def test_another_tools_commands_json_declares_nothing(tmp_path, write, content):
    write("commands.json", content)
    assert ConfigRoot(tmp_path).mcp_servers(tmp_path / "x.json") == {}


def test_a_commands_json_that_is_no_json(tmp_path, write):
    path = write("commands.json", '{"A": {"cmd": "x"},}')
    (line,) = lines(path, lambda: ConfigRoot(tmp_path).mcp_servers(tmp_path / "x.json"))
    assert line.startswith("1:20: not valid JSON")
