"""Values of variables go only to permitted hosts and programs."""

from __future__ import annotations

import pytest

from pytest_agentbench.config.keys import (
    PROVIDERS,
    KeyGrants,
    KeysFile,
    find_key_problem,
    find_program_problem,
    find_server_problem,
)
from pytest_agentbench.records.case import McpServer


def grants(**said) -> KeyGrants:
    return KeyGrants((KeysFile(schema_version=1, **said),), "keys.yaml")


@pytest.mark.parametrize(
    ("variable", "url", "environ"),
    [
        ("OPENAI_API_KEY", "https://api.openai.com/v1", {}),
        ("OPENAI_API_KEY", "https://EU.api.openai.com:443/v1", {}),
        ("OPENAI_API_KEY", "http://127.0.0.1:8765/other", {"OPENAI_BASE_URL": "http://127.0.0.1:8765/v1"}),
        ("OPENAI_API_KEY", "https://gateway.example/v1", {"OPENAI_BASE_URL": "https://gateway.example/v1"}),
        ("AZURE_OPENAI_API_KEY", "https://mine.openai.azure.com/openai/v1", {}),
        ("AWS_BEARER_TOKEN_BEDROCK", "https://bedrock-runtime.us-west-2.amazonaws.com/openai/v1", {}),
        ("GITHUB_TOKEN", "https://models.github.ai/inference", {}),
    ],
)
def test_a_key_goes_to_the_hosts_that_it_belongs_to(variable, url, environ) -> None:
    assert find_key_problem(variable, url, KeyGrants(), written=False, environ=environ) is None


@pytest.mark.parametrize(
    ("variable", "url"),
    [
        ("OPENAI_API_KEY", "https://api.openai.com.evil.example/v1"),
        ("OPENAI_API_KEY", "https://evil.example/api.openai.com"),
        ("OPENAI_API_KEY", "https://api.openai.com@evil.example/v1"),
        ("OPENAI_API_KEY", "https://a.b.api.openai.com/v1"),
        ("OPENAI_API_KEY", "http://api.openai.com/v1"),
        ("OPENAI_API_KEY", "http://127.0.0.1:9/v1"),
        ("AZURE_OPENAI_API_KEY", "https://openai.azure.com/v1"),
        ("TEAM_KEY", "https://api.openai.com/v1"),
        ("GITHUB_TOKEN", "https://api.openai.com/v1"),
    ],
)
def test_and_to_no_other(variable, url) -> None:
    environ = {"OPENAI_BASE_URL": "http://127.0.0.1:8765/v1"}
    assert find_key_problem(variable, url, KeyGrants(), written=False, environ=environ) is not None


@pytest.mark.parametrize(
    ("variable", "url", "free"),
    [
        ("TEAM_KEY", "https://llm.example/v1", True),
        ("OPENAI_API_KEY", "http://[::1]:8000/v1", True),
        ("OPENAI_API_KEY", "http://localhost:8000/v1", True),
        ("TEAM_KEY", "http://10.0.0.5:8000/v1", False),
        ("TEAM_KEY", "http://localhost.evil.example/v1", False),
        ("AWS_SECRET_ACCESS_KEY", "https://llm.example/v1", False),
        ("HOME", "https://llm.example/v1", False),
        ("PGPASSWORD", "https://llm.example/v1", False),
        ("SSH_AUTH_SOCK", "https://llm.example/v1", False),
    ],
)
def test_a_pair_that_the_users_root_writes(variable, url, free) -> None:
    assert (find_key_problem(variable, url, KeyGrants(), written=True, environ={}) is None) is free


def test_a_keys_file_grants_any_variable_to_a_host_over_https() -> None:
    granted = grants(hosts={"*.internal.example": ["AWS_SECRET_ACCESS_KEY"]})
    for url, free in {
        "https://llm.internal.example/v1": True,
        "http://llm.internal.example/v1": False,
        "https://a.llm.internal.example/v1": False,
        "https://internal.example/v1": False,
    }.items():
        problem = find_key_problem("AWS_SECRET_ACCESS_KEY", url, granted, written=False, environ={})
        assert (problem is None) is free, url


def test_no_providers_key_counts_as_one_of_something_else() -> None:
    for variable in PROVIDERS:
        problem = find_key_problem(variable, "https://elsewhere.example/v1", KeyGrants(), written=False, environ={})
        assert problem is not None
        assert (
            find_key_problem(variable, "https://elsewhere.example/v1", KeyGrants(), written=True, environ={}) is None
        ), variable


@pytest.mark.parametrize(
    ("server", "free"),
    [
        ({"command": "npx", "args": ["-y", "server-github", "--read-only"]}, True),
        ({"command": "npx", "args": ["-y", "server-github-evil"]}, False),
        ({"command": "./npx", "args": ["-y", "server-github"]}, False),
        ({"command": "npx", "args": ["-y", "server-github"], "env": {"NODE_OPTIONS": "--require=x"}}, False),
        ({"command": "npx", "args": ["-y", "server-github"], "cwd": "/tmp/theirs"}, False),
    ],
)
def test_a_keys_file_grants_a_program_by_the_words_that_its_command_begins_with(server, free) -> None:
    granted = grants(programs={"npx -y server-github": ["GITHUB_TOKEN"]})
    asked = McpServer(**server, env_from=["GITHUB_TOKEN"])
    assert (find_server_problem(asked, granted, written=False) is None) is free
    assert find_server_problem(asked, granted, written=True) is None


def test_programs_are_installed_or_lie_below_the_root(tmp_path, monkeypatch) -> None:
    root, elsewhere, bin_ = (tmp_path / name for name in ("root", "elsewhere", "bin"))
    for folder in (root / "tools", elsewhere, bin_):
        folder.mkdir(parents=True)
    (root / "link").symlink_to(elsewhere)
    monkeypatch.setenv("PATH", f"{bin_}:/usr/bin:relative")
    free = {"podman": True, "tools/x": True, "./x": True, f"{bin_}/x": True, "/usr/bin/podman": True}
    free |= {"../elsewhere/x": False, f"{elsewhere}/x": False, "link/x": False, f"{tmp_path}/rootless/x": False}
    for command, is_free in free.items():
        assert (find_program_problem(command, str(root), str(root)) is None) is is_free, command
    assert find_program_problem("tools/x", str(root), None) is not None
    assert find_program_problem("/usr/bin/x", str(root), None) is None
