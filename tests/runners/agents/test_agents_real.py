"""The real agents in their images: few sessions, each with all of them side by side, as a turn takes up to 20 s."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Sequence
from typing import Any

import pytest
from support.agents_here import agent_lacks
from support.bench import Bench, Finished, check
from support.fault_endpoint import FaultEndpoint, in_order

from pytest_agentbench.config.agent_file import fill
from pytest_agentbench.runners.agents.adapter import find_adapter

AGENTS = ("codex", "gemini_cli", "qwen_code", "opencode", "cn", "gptme", "mini_swe_agent", "cline")
"""The agents with tools."""
WITH_SESSIONS = (*AGENTS[:6], "aider")
ALL = (*AGENTS, "aider")
REPORTING = ("codex", "gemini_cli", "qwen_code", "opencode", "cline")
"""The agents that report their own counts of tokens."""
DIALECTS = {"codex": "responses", "gemini_cli": "gemini"}
LACKS = "; ".join(dict.fromkeys(lacks for name in ALL if (lacks := agent_lacks(name)) is not None))
pytestmark = [pytest.mark.full, pytest.mark.skipif(bool(LACKS), reason=LACKS)]

USAGE = {"input_tokens": 11, "cached_tokens": 2, "output_tokens": 3, "reasoning_tokens": 1}
LOOK = "cat bird.txt; sleep 1"
"""Qwen Code 0.24.4 loses what it has not read when the command ends: the output of every tenth `cat bird.txt`."""
PLACE = f"id -u; touch /usr/x 2>&1; ls /sys/class/net; {LOOK}"


def step(**said: Any) -> dict[str, Any]:
    return {**said, "usage": USAGE}


def call(portable: str, **arguments: str) -> dict[str, Any]:
    return step(tool_calls=[{"portable": portable, "arguments": arguments}])


def case(bench: Bench, name: str, *texts: str, agent: str = "codex", **fields: Any) -> None:
    bench.case(
        name,
        runner={"type": "agent", "agent": agent, "timeout_seconds": 600, **fields.pop("runner", {})},
        input={"turns": [{"role": "user", "content": text} for text in texts]},
        **{"deterministic_checks": [check("answer", kind="regex_match", pattern="kingfisher")], **fields},
    )


def script(bench: Bench, name: str, *replies: dict[str, Any]) -> None:
    bench.write(f"cases/{name}/demo.yaml", {"schema_version": 1, "replies": list(replies)})


def run(bench: Bench, model: str, agents: Sequence[str] = (), *options: str) -> Finished:
    chosen = [part for name in agents for part in ("--agentbench-agent", name)]
    return bench.run("--model", model, *chosen, *options, "cases")


def artifacts(bench: Bench) -> dict[str, dict[str, Any]]:
    """The runs of the project, by the name of their agent."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in bench.path.glob("outputs/runs/**/run_1.json")]
    return {each["request"]["agent"]: each for each in found}


def events(run: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return [each["data"] for each in run["trace"] if each["type"] == "runner" and each["name"] == name]


def test_one_script_for_all_agents_with_tools(bench: Bench) -> None:
    wrote = check("wrote", kind="regex_match", path="bird.txt", pattern="^kingfisher$")
    shell = check("shell", kind="tool_called", portable="shell")
    answer = check("answer", kind="regex_match", pattern="It's a kingfisher\\.")
    case(bench, "one", "Write kingfisher into bird.txt.", deterministic_checks=[answer, wrote, shell])
    steps = [call("write", path="bird.txt", content="kingfisher"), call("shell", command=PLACE)]
    script(bench, "one", {"steps": [*steps, step(content="It's a kingfisher.")]})
    finished = run(bench, "demo", AGENTS)
    assert finished.outcomes == {f"one[{name}+demo]": "passed" for name in AGENTS}, finished.text
    assert {row["model_id"] for row in finished.runs.values()} == {f"{name}+demo" for name in AGENTS}
    runs = artifacts(bench)
    for name in AGENTS:
        found = runs[name]
        assert f"{name}+demo" in finished.text
        assert {field: found["usage"][field] for field in USAGE} == {field: 3 * n for field, n in USAGE.items()}, name
        assert not events(found, "usage_mismatch"), name
        if name in REPORTING:
            [turn] = events(found, "turn")
            assert turn["agent_reported"]["output"] == 9, name
        assert found["provider"]["usage_source"] == "gateway"
        dialect = {"dialect": DIALECTS.get(name, "chat"), "wire": "chat"}
        [way] = found["provider"]["gateway"]["dialects"]
        assert dialect.items() <= way.items(), name
        calls = [each for each in found["trace"] if each["type"] == "tool_call"]
        portable = [found["request"]["portable"].get(each["name"]) for each in calls[:2]]
        assert portable in (["write", "shell"], ["shell", "shell"]), name
        # Another user than root, a root that is read-only, and no network but its own
        seen = [each["content"] for each in found["trace"] if each["type"] == "tool_result"][1].replace("\\n", "\n")
        assert re.search(r"\b[1-9]\d{3,}\n.*Read-only file system\nlo\nkingfisher\b", seen), seen


def test_no_output_of_tools_is_lost(bench: Bench) -> None:
    commands = [f"{long}echo bird {n}" for n in range(8) for long in ("", "seq 1 3000; ")]
    case(bench, "many", "Look at birds.", deterministic_checks=[check("answer", kind="regex_match", pattern="Many\\.")])
    script(bench, "many", {"steps": [*(call("shell", command=command) for command in commands), step(content="Many.")]})
    finished = run(bench, "demo", AGENTS)
    assert finished.outcomes == {f"many[{name}+demo]": "passed" for name in AGENTS}, finished.text
    for name, found in artifacts(bench).items():
        results = [each["content"] for each in found["trace"] if each["type"] == "tool_result"]
        lost = [result for n, result in enumerate(results) if not re.search(rf"(?<!echo )bird {n // 2}\b", result)]
        assert len(results) == len(commands), name
        assert lost == [], name


def ask_of(name: str) -> list[str]:
    """The turns of an agent that goes on, or of one that cannot."""
    return [f"What is in bird.txt? ({name})", *([f"And now? ({name})"] if name in WITH_SESSIONS else [])]


def projects(bench: Bench, endpoint: FaultEndpoint, **runner: Any) -> None:
    """A case for each agent: its name in the texts tells the endpoint who asks."""
    bench.models({"model_id": "real", "base_url": endpoint.base_url, "api_key_env": "none"})
    for name in ALL:
        case(bench, name, *ask_of(name), agent=name, workspace="ws", runner=runner)
        bench.write(f"cases/{name}/ws/bird.txt", "a kingfisher")


def call_shell(body: dict[str, Any], command: str) -> dict[str, Any]:
    """A call of the shell of whoever asks, under an id that is another one each time."""
    said = json.dumps(body["messages"])
    tool = find_adapter(next(name for name in AGENTS if f"({name})" in said)).program.tools["shell"]
    return call_tool(tool.name, fill(tool.arguments, {"command": command}))


def call_tool(name: str, arguments: dict[str, Any], content: str | None = None) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {"id": f"call_{uuid.uuid4().hex}", "type": "function", "function": function}
    return {"role": "assistant", "content": content, "tool_calls": [call]}


def look_and_say(body: dict[str, Any]) -> dict[str, Any]:
    text, answer = json.dumps(body["messages"]), f"A kingfisher, {uuid.uuid4().hex}"
    if "(aider)" in text:  # it offers no tools
        return {"role": "assistant", "content": answer}
    if body["messages"][-1]["role"] != "tool":
        return call_shell(body, LOOK)
    if "(mini_swe_agent)" in text:
        return call_shell(body, "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; cat bird.txt")
    if "(gptme)" in text:
        return call_tool("complete", {}, answer)
    return {"role": "assistant", "content": answer}


def tell(run: dict[str, Any]) -> str:
    """What a run came to, without what is of its own hour and machine; what is empty in a message is not kept."""

    def keep(value: Any) -> Any:
        if isinstance(value, dict):
            said = {name: each for name, each in value.items() if name != "at" and each is not None}
            return {name: keep(each) for name, each in said.items() if not name.endswith(("seconds", "_per_second"))}
        return [keep(each) for each in value] if isinstance(value, list) else value

    text = json.dumps(keep([run["status"], run["usage"], run["changes"], run["trace"]]), indent=1)
    for each in find_adapter(run["request"]["agent"]).program.volatile:
        text = re.sub(each.pattern, each.as_, text)
    return text


def test_recordings_are_replayed_on_another_day(bench: Bench) -> None:
    with FaultEndpoint(answer=look_and_say) as endpoint:
        projects(bench, endpoint, env={"TZ": "Etc/GMT+12"})
        finished = run(bench, "real", (), "--agentbench-cassettes", "record")
        assert finished.outcomes == {f"{name}[real]": "passed" for name in ALL}, finished.text
    recorded = artifacts(bench)
    for name in ALL:
        asked = [each.body["messages"] for each in endpoint.requests if f"({name})" in json.dumps(each.body)]
        per_turn = 1 if name == "aider" else 2
        assert len(asked) == per_turn * len(ask_of(name)), name
        reported = [each["agent_reported"] for each in events(recorded[name], "turn")]
        if name in WITH_SESSIONS:
            first, second = ask_of(name)
            # The second turn's request holds the first turn and its answer
            text = json.dumps(asked[per_turn])
            assert text.index(first) < text.index("A kingfisher, ") < text.index(second), name
        if name in REPORTING:
            assert [(each["input"], each["output"]) for each in reported] == [(20, 10)] * len(ask_of(name)), name
        assert not events(recorded[name], "usage_mismatch"), name
    # 26 hours from there it is always another day
    projects(bench, endpoint, env={"TZ": "Etc/GMT-14"})
    finished = run(bench, "real", (), "--agentbench-cassettes", "replay")
    assert finished.outcomes == {f"{name}[real]": "passed" for name in ALL}, finished.text
    for name, found in artifacts(bench).items():
        assert tell(found) == tell(recorded[name]), name
    case(bench, "codex", "What is in fish.txt? (codex)", "And now? (codex)", workspace="ws")
    text = bench.run("--model", "real", "--agentbench-cassettes", "replay", "cases/codex").text
    assert "codex-r1" not in text
    assert "does not have this request; the nearest it has is exchange 1:" in text
    assert re.search(r"-.*bird\.txt", text)
    assert re.search(r"\+.*fish\.txt", text)


def test_an_outage_ends_each_agent(bench: Bench) -> None:
    def look_again(body: dict[str, Any]) -> dict[str, Any]:
        return look_and_say(body) if "(aider)" in json.dumps(body) else call_shell(body, "cat bird.txt")

    fails = in_order("ok", "ok", *["500"] * 40)
    with FaultEndpoint(fails, answer=look_again) as endpoint:
        projects(bench, endpoint, retries=0)
        case(bench, "aider", *("(aider)" for _ in range(3)), agent="aider", runner={"retries": 0})
        finished = run(bench, "real")
    assert finished.outcomes == {f"{name}[real]": "error" for name in ALL}, finished.text
    for name, found in artifacts(bench).items():
        assert (found["status"], found["error"]["code"]) == ("provider_error", "server_error"), name
        asked = [each for each in found["trace"] if each.get("name") == "request"]
        turn = [each for each in found["trace"] if each.get("name") == "turn"][-1]
        assert len(asked) == 3, name
        assert turn["at"] - asked[-1]["at"] < 10, name
        assert found["provider"]["gateway"].get("asked_after_outage", 0) <= 2, name
