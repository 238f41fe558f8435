"""Files of MCP clients: `mcpServers` of Claude Desktop, Claude Code and Cursor, `servers` of VS Code."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from pytest_agentbench.config.client_servers import ServerDeclarations
from pytest_agentbench.config.commands_file import read_commands
from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.records.case import McpServer

REPORTED = Path(__file__).parents[3] / "shared" / "data" / "reports" / "mcp_json" / "mcp2.json"


def read(folder: Path, content: object, name: str = "mcp.json") -> ServerDeclarations:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content, indent=1))
    return read_commands(path)


def declare(folder: Path, **fields: object) -> ServerDeclarations:
    return read(folder, {"mcpServers": {"it": fields}})


def reasons(folder: Path, found: ServerDeclarations) -> list[str]:
    return [reason.removeprefix(f"{folder}/mcp.json:") for reason in found.refused.values()]


@pytest.mark.parametrize("key", ["mcpServers", "servers"])
def test_servers_of_clients_are_read(tmp_path: Path, key: str) -> None:
    servers = {
        "kb": {"command": "npx", "args": ["-y", "@scope/kb"], "env": {"LEVEL": "2", "KEY": "${env:KEY}"}, "cwd": "bin"},
        "web": {"type": "http", "url": "https://example.org/mcp", "headers": {"Authorization": "Bearer ${env:TOKEN}"}},
        "plain": {"type": "stdio", "command": "server", "env": {"OTHER": "${OTHER}"}},
        "address": {"url": "https://example.org/", "headers": {"X": "${A}-${B}"}},
    }
    found = read(tmp_path, {key: servers, "theme": "dark", "inputs": []})
    assert (found.refused, found.notes) == ({}, ())
    assert found.servers == {
        "kb": McpServer(
            command="npx", args=("-y", "@scope/kb"), env={"LEVEL": "2"}, env_from=("KEY",), cwd=str(tmp_path / "bin")
        ),
        "web": McpServer(url="https://example.org/mcp", headers={"Authorization": "Bearer ${TOKEN}"}),
        "plain": McpServer(command="server", env_from=("OTHER",)),
        "address": McpServer(url="https://example.org/", headers={"X": "${A}-${B}"}),
    }


@pytest.mark.parametrize("kind", ["http", "streamable-http", "streamableHttp", "streamable_http"])
def test_each_spelling_of_streamable_http_is_read(tmp_path: Path, kind: str) -> None:
    assert declare(tmp_path, type=kind, url="https://example.org/mcp").servers["it"].url == "https://example.org/mcp"


@pytest.mark.parametrize("hidden", [".vscode", ".cursor", "other"])
def test_places_are_put_in(tmp_path: Path, hidden: str) -> None:
    workspace = tmp_path / "other" if hidden == "other" else tmp_path
    server = {
        "command": "${userHome}/bin/x",
        "args": ["${workspaceFolder}${/}a", "${workspaceFolderBasename}"],
        "env": {"AT": "${workspaceFolder}${pathSeparator}b"},
        "cwd": "${workspaceFolder}/src",
    }
    found = read(tmp_path, {"servers": {"it": server}}, f"{hidden}/mcp.json").servers["it"]
    assert found.command == f"{os.path.expanduser('~')}/bin/x"
    assert found.args == (f"{workspace}/a", workspace.name)
    assert (found.env, found.cwd) == ({"AT": f"{workspace}/b"}, f"{workspace}/src")


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"type": "sse", "url": "https://x"}, "4:12: mcpServers.it.type: found 'sse', expected stdio or http"),
        ({"type": "ws", "url": "https://x"}, "4:12: mcpServers.it.type: found 'ws', expected stdio or http"),
        ({"type": "http", "command": "x"}, "3:9: mcpServers.it: found no 'url', which type http needs"),
        ({"type": "stdio", "url": "https://x"}, "3:9: mcpServers.it: found no 'command', which type stdio needs"),
        ({"command": "x", "url": "https://x"}, "3:9: mcpServers.it: found 'command' and 'url', expected one of them"),
        ({"args": ["x"]}, "3:9: mcpServers.it: found neither 'command' nor 'url'"),
        ({"url": "ftp://x"}, "4:11: mcpServers.it.url: found 'ftp://x', expected an address"),
        ({"command": "x", "envFile": ".env"}, "5:15: mcpServers.it.envFile: found a file of variables"),
        (
            {"command": "x", "env": {"K": "${input:key}"}},
            "6:10: mcpServers.it.env.K: found ${input:key}: inputs are not supported",
        ),
        ({"command": "x", "env": {"K": "${env:L}"}}, "6:10: mcpServers.it.env.K: found ${L}, expected ${env:K}"),
        ({"command": "x", "env": {"K": "a-${K}"}}, "6:10: mcpServers.it.env.K: found ${K}, expected ${env:K}"),
        ({"command": "x", "env": {"K": "${K:-no}"}}, "6:10: mcpServers.it.env.K: found ${K:-no}, expected a variable"),
        ({"command": "x", "args": ["a", "${env:K}"]}, "7:5: mcpServers.it.args[1]: found ${env:K}, expected none here"),
        ({"command": "${input:x}"}, "4:15: mcpServers.it.command: found ${input:x}, expected none here"),
        ({"command": "x", "cwd": "${X}"}, "5:11: mcpServers.it.cwd: found ${X}, expected none here"),
        ({"url": "https://x/${KEY}"}, "4:11: mcpServers.it.url: found ${KEY}, expected none here"),
        (
            {"url": "https://x", "headers": {"A": "${input:t}"}},
            "6:10: mcpServers.it.headers.A: found ${input:t}: inputs",
        ),
        (
            {"url": "https://x", "headers": {"A": "${userHome}"}},
            "6:10: mcpServers.it.headers.A: found ${userHome}, exp",
        ),
        ({"url": "https://x", "headers": {"A B": "c"}}, "5:15: mcpServers.it.headers: found a header 'A B'"),
    ],
)
def test_unsupported_settings_are_refused_with_their_place(
    tmp_path: Path, fields: dict[str, object], reason: str
) -> None:
    found = read(tmp_path, {"mcpServers": {"it": fields, "good": {"command": "x"}}})
    assert [*found.servers] == ["good"]
    [refused] = reasons(tmp_path, found)
    assert refused.startswith(reason)
    with pytest.raises(ConfigError, match=r"mcp\.json:"):
        found.require_all()


def test_values_of_variables_are_not_shown(tmp_path: Path) -> None:
    found = declare(tmp_path, command="x", env={"K": "sk-secret${input:key}"})
    assert "sk-secret" not in reasons(tmp_path, found)[0]


def test_a_program_puts_variables_of_its_own_into_its_arguments(tmp_path: Path) -> None:
    found = declare(tmp_path, command="npx", args=["mcp-remote", "--header", "A:${KEY}"], env={"KEY": "Bearer x"})
    assert found.servers["it"].args[-1] == "A:${KEY}"


@pytest.mark.parametrize(
    ("fields", "notes"),
    [
        ({"disabled": False, "autoApprove": [], "alwaysAllow": None, "description": ""}, []),
        ({"autoApprove": ["a"]}, ["5:19: mcpServers.it.autoApprove: left out; calls need no confirmation"]),
        ({"timeout": 60}, ["5:15: mcpServers.it.timeout: left out; clients count it in seconds or in milliseconds;"]),
        ({"disabledTools": ["a"]}, ["5:21: mcpServers.it.disabledTools: left out; it has no counterpart"]),
    ],
)
def test_settings_that_say_something_else_are_named(
    tmp_path: Path, fields: dict[str, object], notes: list[str]
) -> None:
    found = declare(tmp_path, command="x", **fields)
    assert found.servers == {"it": McpServer(command="x")}
    assert len(found.notes) == len(notes)
    for note, start in zip(found.notes, notes, strict=True):
        assert note.removeprefix(f"{tmp_path}/mcp.json:").startswith(start)


def test_a_disabled_server_and_unused_inputs_are_named(tmp_path: Path) -> None:
    servers = {"off": {"command": "x", "disabled": True}, "on": {"command": "x"}}
    found = read(tmp_path, {"inputs": [{"id": "key"}], "servers": servers})
    assert [*found.servers] == ["on"]
    assert [note.partition("mcp.json:")[2].partition(":")[2].partition(": ")[2] for note in found.notes] == [
        "inputs: left out; inputs are not supported; write ${env:NAME} for a variable",
        "servers.off.disabled: found true, so the server is left out",
    ]


@pytest.mark.parametrize(
    ("servers", "expected"),
    [
        ({"it": {"command": 5}}, "4:15: mcpServers.it.command: found 5, expected a text"),
        ({"it": {"command": "x", "args": "-y"}}, "5:12: mcpServers.it.args: found '-y', expected a list"),
        ({"it": {"command": "x", "env": {"PORT": 80}}}, "6:13: mcpServers.it.env.PORT: found 80, expected a text"),
        ({"a:b": {"command": "x"}}, "3:10: mcpServers.a:b: found 'a:b', expected the name of a server"),
        ({"it": "npx"}, "3:9: mcpServers.it: found 'npx', expected a mapping"),
    ],
)
def test_a_wrong_type_is_an_error_with_its_place(tmp_path: Path, servers: object, expected: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read(tmp_path, {"mcpServers": servers})
    assert str(raised.value).partition("mcp.json:")[2].startswith(expected)


@pytest.mark.parametrize("content", [{"servers": {"a": "b"}}, {"servers": ["a"]}, {"servers": {"a": {"port": 1}}}, []])
def test_files_of_other_tools_declare_nothing(tmp_path: Path, content: object) -> None:
    assert read(tmp_path, content) == ServerDeclarations({})


@pytest.mark.parametrize("name", ["servers", "mcpServers"])
def test_a_server_of_a_commands_json_may_have_the_name_of_such_a_key(tmp_path: Path, name: str) -> None:
    assert read(tmp_path, {name: {"cmd": "x y"}}).servers[name].args == ("y",)


def test_a_commands_json_of_a_client_declares_servers_for_cases(tmp_path: Path) -> None:
    read(tmp_path, {"mcpServers": {"kb": {"command": "x"}}}, "commands.json")
    assert ConfigRoot(tmp_path).mcp_servers(tmp_path / "test.yaml")["kb"].command == "x"
    read(tmp_path, {"mcpServers": {"kb": {"type": "sse", "url": "https://x"}}}, "commands.json")
    with pytest.raises(ConfigError, match="found 'sse'"):
        ConfigRoot(tmp_path).mcp_servers(tmp_path / "test.yaml")


@pytest.mark.skipif(not REPORTED.is_file(), reason="the files of the reports are not in this checkout")
def test_the_reported_file_is_read() -> None:
    found = read_commands(REPORTED)
    assert (found.refused, found.notes) == ({}, ())
    assert found.servers == {
        "github": McpServer(url="https://api.example.org/mcp/", headers={"Authorization": "Bearer ${TOKEN}"}),
        "kb": McpServer(command="npx", args=("-y", "@scope/kb"), env={"KEY": "abc"}),
    }


def test_a_file_that_would_take_long_to_name_is_bounded(tmp_path: Path) -> None:
    found = declare(tmp_path, command="x", **{f"field{at}": 1 for at in range(5000)})
    assert len(found.notes) == 100
    with pytest.raises(ConfigError, match="found more than 1,000 servers"):
        read(tmp_path, {"mcpServers": {f"s{at}": {"command": "x"} for at in range(1001)}})
