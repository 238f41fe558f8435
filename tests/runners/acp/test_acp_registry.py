"""`agentbench agents list --acp FILE` and `agents init NAME --acp FILE`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.bench import Bench

from pytest_agentbench.cli import main
from pytest_agentbench.cli.places import enclosing_root
from pytest_agentbench.runners.agents.adapter import find_adapter

REGISTRY = {
    "version": "1.0.0",
    "agents": [
        {
            "id": "some-agent",
            "name": 'Some "agent": #1',
            "version": "1.2.3",
            "description": "of a future registry",
            "license": "MIT",
            "distribution": {"npx": {"package": "@some/agent", "args": ["--acp"], "env": {"QUIET": "1"}}},
        },
        {"id": "py-agent", "name": "P", "version": "2", "distribution": {"uvx": {"package": "py-agent==2.1"}}},
        {
            "id": "archive",
            "name": "A",
            "version": "3",
            "distribution": {"binary": {"linux-x86_64": {"archive": "x", "cmd": "y"}}},
        },
    ],
}


@pytest.fixture
def registry(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(bench.path)
    return bench.write("registry.json", json.dumps(REGISTRY))


def test_a_registrys_agents_are_listed(registry: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["agents", "list", "--acp", str(registry)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "agent       version  licence  kind",
        "some-agent  1.2.3    MIT      npx",
        "py-agent    2        unknown  uvx",
        "archive     3        unknown  binary",
    ]


def test_an_entry_becomes_an_adapter(registry: Path, bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["agents", "init", "some_agent", "--acp", str(registry)]) == 0
    assert main(["agents", "init", "py_agent", "--acp", str(registry)]) == 0
    root = enclosing_root(bench.path)
    npm, pypi = find_adapter("some_agent", root).program, find_adapter("py_agent", root).program
    assert (npm.title, npm.install.npm, npm.env) == ('Some "agent": #1', "@some/agent@1.2.3", {"QUIET": "1"})
    assert npm.acp is not None
    assert npm.acp.argv == ("agent", "--acp")
    assert pypi.acp is not None
    assert (pypi.install.pypi, pypi.acp.argv) == ("py-agent==2.1", ("py-agent",))
    assert main(["validate", "agents"]) == 0
    assert main(["agents", "show", "some_agent"]) == 0
    assert "by ACP:\n  agent\n  --acp\n" in capsys.readouterr().out


def test_errors_name_the_file_and_what_to_do(registry: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["agents", "init", "archive", "--acp", str(registry)]) == 1
    assert "archive is distributed as binary: install it yourself, then name it in" in capsys.readouterr().err
    assert main(["agents", "init", "some_agnt", "--acp", str(registry)]) == 1
    assert "there is no agent 'some_agnt'; did you mean 'some_agent'?" in capsys.readouterr().err
    registry.write_text('{"agents": [\n{"id": "x", "name": "X", "distribution": {}}]}')
    assert main(["agents", "list", "--acp", str(registry)]) == 1
    assert "registry.json:2:1: version: missing; add it" in capsys.readouterr().err
