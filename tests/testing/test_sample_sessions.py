"""Sessions with the sample plugin: its container, its tests in the live sandbox, and its driver with a second model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from support.bench import Bench, Finished
from support.cassette_sessions import gone
from support.docker_here import IMAGE, needs_docker
from support.fault_endpoint import FaultEndpoint
from support.sessions import bench, import_rooms

import pytest_agentbench as ab
from pytest_agentbench.cli import main

__all__ = ["bench"]

import_rooms()

AGENT_PRICES = {"input_per_1m": 0, "output_per_1m": 40_000}
"""0.2 USD for each reply of the endpoint, which has 5 output tokens."""
CUSTOMER_PRICES = {"input_per_1m": 0, "output_per_1m": 2_000}
"""0.01 USD for each reply."""
WRITES = {"tool_calls": [{"name": "exec_shell", "arguments": {"command": "echo 1042 >> notes.txt"}}]}
SCRIPT = {
    "schema_version": 1,
    "replies": [
        {"when": "I want my money back.", "content": "Which order?"},
        {"when": "It is 1042.", "steps": [WRITES, {"content": "Order 1042 is refunded."}]},
    ],
    "roles": {"customer": [{"when": "Which order?", "content": "It is 1042."}, {"content": "DONE"}]},
}


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultEndpoint]:
    monkeypatch.setenv("BENCH_KEY", "sk-a-key-that-nobody-may-see-0123456789")
    with FaultEndpoint(answer=answer) as endpoint:
        yield endpoint


def answer(body: dict[str, Any]) -> dict[str, Any]:
    texts = [message["content"] for message in body["messages"]]
    if body["model"] == "customer-1":
        return {"role": "assistant", "content": "DONE" if "refunded" in texts[-1] else "It is 1042."}
    return {"role": "assistant", "content": "Order 1042 is refunded." if "It is 1042." in texts else "Which order?"}


def project(bench: Bench, base_url: str, *, sandbox: Any = "plain", **fields: Any) -> None:
    access = {"base_url": base_url, "api_key_env": "BENCH_KEY"}
    customer = {"model_id": "customer-model", "requested_model": "customer-1", "prices": CUSTOMER_PRICES}
    bench.models({"model_id": "gpt", "prices": AGENT_PRICES, **access}, {**customer, **access})
    bench.profile("talks", roles={"customer": "customer-model"}, sandbox=sandbox)
    asked = {
        "messages": [{"role": "user", "content": "I want my money back."}],
        "context": {"llm_probe": {"tools": ["exec_shell"]}},
    }
    goal = {"goal": "You want your money back for order 1042."}
    bench.case("talk", input=asked, customer=goal, deterministic_checks=None, **fields)
    bench.write("cases/talk/demo.yaml", SCRIPT)


def session(bench: Bench, *options: str, model: str = "demo") -> Finished:
    return bench.run(f"--model={model}", "--agentbench-run-profile=talks", "cases", *options)


def billed(endpoint: FaultEndpoint, name: str, price: float) -> float:
    return price * sum(request.body["model"] == name for request in endpoint.requests)


def test_costs_by_role_are_those_that_the_endpoint_charged_and_a_replay_asks_nobody(
    bench: Bench, endpoint: FaultEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    project(bench, endpoint.base_url, exam={"tests": {"lives": "test -d ."}})
    recorded = session(bench, "--agentbench-cassettes=record", model="gpt")
    [row] = recorded.runs.values()
    assert (row["outcome"], row["cassette"]) == ("passed", "recorded"), recorded.text
    costs = {"run": billed(endpoint, "gpt", 0.2), "judge": 0.0, "customer": billed(endpoint, "customer-1", 0.01)}
    assert costs == pytest.approx({"run": 0.4, "judge": 0.0, "customer": 0.02})
    assert recorded.report is not None
    assert row["cost_usd"] == recorded.report["totals"]["spent_usd"] == pytest.approx(costs)
    gone(bench, endpoint, monkeypatch)
    replayed = session(bench, "--agentbench-cassettes=replay", model="gpt")
    [again] = replayed.runs.values()
    assert (again["outcome"], again["cassette"], len(endpoint.requests)) == ("passed", "replayed", 0), replayed.text
    assert (again["cost_usd"], again["roles"]) == (row["cost_usd"], row["roles"])
    assert replayed.report is not None
    assert replayed.report["totals"]["spent_usd"] == {"run": 0.0, "judge": 0.0}


@pytest.mark.slow
@pytest.mark.parametrize(
    "sandbox",
    [{"type": "plain"}, pytest.param({"type": "crate", "image": IMAGE}, marks=needs_docker)],
    ids=lambda sandbox: sandbox["type"],
)
def test_tests_in_the_live_sandbox_decide_the_run_and_its_turns(bench: Bench, sandbox: Any) -> None:
    turns = {"each_turn": {"no-notes": "test ! -e notes.txt"}}
    tests = {"tests": {"written": "grep -q 1042 notes.txt", "priced": "echo no price; grep -q USD notes.txt"}}
    project(bench, "http://127.0.0.1:9", sandbox=sandbox, exam=tests | turns)
    finished = session(bench)
    [row] = finished.runs.values()
    assert row["outcome"] == "failed", finished.text
    assert "turn 2: exam: no-notes: exit status 1" in finished.text
    assert "exam: priced: exit status 1 no price" in finished.text
    assert "exam: written" not in finished.text
    assert (row["metrics"], row["final_score"]) == ({"exam": 0.5}, 5.0)
    [path] = bench.path.glob("outputs/runs/**/run_1.json")
    assert json.loads(path.read_text(encoding="utf-8"))["sandbox"]["kind"] == sandbox["type"]
    again = session(bench, "--agentbench-rejudge")
    assert again.runs["talk[demo]"]["reused"], "a grade in the sandbox is stored with the run"
    project(bench, "http://127.0.0.1:9", sandbox=sandbox, exam={"tests": {"written": "grep -q 1042 notes.txt"}})
    changed = session(bench).runs["talk[demo]"]
    assert (changed["reused"], changed["outcome"], changed["final_score"]) == (False, "passed", 10.0)


def test_a_driver_on_a_runner_that_goes_through_turns_itself_is_refused(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.case("talk", runner={"type": "shell"}, customer={"goal": "A refund."})
    problem = "customer: the runner 'shell' holds no conversation with a driver, unlike 'acp' and 'agent'"
    finished = bench.run("--model=demo", "cases")
    assert not finished.outcomes
    assert problem in finished.text
    capsys.readouterr()
    monkeypatch.chdir(bench.path)
    assert main(["validate", "cases"]) == 1
    assert problem in capsys.readouterr().out


@needs_docker
@pytest.mark.slow
def test_settings_of_the_samples_container_are_checked_and_a_missing_engine_skips(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    exam = {"tests": {"lives": "test -d ."}}
    project(bench, "http://127.0.0.1:9", sandbox={"type": "crate", "engine": "dokcer"}, exam=exam)
    assert "run_profiles/talks.yaml:" in (text := session(bench).text)
    assert "sandbox.engine: found 'dokcer', expected 'docker' or 'podman'" in text
    project(bench, "http://127.0.0.1:9", sandbox={"type": "crate"}, exam=exam)
    assert "crate: no image is named; write `image:`" in session(bench, "-rs").text
    monkeypatch.setenv("PATH", "")
    project(bench, "http://127.0.0.1:9", sandbox={"type": "crate", "image": IMAGE, "engine": "podman"}, exam=exam)
    assert "crate: podman is not installed; install it, or write another `engine:`" in session(bench, "-rs").text


@pytest.mark.slow
def test_the_kits_pass_on_the_samples_driver_and_exam() -> None:
    from agentbench_sample.customer import DRIVER, Customer
    from agentbench_sample.exam import EXAM, Exam

    ab.check_case_part(Customer(goal="You want your money back."))
    ab.check_case_part(exam := Exam(tests={"written": "cat notes.txt"}))
    case = ab.sample_case(parts={"customer": Customer(goal="You want your money back.")})
    said = ab.check_driver(DRIVER, case, ["Which order?", "Refunded."], roles={"customer": Texts("1042", "DONE")})
    assert said == [case.messages[-1].content, "1042"]
    profile = ab.RunProfile(schema_version=1, run_profile_id="kit", title="Kit", sandbox="plain")
    case = ab.sample_case(parts={"exam": exam})

    async def agent(sandbox: ab.Sandbox) -> None:
        await sandbox.exec(["sh", "-c", "echo milk > notes.txt"], seconds=10)

    assert ab.check_grader(EXAM, case, ab.sample_run(), profile=profile, agent=agent).failures == ()
    [failure] = ab.check_grader(EXAM, case, ab.sample_run(), profile=profile).failures
    assert failure.startswith("exam: written: exit status 1")


class Texts:
    """A client with the given replies to conversations of one, two ... exchanges: it keeps no state between them."""

    def __init__(self, *texts: str) -> None:
        self._texts = texts

    async def complete(self, messages: Any, **fields: Any) -> ab.ChatReply:
        text = self._texts[len(messages) // 2 - 1]
        message = {"role": "assistant", "content": text}
        return ab.ChatReply(text, (), "stop", ab.Usage(), "customer-1", None, message, 1, 0.0)
