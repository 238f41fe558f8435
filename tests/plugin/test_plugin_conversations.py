"""Sessions of cases with turns, on `llm_probe` and on agents of the user's own."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from support.bench import Bench, check

from pytest_agentbench.reports.reading import report_schema

TURNS = ["Write milk into notes.txt.", "What is in it?", "Thanks."]
ANSWERS = ["Done.", "It says milk.", "You are welcome."]
TRANSCRIPT = [pair for turn in zip(TURNS, ANSWERS, strict=True) for pair in (("user", turn[0]), ("assistant", turn[1]))]
AGENTS = """
import pytest
from pytest_agentbench import RunOutput, Usage, chat_agent

ANSWERS = dict(zip({turns}, {answers}))


class Opened:
    def open(self, case, context):
        self.talks = 0
        return Talk(context)


class Talk:
    def __init__(self, context):
        self.context, self.seen = context, []

    async def reply(self, message):
        if self.seen == []:
            self.context.workspace.write_text("notes.txt", "milk")
        self.seen.append(message)
        if len(self.seen) == 2:
            return "It says " + self.context.workspace.read_text("notes.txt") + "."
        return RunOutput(output=ANSWERS[message], usage=Usage(input_tokens=1, output_tokens=1, total_tokens=2))

    def close(self):
        self.context.trace.event("closed", messages=len(self.seen))


async def loop(case, context):
    message = case.messages[-1].content
    while message is not None:
        message = await context.turn(ANSWERS[message])
    return RunOutput(output=None, metadata={{"loops": 1}})


def plain_loop(case, context):
    message = case.messages[-1].content
    while message is not None:
        message = context.turn_sync(ANSWERS[message])


def chat(messages):
    assert [each["role"] for each in messages] == ["user", "assistant"] * (len(messages) // 2) + ["user"]
    return ANSWERS[messages[-1]["content"]]


def early(case, context):
    return "Done."


AGENT_BY_NAME = {{"opened": Opened(), "loop": loop, "plain_loop": plain_loop, "chat": chat_agent(chat), "early": early}}


@pytest.fixture(scope="session", params={names})
def agentbench_runner(request):
    return AGENT_BY_NAME[request.param]
"""
OWN = ["opened", "loop", "plain_loop", "chat"]


def agents(*names: str) -> str:
    return AGENTS.format(turns=TURNS, answers=ANSWERS, names=list(names))


def turns_of(*texts: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text} for text in texts]


def artifacts(bench: Bench) -> list[dict[str, Any]]:
    paths = sorted(bench.path.glob("outputs/runs/**/run_1.json"))
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths]


def transcript(artifact: dict[str, Any]) -> list[tuple[str, str]]:
    return [(event["role"], event["content"]) for event in artifact["trace"] if event["type"] == "message"]


def final_output(artifact: dict[str, Any]) -> list[str]:
    return [event["content"] for event in artifact["trace"] if event["type"] == "final_output"]


def talk(bench: Bench, **fields: Any) -> None:
    says = check("says", kind="regex_match", pattern="welcome")
    bench.case(
        "talk", input={"turns": turns_of(*TURNS), **fields.pop("input", {})}, deterministic_checks=[says], **fields
    )


def test_llm_probe_keeps_its_history_tools_and_workspace_over_the_turns(bench: Bench) -> None:
    calls = [
        {"tool_calls": [{"name": "write_file", "arguments": {"path": "notes.txt", "content": "milk"}}]},
        {"content": ANSWERS[0]},
    ]
    reads = [{"tool_calls": [{"name": "read_file", "arguments": {"path": "notes.txt"}}]}, {"content": ANSWERS[1]}]
    replies = [
        {"when": TURNS[0], "steps": calls},
        {"when": TURNS[1], "steps": reads},
        {"when": TURNS[2], "content": ANSWERS[2]},
    ]
    talk(bench, input={"context": {"llm_probe": {"tools": ["read_file", "write_file"]}}})
    bench.write("cases/talk/demo.yaml", {"schema_version": 1, "replies": replies})
    finished = bench.run("--model", "demo", "cases")
    assert finished.outcomes == {"talk[demo]": "passed"}, finished.text
    [artifact] = artifacts(bench)
    assert transcript(artifact) == TRANSCRIPT
    assert final_output(artifact) == [ANSWERS[2]]
    requests = [event["data"]["messages"] for event in artifact["trace"] if event.get("name") == "request"]
    assert requests == [1, 3, 5, 7, 9], "each request holds all messages, calls and results before it"
    read = [event["content"] for event in artifact["trace"] if event.get("name") == "read_file" and "content" in event]
    assert read == ["milk"]
    assert [event["turn"] for event in artifact["trace"] if event["type"] == "message"] == [1, 1, 2, 2, 3, 3]
    assert bench.run("--model", "demo", "cases").runs["talk[demo]"]["reused"]


def test_own_agents_of_all_forms_hold_the_same_conversation(bench: Bench) -> None:
    talk(bench)
    bench.agent(agents(*OWN))
    finished = bench.run("cases")
    assert list(finished.outcomes.values()) == ["passed"] * len(OWN), finished.text
    for artifact in artifacts(bench):
        assert transcript(artifact) == TRANSCRIPT
        assert final_output(artifact) == [ANSWERS[2]]
    usages = [artifact["usage"]["total_tokens"] for artifact in artifacts(bench)]
    assert sorted(filter(None, usages)) == [4], "the usage of an agent's turns adds up"
    assert {"loops": 1} in [artifact["metadata"] for artifact in artifacts(bench)]
    closed = [event["data"] for found in artifacts(bench) for event in found["trace"] if event.get("name") == "closed"]
    assert closed == [{"messages": 3}]


def test_own_agents_answer_cases_without_turns_too(bench: Bench) -> None:
    says = check("says", kind="regex_match", pattern="Done")
    bench.case("one", input={"messages": turns_of(TURNS[0])}, deterministic_checks=[says])
    bench.agent(agents(*OWN))
    finished = bench.run("cases")
    assert list(finished.outcomes.values()) == ["passed"] * len(OWN), finished.text
    assert all("turn" not in event for found in artifacts(bench) for event in found["trace"])


def test_an_agent_that_returns_before_the_last_turn_is_invalid(bench: Bench) -> None:
    talk(bench)
    bench.agent(agents("early"))
    finished = bench.run("cases")
    assert list(finished.outcomes.values()) == ["failed"]
    assert "the agent returned at turn 1 of 3" in finished.text
    [artifact] = artifacts(bench)
    assert (artifact["status"], artifact["end_detail"]["turn"]) == ("invalid", 2)


@pytest.mark.parametrize(
    "agent", ["await context.turn('a'); await asyncio.Event().wait()", "context.turn_sync('a'); HANGS.wait()"]
)
def test_a_turn_that_hangs_times_out_alone(bench: Bench, agent: str) -> None:
    bench.case("hangs", input={"turns": turns_of(*TURNS)}, conversation={"turn_timeout_seconds": 0.2})
    head = "async def" if "await" in agent else "def"
    bench.agent(
        f"import asyncio, threading, pytest\nHANGS = threading.Event()\n{head} agent(case, context):\n    {agent}\n"
        "def pytest_unconfigure():\n    HANGS.set()\n"
        "@pytest.fixture(scope='session')\ndef agentbench_runner():\n    return agent\n"
    )
    finished = bench.run("cases")
    assert "no answer within turn_timeout_seconds (0.2 s), in turn 2 of 3" in finished.text
    [artifact] = artifacts(bench)
    assert (artifact["status"], artifact["error"]["code"]) == ("timed_out", "turn_timeout")
    assert artifact["end_detail"]["turn"] == 2
    jsonschema.validate(finished.report, report_schema())
    assert artifact["duration_seconds"] < 2
    assert transcript(artifact) == [("user", TURNS[0]), ("assistant", "a"), ("user", TURNS[1])]


def test_a_conversation_ends_at_its_limit(bench: Bench) -> None:
    talk(bench, conversation={"max_turns": 2})
    bench.agent(agents("chat"))
    finished = bench.run("cases")
    assert "the conversation reached max_turns (2) before turn 3" in finished.text
    [artifact] = artifacts(bench)
    assert (artifact["status"], artifact["error"]["code"]) == ("failed", "conversation_limit")
    assert transcript(artifact) == TRANSCRIPT[:4]


def test_a_runner_without_turns_refuses_them_when_the_case_is_collected(bench: Bench) -> None:
    bench.agent("async def echo(case, context): return 'x'\ndef pytest_agentbench_runners(): return {'echo': echo}\n")
    talk(bench, runner={"type": "echo"})
    finished = bench.run("--model", "demo", "cases")
    assert not finished.outcomes
    assert "input.turns: the runner 'echo' has no turns, unlike 'acp' and 'agent' and" in finished.text
