"""Sessions with a driver, which decides the user's messages, and with graders of single turns."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.bench import Bench, check

CONFTEST = """
from pydantic import Field
from pytest_agentbench import CasePart, Grade, MetricResult, RunOutput, TurnGrader


class Interview(CasePart):
    is_section = True
    goal: str
    most: int = 5

    def identity(self, folder):
        return {"goal": self.goal, "most": self.most}


async def interview(conversation, case, context):
    part, user = case.part(Interview), context.client_for("user")
    message = case.messages[-1].content
    for _ in range(part.most):
        turn = await conversation.say(message)
        asked = await user.complete([{"role": "system", "content": part.goal}, {"role": "user", "content": turn.text}])
        if "DONE" in asked.content:
            return RunOutput(output=None, metadata={"user turns": turn.number})
        message = asked.content


interview.model_roles = ("user",)


class Polite(TurnGrader):
    decides = True

    async def after_turn(self, case, sandbox, turn):
        done = await sandbox.exec(["cat", "log.txt"], seconds=10)
        lines = len(done.output.splitlines())
        metric = MetricResult(name="lines", score=min(1.0, lines / 2))
        failures = () if "please" in turn.text else ("not polite",)
        return Grade(metrics=(metric,), failures=failures, ends=case.metadata.get("ends") == turn.number)


def pytest_agentbench_case_parts():
    return {"interview": Interview}


def pytest_agentbench_drivers():
    return {"interview": interview}
"""
GRADERS = """

def pytest_agentbench_graders():
    return {"polite": Polite()}
"""
WRITES = {"tool_calls": [{"name": "exec_shell", "arguments": {"command": "echo turn >> log.txt"}}]}
SCRIPT = {
    "schema_version": 1,
    "replies": [
        {"when": "I want my money back.", "steps": [WRITES, {"content": "Which order, please?"}]},
        {"when": "Order 1042.", "steps": [WRITES, {"content": "Order 1042 is refunded."}]},
    ],
    "roles": {"user": [{"when": "Which order, please?", "content": "Order 1042."}, {"content": "Thank you. DONE"}]},
}


def project(bench: Bench, *, source: str = CONFTEST, **fields: Any) -> None:
    bench.write("conftest.py", source)
    asked = {
        "messages": [{"role": "user", "content": "I want my money back."}],
        "context": {"llm_probe": {"tools": ["exec_shell"]}},
    }
    refunded = check("refunded", kind="regex_match", pattern="1042 is refunded")
    case = {"input": asked, "interview": {"goal": "You want a refund."}, "deterministic_checks": [refunded], **fields}
    bench.case("talk", **case)
    bench.write("cases/talk/demo.yaml", SCRIPT)
    bench.models(
        {"model_id": "cheap", "requested_model": "user-1", "base_url": "http://127.0.0.1:9", "api_key_env": None}
    )
    bench.profile("talks", roles={"user": "cheap"}, sandbox="local")


def session(bench: Bench, *options: str) -> Any:
    return bench.run("--model=demo", "--agentbench-run-profile=talks", "cases", *options)


def artifact(bench: Bench) -> dict[str, Any]:
    [path] = bench.path.glob("outputs/runs/**/run_1.json")
    return dict(json.loads(path.read_text(encoding="utf-8")))


def transcript(artifact: dict[str, Any]) -> list[tuple[int, str, str]]:
    return [(e["turn"], e["role"], e["content"]) for e in artifact["trace"] if e["type"] == "message"]


def test_a_driver_asks_a_second_model_for_the_users_messages(bench: Bench) -> None:
    project(bench)
    finished = session(bench)
    assert finished.outcomes == {"talk[demo]": "passed"}, finished.text
    found = artifact(bench)
    assert transcript(found) == [
        (1, "user", "I want my money back."),
        (1, "assistant", "Which order, please?"),
        (2, "user", "Order 1042."),
        (2, "assistant", "Order 1042 is refunded."),
    ]
    assert found["metadata"]["user turns"] == 2
    assert list(found["roles"]) == ["user"]
    assert session(bench).runs["talk[demo]"]["reused"]
    # A changed driver makes another run
    bench.write("conftest.py", CONFTEST.replace("return RunOutput(output=None", "return RunOutput(output='no answer'"))
    changed = session(bench).runs["talk[demo]"]
    assert (changed["reused"], changed["outcome"]) == (False, "failed")


def test_grades_of_turns_are_stored_with_the_run_and_decide_it(bench: Bench) -> None:
    project(bench, source=CONFTEST + GRADERS)
    finished = session(bench)
    assert finished.outcomes == {"talk[demo]": "failed"}, finished.text
    assert "turn 2: not polite" in finished.text
    assert finished.runs["talk[demo]"]["metrics"] == {"turn-1.lines": 0.5, "turn-2.lines": 1.0}
    # Stored with the run: another verdict on it needs no other run
    again = session(bench, "--agentbench-rejudge")
    row = again.runs["talk[demo]"]
    assert (row["reused"], row["outcome"]) == (True, "failed")


def test_a_grade_can_end_the_conversation(bench: Bench) -> None:
    project(bench, source=CONFTEST + GRADERS, metadata={"ends": 1}, deterministic_checks=None)
    finished = session(bench)
    assert finished.outcomes == {"talk[demo]": "passed"}, finished.text
    assert transcript(artifact(bench))[-1] == (1, "assistant", "Which order, please?")


def test_a_driver_that_says_nothing_makes_an_invalid_run(bench: Bench) -> None:
    project(bench, interview={"goal": "You want a refund.", "most": 0})
    assert "the driver said nothing to the agent" in session(bench).text


ECHO = "async def echo(case, context): return 'x'\ndef pytest_agentbench_runners(): return {'echo': echo}\n"
REFUSED = "the runner 'echo' holds no conversation with a driver, unlike 'acp' and 'agent'"
MADE = """
from pytest_agentbench import Case, CaseSource, Message, OpenedSource, RunnerSpec, SourceCase, SourceFiles


class OpenedTalk(OpenedSource):
    def rows(self, subject=None):
        yield SourceCase("made", (), self.path, 1, self.make)

    def make(self):
        say = Message(role="user", content="Hello.")
        more = {"parts": {"interview": Interview(goal="x")}} if "driver" in self.path.name else {"turns": (say,)}
        return Case(case_id="made", title="Made", path=self.path, line=1, messages=(say,), **more,
                    runner=RunnerSpec(type="echo"), report_only=True)


class Talks(CaseSource):
    def open(self, path, request):
        return OpenedTalk(path)


def pytest_agentbench_case_sources():
    return {"talks": SourceFiles(Talks(), ["*.talk"])}
"""


def test_a_driver_on_a_runner_without_conversations_is_refused_when_the_case_is_collected(bench: Bench) -> None:
    asked = {"messages": [{"role": "user", "content": "I want my money back."}]}
    project(bench, source=CONFTEST + ECHO, runner={"type": "echo"}, input=asked)
    finished = session(bench)
    assert not finished.outcomes
    assert f"cases/talk/test.yaml:12:3: interview: {REFUSED}" in finished.text
    assert "take one of these, or leave interview out" in finished.text


@pytest.mark.parametrize(
    ("file", "problem"), [("driver", REFUSED), ("turns", "the runner 'echo' has no turns, unlike 'acp' and 'agent'")]
)
def test_a_conversation_of_a_source_on_a_runner_without_one_is_an_error(bench: Bench, file: str, problem: str) -> None:
    project(bench, source=CONFTEST + ECHO + MADE)
    bench.write(f"cases/{file}.talk", "talk\n")
    finished = bench.run("--model=demo", "--agentbench-run-profile=talks", f"cases/{file}.talk")
    assert finished.outcomes == {"made[demo]": "error"}, finished.text
    assert f"cases/{file}.talk:1:1: {problem}" in finished.text
