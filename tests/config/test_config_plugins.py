"""Plugins of agents: their skills, MCP servers, and the parts that are left out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_agentbench.config.base import Guest, Scope
from pytest_agentbench.config.plugins import Plugin, find_plugin, read_plugin, resolve_plugins
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.records.case import McpServer


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def skill(name: str) -> str:
    return f"---\nname: {name}\ndescription: Convert lengths.\n---\nMultiply by 2.54.\n"


def read(folder: Path) -> Plugin:
    return read_plugin(folder, Scope(str(folder.parent), str(folder.parent)))


def test_skills_and_servers_of_a_plugin_are_read_and_other_parts_named(tmp_path: Path) -> None:
    server = {"command": "${CLAUDE_PLUGIN_ROOT}/server", "args": ["--data", "${CLAUDE_PLUGIN_ROOT}/data"]}
    folder = write(
        tmp_path / "units",
        **{
            ".claude-plugin/plugin.json": json.dumps({"name": "lengths", "version": "1", "hooks": "./more.json"}),
            "skills/inches/SKILL.md": skill("inches"),
            "skills/feet/SKILL.md": skill("feet"),
            ".mcp.json": json.dumps({"mcpServers": {"kb": server}}),
            "commands/convert.md": "Convert.",
            "hooks/hooks.json": "{}",
        },
    )
    plugin = read(folder)
    assert plugin.name == "lengths"
    assert [skill.name for skill in plugin.skills] == ["feet", "inches"]
    assert plugin.servers.require_all() == {
        "kb": McpServer(command=f"{folder}/server", args=("--data", f"{folder}/data"))
    }
    assert plugin.left_out == ("commands", "hooks", ".claude-plugin/plugin.json: hooks")


def test_servers_without_the_key_mcp_servers_are_read_and_errors_keep_their_place(tmp_path: Path) -> None:
    folder = write(tmp_path / "p", **{".mcp.json": '{\n "kb": {"command": "kb"},\n "web": {"type": "sse"}\n}'})
    servers = read(folder).servers
    assert servers.servers == {"kb": McpServer(command="kb")}
    assert servers.refused["web"].startswith(f"{folder}/.mcp.json:3:18: ")
    write(folder, **{".mcp.json": '{\n "kb": {"command": 3}\n}'})
    with pytest.raises(ConfigError, match=r"p/\.mcp\.json:2:20: .*kb\.command: found 3"):
        read(folder)


def test_the_folder_of_a_skill_is_a_plugin(tmp_path: Path) -> None:
    folder = write(tmp_path / "inches", **{"SKILL.md": skill("inches"), "evals/a/prompt.md": "How long?"})
    assert [skill.name for skill in read(folder).skills] == ["inches"]
    assert find_plugin(folder / "evals/a", tmp_path) == folder
    assert find_plugin(tmp_path / "evals", tmp_path) is None


def test_a_folder_without_parts_of_a_plugin_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match=r"empty: found none of .* expected the folder of a plugin"):
        read(tmp_path / "empty")
    with pytest.raises(ConfigError, match="plugins: found 'gone', expected an existing folder"):
        resolve_plugins(["gone"], Scope(str(tmp_path)))


def test_a_link_that_leaves_the_scope_is_refused(tmp_path: Path) -> None:
    write(tmp_path, secret='{"name": "s"}')
    folder = write(tmp_path / "root/p", **{"skills/inches/SKILL.md": skill("inches")})
    (folder / ".mcp.json").symlink_to(tmp_path / "secret")
    with pytest.raises(ConfigError, match=r"\.mcp\.json: found '\.mcp\.json', which leaves"):
        read(folder)


def test_servers_of_a_plugin_in_a_folder_that_is_not_trusted_are_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "p", **{".mcp.json": '{"kb": {"command": "kb"}}'})
    with pytest.raises(
        ConfigError, match=r"\.mcp\.json:1:8: kb: found the server 'kb' in a folder that is not trusted"
    ):
        read_plugin(folder, Scope(str(folder), guest=Guest(tmp_path)))
