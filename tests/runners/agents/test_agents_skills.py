"""The real agents with and without a skill, on this machine itself: each lists the skill, and its own tool loads it.

AGENTBENCH_TEST_NPM_AGENTS names a folder in which `npm install` has put the versions of the adapters.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.bench import Bench, Finished, check
from support.skills import facts, read_artifact, write_script, write_skill, write_suite

import pytest_agentbench.runners.agents

PROGRAMS = Path(os.environ.get("AGENTBENCH_TEST_NPM_AGENTS", "/nowhere"), "node_modules/.bin")
CALLS: dict[str, dict[str, Any]] = {
    "claude_code": {"name": "Skill", "arguments": {"skill": "signs"}},
    "codex": {"portable": "shell", "arguments": {"command": "cat ~/.agents/skills/signs/SKILL.md"}},
    "gemini_cli": {"name": "activate_skill", "arguments": {"name": "signs"}},
    "opencode": {"name": "skill", "arguments": {"name": "signs"}},
    "qwen_code": {"name": "skill", "arguments": {"skill": "signs"}},
}
"""The call by which the model of each agent loads the skill."""
DATA = Path(pytest_agentbench.runners.agents.__file__).with_name("data")

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(not PROGRAMS.is_dir(), reason="AGENTBENCH_TEST_NPM_AGENTS names no folder with agents of npm"),
]


@pytest.fixture
def project(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    # OpenCode's tool for skills calls ripgrep, which the package of Codex brings
    ripgrep = next(PROGRAMS.parent.glob("@openai/codex-*/vendor/*/codex-path/rg"))
    monkeypatch.setenv("PATH", os.pathsep.join([str(PROGRAMS), str(ripgrep.parent), os.environ["PATH"]]))
    write_skill(bench)
    write_suite(bench)
    return bench


def edit_adapter(bench: Bench, agent: str, old: str, new: str) -> None:
    """Give the project an adapter of its own, with another text in place of `old`."""
    folder = bench.path / "cases/agents" / agent
    shutil.copytree(DATA / agent, folder)
    text = (folder / "agent.yaml").read_text(encoding="utf-8")
    assert old in text
    (folder / "agent.yaml").write_text(text.replace(old, new), encoding="utf-8")


def agent_case(bench: Bench, case_id: str, agent: str, *steps: dict[str, Any]) -> None:
    """Write a case in which the model makes the calls, answers Paris, and should use the skill."""
    bench.case(
        case_id,
        runner={"type": "agent", "agent": agent, "sandbox": "local", "timeout_seconds": 300},
        input={"turns": [{"role": "user", "content": "The capital of France?"}]},
        deterministic_checks=[check("paris", kind="contains", text="Paris")],
        skill={"name": "signs", "should_trigger": True},
    )
    write_script(bench, case_id, *({"tool_calls": [step]} for step in steps), {"content": "Paris"})


def run(bench: Bench, *options: str) -> Finished:
    return bench.run("cases", "--model", "demo", "--agentbench-suite", "ab", *options)


@pytest.mark.parametrize("agent", CALLS)
def test_an_agent_lists_its_skill_and_loads_it_if_its_model_calls_for_it(project: Bench, agent: str) -> None:
    if agent == "claude_code":  # as root it does not start if it may do everything
        edit_adapter(project, agent, "--permission-mode=bypassPermissions", "--allowed-tools=Skill")
    agent_case(project, "loads", agent, CALLS[agent])
    agent_case(project, "ignores", agent)
    finished = run(project)
    assert {*finished.outcomes.values()} == {"passed"}, finished.text
    assert facts(read_artifact(project, finished.runs["loads[demo:with]"]))[:3] == ["listed", "attempted", "loaded"]
    assert facts(read_artifact(project, finished.runs["ignores[demo:with]"])) == ["listed"]
    assert facts(read_artifact(project, finished.runs["loads[demo:without]"])) == []
    without, with_skill = finished.report["models"]
    assert "skills" not in without
    assert with_skill["skills"]["signs"]["should_trigger"]["rate"] == 0.5


def test_gemini_without_yolo_and_opencode_without_ripgrep_are_errors_of_the_run(
    project: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit_adapter(project, "gemini_cli", " --yolo,", "")
    agent_case(project, "gemini", "gemini_cli")
    finished = run(project, "--agentbench-variant", "with")
    assert finished.outcomes == {"gemini[demo:with]": "error"}
    assert "the skill signs was not offered to the agent" in finished.text
    shutil.rmtree(project.path / "cases/gemini")
    monkeypatch.setenv("PATH", os.pathsep.join([str(PROGRAMS), *os.environ["PATH"].split(os.pathsep)[2:]]))
    agent_case(project, "opencode", "opencode", CALLS["opencode"])
    finished = run(project, "--agentbench-variant", "with")
    assert finished.outcomes == {"opencode[demo:with]": "error"}
    assert "the skill signs could not be loaded: skill: ripgrep execution failed" in finished.text
