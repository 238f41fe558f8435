"""Real agents by ACP, offline: in their images, or the programs on PATH in bubblewrap. Few sessions, each with all."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Sequence
from typing import Any

import pytest
from support.agents_here import find_acp_sandbox
from support.bench import Bench, Finished, check
from support.fault_endpoint import FaultEndpoint
from support.mcp_projects import McpBench
from support.processes import running

AGENTS = ("codex_acp", "gemini_cli", "qwen_code", "opencode")
SANDBOX, LACKS = find_acp_sandbox(AGENTS)
pytestmark = [pytest.mark.slow, pytest.mark.full, pytest.mark.skipif(bool(LACKS), reason=str(LACKS))]

USAGE = {"input_tokens": 11, "cached_tokens": 2, "output_tokens": 3, "reasoning_tokens": 1}
TURNS = ("Write the word kingfisher into bird.txt, and read it.", "Say goodbye.")
ENDS_AT_DENIAL = ("qwen_code", "opencode")


def step(**said: Any) -> dict[str, Any]:
    return {**said, "usage": USAGE}


def call(portable: Any, **arguments: str) -> dict[str, Any]:
    return step(tool_calls=[{"portable": portable, "arguments": arguments}])


WRITE = call("write", path="bird.txt", content="kingfisher")
ECHO = call({"mcp": "Birds:echo"}, text="pike")
READ = call("shell", command="cat bird.txt")


def run(
    bench: Bench,
    *steps: dict[str, Any],
    checks: Any = (),
    model: str = "demo",
    options: Sequence[str] = (),
    **runner: Any,
) -> tuple[Finished, dict[str, Any]]:
    """Run a session with a case for each agent. Return it, and the runs by the names of their agents."""
    project = McpBench(bench)
    project.servers(Birds=project.server("birds"))
    for name in AGENTS:
        bench.case(
            name,
            runner={"type": "acp", "agent": name, "sandbox": SANDBOX, "start_seconds": 180, **runner},
            input={"turns": [{"role": "user", "content": text} for text in TURNS]},
            mcp_servers=["Birds"],
            deterministic_checks=[check("status", kind="status_is", status="success"), *checks],
        )
        replies = [{"when": TURNS[0], "steps": list(steps)}, {"when": TURNS[1], "steps": [step(content="Goodbye.")]}]
        bench.write(f"cases/{name}/demo.yaml", {"schema_version": 1, "replies": replies})
    bench.profile("here", sandbox="local", policy={"max_concurrency": 16})
    finished = bench.run(f"--model={model}", "--agentbench-run-profile=here", *options, "cases")
    found = [json.loads(path.read_text(encoding="utf-8")) for path in bench.path.glob("outputs/runs/**/run_1.json")]
    return finished, {each["case_id"]: each for each in found}


def events(run: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return [each["data"] for each in run["trace"] if each["type"] == "runner" and each["name"] == name]


def test_one_script_with_a_server_for_four_agents(bench: Bench) -> None:
    checks = [
        check("wrote", kind="regex_match", path="bird.txt", pattern="^kingfisher$"),
        check("called", kind="tool_called", name="Birds:echo", arguments={"text": "pike"}),
        check("shell", kind="tool_called", portable="shell"),
    ]
    finished, runs = run(bench, WRITE, ECHO, READ, step(content="A kingfisher."), checks=checks)
    assert finished.outcomes == {f"{name}[demo]": "passed" for name in AGENTS}, finished.text
    for name, found in runs.items():
        answers = [e["content"] for e in found["trace"] if e["type"] == "message" and e["role"] == "assistant"]
        assert answers == ["A kingfisher.", "Goodbye."], name
        assert {field: found["usage"][field] for field in USAGE} == {field: 5 * n for field, n in USAGE.items()}, name
        calls = [each for each in found["trace"] if each["type"] == "tool_call"]
        assert [each["name"] for each in calls].count("Birds:echo") == 1, name
        assert [each for each in calls if each.get("executed") is False] == [], name
        assert found["provider"]["usage_source"] == "gateway"


def test_a_denied_permission_is_recorded_and_nothing_is_executed(bench: Bench) -> None:
    denied = check("denied", kind="permission_asked", title="*", answer="deny")
    finished, runs = run(bench, ECHO, step(content="A kingfisher."), checks=[denied], permissions="deny")
    # Codex asks nothing for a tool that only reads
    outcomes = {f"{name}[demo]": "failed" if name == "codex_acp" else "passed" for name in AGENTS}
    assert finished.outcomes == outcomes, finished.text
    assert not events(runs.pop("codex_acp"), "permission")
    for name, found in runs.items():
        [made] = [each for each in found["trace"] if each["type"] == "tool_call"]
        assert (made["name"], made["executed"]) == ("Birds:echo", False), name
        assert events(found, "turn")[0]["stop_reason"] == "end_turn", name


def test_a_time_limit_cancels_a_command(bench: Bench) -> None:
    sleeps = call("shell", command="python3 -c 'import time; time.sleep(616)'")
    began = time.monotonic()
    _, runs = run(bench, sleeps, step(content="Done."), timeout_seconds=20)
    assert runs.pop("codex_acp")["status"] == "success"  # Codex goes on while a slow command runs
    assert {found["error"]["code"] for found in runs.values()} == {"run_timeout"}
    assert time.monotonic() - began < 200
    assert not running("time.sleep(616)")


def test_an_outage_is_no_answer(bench: Bench) -> None:
    finished, runs = run(bench, WRITE, {"error": {"status": 500}}, retries=0)
    assert set(finished.outcomes.values()) == {"error"}, finished.text
    assert {found["status"] for found in runs.values()} == {"provider_error"}


def test_a_time_limit_cancels_a_request_to_the_model(bench: Bench) -> None:
    with FaultEndpoint(latency=30) as endpoint:
        bench.models({"model_id": "real", "base_url": endpoint.base_url, "api_key_env": "none"})
        _, runs = run(bench, model="real", timeout_seconds=8)
    # The request to the model has the same limit, and ends first if the agent was slow to send it
    assert {found["error"]["code"] for found in runs.values()} <= {"run_timeout", "timeout"}
    for name, found in runs.items():
        [turn] = events(found, "turn")
        assert 8 <= turn["seconds"] < 18, name


def echo_and_say(body: dict[str, Any]) -> dict[str, Any]:
    """Call the server's echo, under an id that is another one each time, and then answer. A title needs no call."""
    names = [tool["function"]["name"] for tool in body.get("tools", ())]
    echo = next((name for name in names if name.endswith("echo")), None)
    if body["messages"][-1]["role"] == "tool" or echo is None:
        return {"role": "assistant", "content": f"A pike, {uuid.uuid4().hex}"}
    function = {"name": echo, "arguments": '{"text": "pike"}'}
    call = {"id": f"call_{uuid.uuid4().hex}", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def replies(run: dict[str, Any]) -> list[str]:
    """Return the model's messages in any order: a request for a title goes beside the others."""
    return sorted(json.dumps(each["message"], sort_keys=True) for each in events(run, "reply_message"))


def test_recordings_are_replayed_on_another_day(bench: Bench) -> None:
    called = check("called", kind="tool_called", name="Birds:echo", arguments={"text": "pike"})
    with FaultEndpoint(answer=echo_and_say) as endpoint:
        bench.models({"model_id": "real", "base_url": endpoint.base_url, "api_key_env": "none"})
        record = ["--agentbench-cassettes=record"]
        finished, recorded = run(bench, checks=[called], model="real", options=record, env={"TZ": "Etc/GMT+12"})
        assert finished.outcomes == {f"{name}[real]": "passed" for name in AGENTS}, finished.text
        asked = len(endpoint.requests)
        # 26 hours from there it is always another day
        replay = ["--agentbench-cassettes=replay"]
        finished, replayed = run(bench, checks=[called], model="real", options=replay, env={"TZ": "Etc/GMT-14"})
    assert finished.outcomes == {f"{name}[real]": "passed" for name in AGENTS}, finished.text
    assert len(endpoint.requests) == asked
    for name, found in replayed.items():
        assert replies(found) == replies(recorded[name]), name
