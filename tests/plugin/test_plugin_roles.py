"""Sessions whose runner asks a second model by its role: a simulated user."""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree

import jsonschema
import pytest
from support.bench import Bench, Finished, check
from support.cassette_sessions import gone
from support.fault_endpoint import FaultEndpoint

from pytest_agentbench.cli import main
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
PREPARED = RUNNER.replace("import RunnerKind", "import Prepared, RunnerKind").replace(
    '    model_roles = ("user",)',
    """
    def prepare(self, request):
        return Prepared(model_roles=("user",))
""",
)
"""A runner like RUNNER, whose roles may depend on the case."""
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
    forecast = session(bench, "--agentbench-dry-run", "--agentbench-no-reuse")
    assert re.search(r"gpt +1 +0 +1 +0 +60 +\$0\.4200", forecast.text), forecast.text
    reused = session(bench)
    assert len(endpoint.requests) == 4
    assert reused.report["totals"]["spent_usd"] == {"run": 0.0, "judge": 0.0}
    assert reused.report["totals"]["cost_usd"] == totals["cost_usd"]
    project(bench, endpoint, parameters={"temperature": 1})
    session(bench)
    assert len(endpoint.requests) == 8, "another simulated user makes another run"


OWN_AGENT = """
import pytest


async def agent(case, context):
    asked = await context.client_for("user").complete([{"role": "user", "content": "Paris"}])
    return f"Paris. {asked.content}"


agent.model_roles = ("user",)


@pytest.fixture(scope="session")
def agentbench_runner():
    return agent
"""


@pytest.mark.parametrize("own_agent", [False, True])
def test_a_replay_of_a_run_with_two_models_asks_nobody(bench, endpoint, monkeypatch, own_agent):
    project(bench, endpoint)
    args = ["--agentbench-run-profile=talks", "cases", *([] if own_agent else ["--model=gpt"])]
    if own_agent:
        bench.agent(OWN_AGENT)
        bench.case("talk")
    recorded = bench.run(*args, "--agentbench-cassettes=record")
    [row] = recorded.runs.values()
    assert (row["outcome"], row["cassette"]) == ("passed", "recorded"), recorded.text
    assert row["cost_usd"]["user"] == pytest.approx(billed(endpoint, "user-1", 0.01))
    assert recorded.report["totals"]["spent_usd"]["user"] == row["cost_usd"]["user"]
    gone(bench, endpoint, monkeypatch)
    replayed = bench.run(*args, "--agentbench-cassettes=replay")
    [again] = replayed.runs.values()
    assert (again["outcome"], again["cassette"], len(endpoint.requests)) == ("passed", "replayed", 0), replayed.text
    assert (again["cost_usd"], again["roles"]) == (row["cost_usd"], row["roles"])
    assert "user" not in replayed.report["totals"]["spent_usd"]


@pytest.mark.slow
def test_a_role_alone_is_paid_again_if_only_its_model_is_not_replayed(bench, endpoint):
    project(bench, endpoint, cassettes="off")
    session(bench, "--agentbench-cassettes=record")
    endpoint.requests.clear()
    replayed = session(bench, "--agentbench-cassettes=replay", "--agentbench-no-reuse")
    assert [request.body["model"] for request in endpoint.requests] == ["user-1", "user-1"]
    assert replayed.report["totals"]["spent_usd"] == pytest.approx({"run": 0.0, "judge": 0.0, "user": 0.02})


def test_a_budget_counts_roles_and_stops_them_in_a_run_and_after_it(bench, endpoint):
    project(bench, endpoint)
    bench.case("talk2", runner={"type": "interview"})
    finished = session(bench, "--agentbench-max-cost=0.205", "--agentbench-concurrency=1")
    assert [row["outcome"] for row in finished.runs.values()] == ["error", "skipped"]
    assert len(endpoint.requests) == 3, "the run's model, the user, the run's model"
    problem = "role 'user' (cheap): the model was not asked: the budget is used up: 0.4100 of 0.2050 USD"
    assert problem in finished.text
    assert finished.report["totals"]["spent_usd"] == pytest.approx({"run": 0.4, "judge": 0.0, "user": 0.01})


@pytest.mark.parametrize("fault", ["500", "429", "filtered"])
def test_a_failure_of_a_roles_model_is_an_error_and_no_failure_of_the_agent(bench, endpoint, fault):
    endpoint.choose = lambda message, nth: fault if message == "Paris" else "ok"
    project(bench, endpoint)
    finished = session(bench)
    [row] = finished.runs.values()
    assert (row["outcome"], row["status"]) == ("error", "provider_error")
    assert "role 'user' (cheap): " in finished.text
    assert row["cost_usd"]["run"] == pytest.approx(0.2)


@pytest.mark.slow
def test_a_lost_reply_of_a_role_makes_its_cost_a_lower_bound(bench, endpoint):
    endpoint.choose = lambda message, nth: "malformed" if (message, nth) == ("Paris", 0) else "ok"
    project(bench, endpoint)
    bench.profile("talks", roles={"user": "cheap"}, runner_defaults={"retries": 1})
    finished = session(bench)
    [row], totals = finished.runs.values(), finished.report["totals"]
    assert row["cost_usd"] == {"run": pytest.approx(0.4), "judge": 0.0, "user": None}
    assert row["at_least"]["cost_usd"]["user"] == pytest.approx(0.02)
    assert totals["at_least"]["roles"] == {"user": {"input": 20, "output": 10, "total": 30}}
    assert (totals["spent_usd"]["user"], totals["roles"]["user"]["output"]) == (None, None)
    assert "cost: run $0.4000, user >=$0.0200" in finished.text


def test_a_role_without_a_model_or_key_is_an_error_before_anything_is_paid(bench, endpoint, monkeypatch):
    project(bench, endpoint, roles={"judge_of_manners": "cheap"})
    finished = session(bench)
    problem = "run_profiles/talks.yaml:1:1: roles: found no model for the role 'user', which the runner interview asks"
    assert problem in finished.text
    assert "write `roles: {user: MODEL}` in the run profile" in finished.text
    project(bench, endpoint, roles={"user": "cheap"}, api_key_env="NO_SUCH_KEY")
    assert "roles.user: model 'cheap' needs a key: the environment variable NO_SUCH_KEY" in session(bench).text
    project(bench, endpoint, roles={"user": "cheep"})
    problem = "roles.user: found 'cheep', expected an id of models.yaml; did you mean 'cheap'?"
    assert problem in session(bench).text
    project(bench, endpoint, roles={"judge": "cheap"})
    assert "found 'judge', expected a role such as user" in session(bench).text
    assert not endpoint.requests


def test_demo_plays_the_roles_of_a_case_from_its_script(bench, endpoint, monkeypatch):
    project(bench, endpoint)
    bench.agent(PREPARED)
    monkeypatch.delenv("BENCH_KEY")
    script = {
        "schema_version": 1,
        "replies": [{"content": "Madrid"}, {"matches": "capital of France", "content": "Paris"}],
        "roles": {"user": [{"when": "Paris", "content": "And of Spain?"}, {"when": "Madrid", "content": "So Paris."}]},
    }
    bench.write("cases/talk/demo.yaml", script)
    checks = [check("madrid", kind="regex_match", pattern="Madrid")]
    bench.case("talk", runner={"type": "interview"}, deterministic_checks=checks)
    finished = session(bench, model="demo")
    assert (finished.exit, len(endpoint.requests)) == (0, 0), finished.text
    [row] = finished.runs.values()
    assert row["roles"]["user"]["model_id"] == "demo"
    bench.write("cases/talk/demo.yaml", {**script, "roles": {}})
    assert "no script plays the role 'user'; add it under `roles:` to " in session(bench, model="demo").text


@pytest.mark.slow
def test_the_costs_of_roles_are_the_same_over_processes_and_shards(bench, endpoint):
    project(bench, endpoint)
    for number in range(3):
        bench.case(f"more{number}", runner={"type": "interview"})
    costs = pytest.approx({"run": 1.6, "judge": 0.0, "user": 0.08})
    totals = session(bench, "-n2").report["totals"]
    assert (totals["spent_usd"], totals["cost_usd"]) == (costs, costs)
    parts = [(f"--agentbench-shard={part}/2", f"--agentbench-json={part}.json") for part in (1, 2)]
    for shard, path in parts:
        session(bench, shard, path, "--agentbench-no-reuse")
    assert main(["merge", "1.json", "2.json", "-o", "merged.json"]) == 0
    merged = json.loads((bench.path / "merged.json").read_text())["totals"]
    assert (merged["spent_usd"], merged["cost_usd"], merged["roles"]) == (costs, costs, totals["roles"])


LEAVING = """
import asyncio
import pytest


async def agent(case, context):
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(context.client_for("user").complete([{"role": "user", "content": "Paris"}]), 0.2)
    return "Paris"


agent.model_roles = ("user",)


@pytest.fixture(scope="session")
def agentbench_runner():
    return agent
"""


@pytest.mark.slow
def test_a_reply_of_a_role_that_the_agent_does_not_wait_for_is_paid_by_the_role(bench, endpoint):
    project(bench, endpoint)
    bench.agent(LEAVING)
    bench.case("talk")
    endpoint.latency = 0.5
    finished = bench.run("--agentbench-run-profile=talks", "cases")
    [row] = finished.runs.values()
    assert (row["outcome"], row["cost_usd"]["user"]) == ("passed", pytest.approx(0.01)), finished.text
    assert finished.report["totals"]["spent_usd"]["user"] == pytest.approx(0.01)
