"""Programs with SDKs of their own, by the runner `command`: a tool loop in each dialect, answered by one demo.yaml."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from sdks.sdks_support import SDKS, Sdk, of
from support.bench import Bench, check
from support.script_server import served
from support.stored import find_stored

from pytest_agentbench.models.script_trees import ScriptTree

pytestmark = pytest.mark.full
USAGE = {"input_tokens": 11, "cached_tokens": 2, "output_tokens": 3, "reasoning_tokens": 1}
CALL = {"name": "write_file", "arguments": {"path": "hello.txt", "content": "Hello, wörld"}}
STEPS = [{"tool_calls": [CALL], "usage": USAGE}, {"content": "It is written: wörld.", "usage": USAGE}]
INPUT = {"messages": [{"role": "user", "content": "Write hello.txt, please."}]}
DEMO = {"schema_version": 1, "replies": [{"matches": "Write hello", "steps": STEPS}]}
NOWHERE = dict.fromkeys(
    ("OPENAI_BASE_URL", "OPENAI_API_BASE", "ANTHROPIC_BASE_URL", "ANTHROPIC_API_BASE", "GOOGLE_GEMINI_BASE_URL"),
    "http://127.0.0.1:9",
)
WAYS = {
    "variables": {"how": "whole", "where": [], "env": {}},
    "arguments": {"how": "stream", "where": ["{base}", "{key}"], "env": NOWHERE},
}
"""By variables and whole, by arguments and streamed: neither depends on the other."""


def add_case(bench: Bench, sdk: Sdk, agent: str, way: str) -> None:
    case_id, told = f"{agent}-{way}", WAYS[way]
    bench.case(
        case_id,
        runner={
            "type": "command",
            "sandbox": "local",
            "command": [*sdk.command(bench.path), agent, told["how"], "{message}", "{model}", *told["where"]],
            "env": told["env"],
            "dialects": [agent],
        },
        input=INPUT,
        deterministic_checks=[
            check("file", kind="file_contains", path="hello.txt", text="Hello, wörld"),
            check("answer", kind="regex_match", pattern="^It is written: wörld.$"),
        ],
    )
    bench.write(f"cases/{case_id}/demo.yaml", DEMO)


def usage_of(run: dict[str, Any]) -> dict[str, int | None]:
    return {name: run["usage"][name] for name in USAGE}


def assert_seen(run: dict[str, Any], agent: str, mode: str) -> None:
    """The run of two requests is told as the script has it."""
    # Messages have no count of thoughts: of what passes through, nobody knows
    known = {**USAGE, "reasoning_tokens": None} if (agent, mode) == ("messages", "pass") else USAGE
    assert usage_of(run) == {name: count and 2 * count for name, count in known.items()}
    called = [event for event in run["trace"] if event["type"] == "tool_call"]
    assert [(call["name"], call["arguments"]) for call in called] == [(CALL["name"], CALL["arguments"])]
    [result] = [event for event in run["trace"] if event["type"] == "tool_result"]
    assert "written" in result["content"]
    gateway = run["provider"]["gateway"]
    assert gateway["dialects"] == [{"dialect": agent, "wire": agent if mode == "pass" else "chat", "mode": mode}]
    assert (gateway["conversations"], gateway["main"]) == (1, 1)
    assert "foreign_key" not in gateway


@of(*SDKS)
def test_a_program_uses_its_tool_and_answers(bench: Bench, sdk: Sdk) -> None:
    for agent, way in itertools.product(sdk.agents, WAYS):
        add_case(bench, sdk, agent, way)
    bench.case("served", folder="served", input=INPUT)
    bench.write("served/served/demo.yaml", DEMO)
    with served(ScriptTree(bench.path / "served")) as url:
        wires = [name for name in ("responses", "messages", "gemini") if name in sdk.agents]
        bench.models({"model_id": "wired", "base_url": url, "api_key_env": "none", "wires": wires, "limits": {}})
        for way, model in (("variables", "demo"), ("arguments", "wired")):  # both with both would take twice as long
            finished = bench.run("cases", f"--model={model}", "-k", way, "--agentbench-concurrency=4")
            assert set(finished.outcomes.values()) == {"passed"}, finished.text
    runs = [json.loads(path.read_text()) for path in find_stored(bench.path / "outputs", "run_1.json")]
    assert len(runs) == len(WAYS) * len(sdk.agents)
    for run in runs:
        agent = run["case_id"].partition("-")[0]
        relayed = "relay" if agent == "chat" else "translate"
        assert_seen(run, agent, "pass" if run["model"]["model_id"] == "wired" else relayed)
