"""What an agent may do of its own: it changes no number of its run, leaves nothing behind, and asks nobody else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.bench import Bench, Finished, check
from support.docker_here import IMAGE, needs_bubblewrap, needs_docker
from support.processes import running

STUB = Path(__file__).parents[2] / "support" / "stub_agent.py"
ADAPTER: dict[str, Any] = {
    "schema_version": 1,
    "name": "stub",
    "title": "Stub",
    "licence": "MIT",
    "install": {"pypi": "stub==1.0.0"},
    "dialects": ["chat", "messages"],
    "argv": ["python3", "{workspace}/agent.py", "{message}"],
    "answer": {"from": "stdout_json", "path": "result.text"},
    "reported": {"path": "counted", "input": "in", "output": "out"},
    "tools": {"shell": {"name": "sh", "arguments": {"command": "{command}"}}},
}
SANDBOXES = [pytest.param("docker", marks=needs_docker), pytest.param("bubblewrap", marks=needs_bubblewrap)]


def run(bench: Bench, text: str, sandbox: str, *, adapter: Any = ADAPTER, **runner: Any) -> Finished:
    """A session with one run of the stub: a command, then its answer, 11 and 3 tokens each."""
    image = {"image": IMAGE} if sandbox == "docker" else {}
    bench.write("cases/agents/stub/agent.yaml", adapter)
    bench.case(
        "one",
        runner={"type": "agent", "agent": "stub", "sandbox": sandbox, "timeout_seconds": 60, **image, **runner},
        input={"messages": [{"role": "user", "content": text}]},
        workspace="ws",
        deterministic_checks=[check("paris", kind="regex_match", pattern="Paris")],
    )
    bench.write("cases/one/ws/agent.py", STUB.read_text(encoding="utf-8"))
    usage = {"usage": {"input_tokens": 11, "output_tokens": 3}}
    calls = [{"portable": "shell", "arguments": {"command": "echo hi"}}]
    steps = [{"tool_calls": calls, **usage}, {"content": "Paris", **usage}]
    bench.write("cases/one/demo.yaml", {"schema_version": 1, "replies": [{"steps": steps}]})
    return bench.run("--model", "demo", "-rs", "cases")


def artifact(bench: Bench) -> dict[str, Any]:
    [path] = bench.path.glob("outputs/runs/**/run_1.json")
    return dict(json.loads(path.read_text(encoding="utf-8")))


@pytest.mark.slow
@pytest.mark.parametrize("sandbox", SANDBOXES)
def test_an_agent_changes_no_number_of_its_run(bench: Bench, sandbox: str) -> None:
    finished = run(bench, "Please forge and count tokens.", sandbox, env={"STUB_COUNTED": "987654"})
    assert finished.outcomes == {"one[demo]": "passed"}, finished.text
    found = artifact(bench)
    assert (found["usage"]["input_tokens"], found["usage"]["output_tokens"]) == (22, 6)
    assert (found["provider"]["requests"], found["provider"]["usage_source"]) == (2, "gateway")
    assert [each["name"] for each in found["trace"] if each["type"] == "tool_call"] == ["sh"]
    assert found["trace"][-1]["content"] == "Paris"
    assert "usage_mismatch: stub reports other token counts than its gateway: input 987,654 for 22" in finished.text


@pytest.mark.slow
@pytest.mark.parametrize("sandbox", SANDBOXES)
def test_an_agent_that_never_ends_leaves_no_process(bench: Bench, sandbox: str) -> None:
    run(bench, "Please never end.", sandbox, timeout_seconds=3)
    found = artifact(bench)
    assert (found["status"], found["error"]["code"]) == ("timed_out", "run_timeout")
    assert found["usage"]["input_tokens"] is None  # it asked for nothing
    assert not running("sleep 613")


@needs_bubblewrap
@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "env", "code", "said"),
    [
        (
            "Answer, or fail.",
            {"STUB_MODEL": "gpt-9"},
            "other_model",
            "the agent asked for the model 'gpt-9', and a run has one model only",
        ),
        (
            "Answer.",
            {"STUB_TOOL": "web_search"},
            "server_tool",
            "the agent asked for the tool 'web_search', which its provider would run",
        ),
        ("Please ask elsewhere.", {}, "agent_exit", "Network is unreachable"),
    ],
)
def test_a_forbidden_request_of_an_agent_fails_its_run(
    bench: Bench, text: str, env: dict[str, str], code: str, said: str
) -> None:
    run(bench, text, "bubblewrap", env=env)
    found = artifact(bench)
    assert (found["status"], found["error"]["code"]) == ("failed", code)
    assert said in found["error"]["message"]


@needs_bubblewrap
@pytest.mark.slow
def test_a_hosted_tool_is_left_out_if_the_adapter_permits_it(bench: Bench) -> None:
    adapter = {**ADAPTER, "server_tools": "remove"}
    finished = run(bench, "Answer.", "bubblewrap", adapter=adapter, env={"STUB_TOOL": "web_search"})
    assert finished.outcomes == {"one[demo]": "passed"}, finished.text
    assert artifact(bench)["provider"]["gateway"]["removed_tools"] == ["web_search"]
    assert "tools that the provider would run were left out of requests: web_search" in finished.text


@needs_bubblewrap
def test_an_agent_that_is_not_installed_skips_its_case(bench: Bench) -> None:
    finished = run(bench, "Answer.", "bubblewrap", adapter={**ADAPTER, "argv": ["no-such-agent", "{message}"]})
    assert finished.outcomes == {"one[demo]": "skipped"}
    assert "no-such-agent is not installed" in finished.text
    assert "install it, or name another sandbox" in finished.text


@needs_docker
def test_an_agent_without_its_image_skips_its_case(bench: Bench) -> None:
    finished = run(bench, "Answer.", "docker", image=None)
    assert finished.outcomes == {"one[demo]": "skipped"}
    assert "there is no image of stub here; build it: agentbench agents image stub" in finished.text
