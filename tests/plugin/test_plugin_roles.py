"""Sessions whose runner asks a second model by its role: a simulated user."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import jsonschema
import pytest
from support.bench import Bench, Finished
from support.fault_endpoint import FaultEndpoint

from pytest_agentbench.reports.reading import report_schema

RUNNER = """
from pytest_agentbench import RunnerKind


class Interview(RunnerKind):
    model_roles = ("user",)

    async def __call__(self, case, context):
        user, turns = context.client_for("user"), case.messages[0].content
        messages = [{"role": "user", "content": turns}]
        for _ in range(2):
            reply = await context.client.complete(messages, case_id=case.case_id)
            context.trace.add_usage(reply.usage)
            asked = await user.complete([{"role": "user", "content": reply.content}])
            messages += [{"role": "assistant", "content": reply.content}, {"role": "user", "content": asked.content}]
        return messages[-2]["content"]


def pytest_agentbench_runners():
    return {"interview": Interview()}
"""
AGENT_PRICES = {"input_per_1m": 0, "output_per_1m": 40_000}
"""0.2 USD for each reply, which has 5 output tokens."""
USER_PRICES = {"input_per_1m": 0, "output_per_1m": 2_000}
"""0.01 USD for each reply."""


def answer(body: dict) -> dict:
    return {"role": "assistant", "content": "And Spain's?" if body["model"] == "user-1" else "Paris"}


@pytest.fixture
def endpoint(monkeypatch):
    monkeypatch.setenv("BENCH_KEY", "sk-a-key-that-nobody-may-see-0123456789")
    with FaultEndpoint(answer=answer) as endpoint:
        yield endpoint


def project(bench: Bench, endpoint: FaultEndpoint, *, roles: dict | None = None, **model) -> None:
    way = {"base_url": endpoint.base_url, "api_key_env": "BENCH_KEY"}
    user = {"model_id": "cheap", "requested_model": "user-1", "prices": USER_PRICES, **way, **model}
    bench.models({"model_id": "gpt", "prices": AGENT_PRICES, **way}, user)
    bench.agent(RUNNER)
    bench.case("talk", runner={"type": "interview"})
    bench.profile("talks", roles={"user": "cheap"} if roles is None else roles, runner_defaults={"retries": 0})


def session(bench: Bench, *args: str, model: str = "gpt") -> Finished:
    finished = bench.run(f"--model={model}", "--agentbench-run-profile=talks", "cases", *args)
    if finished.report is not None:
        jsonschema.validate(finished.report, report_schema())
    return finished


def billed(endpoint: FaultEndpoint, name: str, price: float) -> float:
    return price * sum(request.body["model"] == name and request.fault == "ok" for request in endpoint.requests)


def test_costs_and_tokens_by_role_are_those_that_the_endpoint_billed(bench, endpoint):
    project(bench, endpoint)
    finished = session(bench, "--junit-xml=junit.xml")
    assert finished.exit == 0, finished.text
    costs = {"run": billed(endpoint, "gpt", 0.2), "judge": 0.0, "user": billed(endpoint, "user-1", 0.01)}
    assert costs == pytest.approx({"run": 0.4, "judge": 0.0, "user": 0.02})
    [row], totals = finished.runs.values(), finished.report["totals"]
    assert row["cost_usd"] == pytest.approx(costs)
    assert row["roles"] == {"user": {"model_id": "cheap", "input_tokens": 20, "output_tokens": 10, "total_tokens": 30}}
    assert totals["cost_usd"] == totals["spent_usd"] == pytest.approx(costs)
    assert totals["roles"] == totals["at_least"]["roles"] == {"user": {"input": 20, "output": 10, "total": 30}}
    assert totals["tokens"] == {"input": 20, "output": 10, "total": 30}
    assert "cost: run $0.4000, user $0.0200" in finished.text
    properties = {each.get("name"): each.get("value") for each in ElementTree.parse("junit.xml").iter("property")}
    assert float(properties["agentbench.cost_usd"]) == pytest.approx(0.42)
    assert float(properties["agentbench.cost_usd.user"]) == pytest.approx(0.02)
    assert properties["agentbench.tokens.user.output"] == "10"
    artifact = json.loads((bench.path / "outputs" / row["artifact"]).read_text())
    assert artifact["roles"]["user"]["model_id"] == "cheap"
    reused = session(bench)
    assert len(endpoint.requests) == 4
    assert reused.report["totals"]["spent_usd"] == {"run": 0.0, "judge": 0.0}
    assert reused.report["totals"]["cost_usd"] == totals["cost_usd"]
    project(bench, endpoint, parameters={"temperature": 1})
    session(bench)
    assert len(endpoint.requests) == 8, "another simulated user makes another run"
