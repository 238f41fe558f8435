"""The root of a session and of commands: they agree, and a folder of somebody else's does not choose it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.bench import Bench

from pytest_agentbench.cli import main

pytestmark = pytest.mark.slow  # whole sessions; the matrix is tests/config/test_config_root_search.py
VENDOR = "cases/vendor"
SELF_TRUST = '[tool.pytest.ini_options]\nagentbench_configs = "."\nagentbench_trust = ["."]\n'


@pytest.fixture
def project(bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Bench:
    """A project with a folder of somebody else's, which has all that could make it a project of its own."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    bench.agent()
    bench.models()
    bench.case("own")
    server = {"command": "touch", "args": [str(bench.path / "escaped")], "sandbox": "local"}
    bench.write(f"{VENDOR}/servers.yaml", {"schema_version": 1, "servers": {"x": server}})
    bench.write(f"{VENDOR}/models.yaml", {"schema_version": 1, "models": []})
    bench.write(f"{VENDOR}/pyproject.toml", SELF_TRUST)
    (bench.path / VENDOR / ".git").mkdir()
    bench.case("theirs", folder=VENDOR, mcp_servers=["x"])
    return bench


def test_sessions_and_commands_take_the_same_root(project: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    line = f"configuration root: {project.path}/cases ("
    refused = f"found the MCP servers 'x', which only files in {project.path}/{VENDOR} declare"
    for asked in ("cases", VENDOR, "."):
        finished = project.run(asked)
        assert line in finished.text
        assert refused in finished.text
        assert set(finished.outcomes) <= {"own[agent]"}
        for command in ("validate", "list", "doctor", "trust"):
            if command != "trust" or asked == VENDOR:
                main([command, asked])
                captured = capsys.readouterr()
                assert refused in captured.out + captured.err or command == "doctor"
                assert (line in captured.out + captured.err) == (command in ("validate", "doctor"))
        main(["trust", "--revoke", VENDOR])
        capsys.readouterr()
    assert not (project.path / "escaped").exists()


def test_a_pytest_file_of_a_guest_neither_names_the_root_nor_trusts(project: Bench) -> None:
    finished = project.run(VENDOR)
    assert (
        f"agentbench: pytest is configured by {project.path}/{VENDOR}/pyproject.toml in a guest's folder"
        in finished.text
    )
    project.write(f"{VENDOR}/pyproject.toml", '[tool.pytest.ini_options]\naddopts = "--agentbench-trust=."\n')
    assert "found the MCP servers 'x'" in project.run(VENDOR).text
    assert "found the MCP servers 'x'" not in project.run(VENDOR, f"--agentbench-trust={VENDOR}", "--collect-only").text


@pytest.mark.parametrize("option", ["-cother.ini", "-oagentbench_configs=configs"])
def test_the_command_line_names_the_root(project: Bench, option: str) -> None:
    project.write("other.ini", "[pytest]\nagentbench_configs = configs\n")
    project.write("configs/models.yaml", {"schema_version": 1, "models": []})
    finished = project.run(option, "cases/own")
    assert f"configuration root: {project.path}/configs (named by agentbench_configs" in finished.text
    assert finished.outcomes == {"own[agent]": "passed"}


def test_rootdir_does_not_move_the_root(project: Bench) -> None:
    finished = project.run(f"--rootdir={VENDOR}", "cases")
    assert f"configuration root: {project.path}/cases (" in finished.text
    assert "1 passed, 1 error" in finished.text  # the report lies below rootdir, as pytest's own files do


def test_workers_take_the_root_of_their_controller(project: Bench) -> None:
    finished = project.spawn("-n1", VENDOR)
    assert f"configuration root: {project.path}/cases (" in finished.text
    assert "found the MCP servers 'x'" in finished.text
    assert not finished.outcomes


def test_a_python_package_named_agents_leaves_the_cases_their_root(bench: Bench) -> None:
    bench.write("agents/__init__.py", "")
    bench.write("agents/research/prompts.yaml", "system: be brief\n")
    bench.agent()
    bench.profile("standard")
    bench.case("own")
    finished = bench.run("--agentbench-run-profile=standard")
    assert finished.outcomes == {"own[agent]": "passed"}, finished.text


def test_a_new_agent_goes_into_the_root_that_is_in_use(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.models()
    bench.case("own")
    assert main(["agents", "init", "mine"]) == 0
    assert (bench.path / "cases" / "agents" / "mine" / "agent.yaml").is_file()
    capsys.readouterr()
    assert main(["agents", "show", "mine"]) == 0
    assert main(["agents", "show", "other"]) != 0
    said = capsys.readouterr().err
    assert "there is no agent 'other'" in said
    assert f"(searched: {bench.path}/cases/agents, plugins, this package)" in said


def test_doctor_reads_the_profiles_of_the_root_below(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.profile("quick")
    bench.case("own")
    main(["doctor", "--json"])
    findings = {each["name"]: each["said"] for each in json.loads(capsys.readouterr().out)["findings"]}
    assert findings["configuration root"].startswith(f"{bench.path}/cases (")
    assert "profile quick" in findings
