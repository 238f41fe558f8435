"""The real Claude Code in bubblewrap, where a person has installed it and agreed to its terms.

AGENTBENCH_TEST_CLAUDE_CODE names a folder in which `npm install --ignore-scripts` has put the version of the adapter.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from support.bench import Bench, check
from support.docker_here import bubblewrap_lacks
from support.fault_endpoint import FaultEndpoint, in_order

from pytest_agentbench.runners.agents.adapter import find_adapter

FOLDER = Path(os.environ.get("AGENTBENCH_TEST_CLAUDE_CODE", "/nowhere"), "node_modules/@anthropic-ai")
PROGRAM = FOLDER / "claude-code-linux-x64/claude"
USAGE = {"input_tokens": 11, "cached_tokens": 2, "output_tokens": 3, "reasoning_tokens": 1}
TURNS = ("What is in bird.txt?", "And now?")

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(not PROGRAM.is_file(), reason="AGENTBENCH_TEST_CLAUDE_CODE names no folder with Claude Code"),
    pytest.mark.skipif(bubblewrap_lacks() is not None, reason=str(bubblewrap_lacks())),
]


@pytest.fixture
def project(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    installed = json.loads((FOLDER / "claude-code/package.json").read_text(encoding="utf-8"))
    assert installed["version"] == find_adapter("claude_code").program.install.version
    monkeypatch.setenv("PATH", os.pathsep.join([str(PROGRAM.parent), os.environ["PATH"]]))
    return bench


def write_case(bench: Bench, zone: str = "UTC", **runner: Any) -> None:
    bench.case(
        "one",
        runner={"type": "agent", "agent": "claude_code", "sandbox": "bubblewrap", "env": {"TZ": zone}, **runner},
        input={"turns": [{"role": "user", "content": text} for text in TURNS]},
        workspace="ws",
        deterministic_checks=[check("answer", kind="regex_match", pattern="kingfisher")],
    )
    bench.write("cases/one/ws/bird.txt", "a kingfisher")


def read_run(bench: Bench) -> dict[str, Any]:
    [path] = bench.path.glob("outputs/runs/**/run_1.json")
    run: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return run


def look_and_say(body: dict[str, Any]) -> dict[str, Any]:
    if body["messages"][-1]["role"] == "tool":
        return {"role": "assistant", "content": "A kingfisher."}
    function = {"name": "Bash", "arguments": json.dumps({"command": "cat bird.txt"})}
    call = {"id": f"call_{len(body['messages'])}", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def test_a_scripted_model_works_with_its_tools_and_continues_its_session(project: Bench) -> None:
    write_case(project)
    steps = [
        {"tool_calls": [{"portable": "write", "arguments": {"path": "new.txt", "content": "new"}}], "usage": USAGE},
        {"tool_calls": [{"portable": "shell", "arguments": {"command": "cat bird.txt new.txt"}}], "usage": USAGE},
        {"content": "Two.", "usage": USAGE},
    ]
    last = [{"content": "A kingfisher.", "usage": USAGE}]
    replies = [{"when": TURNS[0], "steps": steps}, {"when": TURNS[1], "steps": last}]
    project.write("cases/one/demo.yaml", {"schema_version": 1, "replies": replies})
    finished = project.run("--model", "demo", "cases")
    assert finished.outcomes == {"one[demo]": "passed"}, finished.text
    run = read_run(project)
    assert {name: run["usage"][name] for name in USAGE} == {name: 4 * count for name, count in USAGE.items()}
    names = {each["name"] for each in run["trace"] if each["type"] == "runner"}
    assert "usage_mismatch" not in names
    assert [each["name"] for each in run["trace"] if each["type"] == "tool_call"] == ["Write", "Bash"]
    assert [each["path"] for each in run["changes"]] == ["new.txt"]


def test_a_recording_is_replayed_on_another_day(project: Bench) -> None:
    with FaultEndpoint(answer=look_and_say) as endpoint:
        project.models({"model_id": "real", "base_url": endpoint.base_url, "api_key_env": "none"})
        write_case(project, "Etc/GMT+12")
        finished = project.run("--model", "real", "--agentbench-cassettes", "record", "cases")
        assert finished.outcomes == {"one[real]": "passed"}, finished.text
        asked = [json.dumps(each.body["messages"]) for each in endpoint.requests]
    assert len(asked) == 4
    assert asked[2].index(TURNS[0]) < asked[2].index("A kingfisher.") < asked[2].index(TURNS[1])
    write_case(project, "Etc/GMT-14")
    finished = project.run("--model", "real", "--agentbench-cassettes", "replay", "cases")
    assert finished.outcomes == {"one[real]": "passed"}, finished.text


def test_an_outage_ends_it(project: Bench) -> None:
    with FaultEndpoint(in_order(*["500"] * 40), answer=look_and_say) as endpoint:
        project.models({"model_id": "real", "base_url": endpoint.base_url, "api_key_env": "none"})
        write_case(project, retries=0)
        finished = project.run("--model", "real", "cases")
    assert finished.outcomes == {"one[real]": "error"}, finished.text
    run = read_run(project)
    assert run["error"]["code"] == "server_error"
    assert run["provider"]["gateway"].get("asked_after_outage", 0) <= 2
