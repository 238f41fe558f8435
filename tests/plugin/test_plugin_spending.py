"""What a session says that it spent, next to what its endpoint billed."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import jsonschema
import pytest
from support.bench import HEAD, Bench, Finished
from support.fault_endpoint import Choose, FaultEndpoint, always, in_order, last_user

from pytest_agentbench.cli import main
from pytest_agentbench.records.base import DIMENSIONS
from pytest_agentbench.reports.reading import report_schema

pytestmark = pytest.mark.slow

PRICE = 0.2
"""USD of each reply, which has 5 output tokens."""
PRICES = {"input_per_1m": 0, "output_per_1m": 40_000}
PARIS = {"role": "assistant", "content": "Paris"}
WORKERS = [pytest.param((), id="serial"), pytest.param(("-n", "2"), id="workers")]
UNBILLED = {"500", "503", "429", "cut-before"}


def project(bench: Bench, endpoint: FaultEndpoint, *, cases: int = 1, **defaults) -> None:
    bench.questions(cases)
    way = {"base_url": endpoint.base_url, "api_key_env": "none", "limits": {"max_concurrency": 64}}
    bench.models({"model_id": "m", "prices": PRICES, **way})
    bench.profile("quick", runner_defaults={"timeout_seconds": 0.3, "retries": 5, "max_tokens": 50, **defaults})


def session(bench: Bench, *args: str) -> Finished:
    finished = bench.run("--model=m", "--agentbench-run-profile=quick", "cases", *args)
    assert finished.report is not None, finished.text
    jsonschema.validate(finished.report, report_schema())
    return finished


def estimates(finished: Finished) -> list[str]:
    return [warning for warning in finished.report["session"]["warnings"] if "returned no usage" in warning]


def billed(endpoint: FaultEndpoint) -> float:
    return PRICE * sum(request.fault not in UNBILLED for request in endpoint.requests)


@pytest.mark.parametrize(
    ("fault", "stream"),
    [
        ("malformed", False),
        ("cut-body", False),
        ("cut", False),
        ("hang", False),
        ("cut-stream", True),
        ("garbage-chunk", True),
        ("stall", True),
    ],
)
def test_a_reply_that_was_paid_and_lost_makes_the_figures_a_lower_bound_that_a_budget_knows(bench, fault, stream):
    with FaultEndpoint(in_order(fault), answer=lambda _: PARIS) as endpoint:
        project(bench, endpoint, stream=stream)
        finished = session(bench, "--agentbench-max-cost=100", "--junit-xml=junit.xml")
        assert (finished.exit, len(endpoint.requests)) == (0, 2)
        [row] = finished.runs.values()
        totals = finished.report["totals"]
        assert row["cost_usd"] == {"run": None, "judge": 0.0}
        assert row["at_least"]["cost_usd"]["run"] == pytest.approx(PRICE)
        assert row["at_least"]["tokens"] == {"input": 10, "output": 5, "total": 15}
        assert totals["spent_usd"] == {"run": None, "judge": 0.0}
        assert totals["at_least"]["cost_usd"]["run"] == pytest.approx(PRICE) == totals["at_least"]["spent_usd"]["run"]
        assert totals["at_least"]["tokens"]["total"] == 15
        assert totals["at_least"]["cost_usd"]["run"] <= billed(endpoint)
        [warning] = estimates(finished)
        # 50 tokens at most of a reply that never came, at 40,000 USD for a million
        assert (
            "1 request returned no usage and may have been billed: --agentbench-max-cost counted 2.0000 USD" in warning
        )
        assert "cost: run >=$0.2000" in finished.text
        properties = {each.get("name"): each.get("value") for each in ElementTree.parse("junit.xml").iter("property")}
        assert float(properties["agentbench.cost_usd.at_least"]) == pytest.approx(PRICE)
        assert properties.get("agentbench.cost_usd") in (None, "")
        reused = session(bench, "--agentbench-max-cost=100")
        assert len(endpoint.requests) == 2
        assert "cost: run >=$0.2000; of that paid now: $0.0000" in reused.text
        assert estimates(reused) == []


@pytest.mark.parametrize(
    ("fault", "cost"), [("no-choices", 2 * PRICE), ("500", PRICE), ("503", PRICE), ("429-retry-after", PRICE)]
)
def test_a_reply_with_usage_is_counted_though_it_is_unusable_and_an_error_status_is_not_billed(bench, fault, cost):
    with FaultEndpoint(in_order(fault), answer=lambda _: PARIS) as endpoint:
        project(bench, endpoint)
        finished = session(bench, "--agentbench-max-cost=100")
        assert len(endpoint.requests) == 2
        assert finished.report["totals"]["spent_usd"]["run"] == pytest.approx(cost)
        assert finished.report["totals"]["cost_usd"]["run"] == pytest.approx(cost)
        assert estimates(finished) == []


@pytest.mark.parametrize("workers", WORKERS)
def test_an_estimate_uses_a_budget_up(bench, workers):
    with FaultEndpoint(always("malformed"), answer=lambda _: PARIS, latency=0.1) as endpoint:
        project(bench, endpoint, cases=20, retries=0, timeout_seconds=30)
        finished = session(bench, "--agentbench-max-cost=3", "--agentbench-concurrency=1", *workers)
        totals = finished.report["totals"]
        assert len(endpoint.requests) <= (2 if not workers else 4)
        assert totals["skipped"] == 20 - len(endpoint.requests)
        assert totals["spent_usd"]["run"] is None
        assert "estimated of 3.0000 USD (--agentbench-max-cost)" in finished.text


HANGING_UP = (
    HEAD
    + """
import json
from urllib.parse import urlsplit

async def ask(case, context, number):
    gateway, text = context.gateway, f"{case.case_id} {number}"
    body = {"model": gateway.model, "messages": [{"role": "user", "content": text}], "stream": number % 2 == 0}
    body = json.dumps(body).encode()
    address = urlsplit(gateway.openai_base_url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    head = f"POST {address.path}/chat/completions HTTP/1.1", f"authorization: Bearer {gateway.key}"
    try:
        writer.write("\\r\\n".join((*head, f"content-length: {len(body)}", "", "")).encode() + body)
        await reader.read()
    finally:
        writer.transport.abort()

async def agent(case, context):
    await ask(case, context, 0)
    asking = [asyncio.create_task(ask(case, context, number)) for number in range(1, 33)]
    while open("seen.txt").read().count(case.case_id) < 9:
        await asyncio.sleep(0.01)
    ENDING
    return "Paris"
"""
)
GOING = """for task in asking:
        task.cancel()
    await asyncio.gather(*asking, return_exceptions=True)"""


def noting(bench: Bench, endpoint: FaultEndpoint, later: float) -> Choose:
    """Writes down what the endpoint was asked, for agents to wait for; after the first its answers take so long."""

    def choose(message: str, nth: int) -> str:
        with (bench.path / "seen.txt").open("a") as file:
            file.write(f"{message}\n")
        endpoint.latency = endpoint.latency if message.endswith(" 0") else later
        return "ok"

    return choose


@pytest.mark.parametrize("workers", WORKERS)
def test_agents_that_hang_up_on_all_their_requests_pay_for_them(bench, workers):
    bench.agent(HANGING_UP.replace("ENDING", GOING))
    with FaultEndpoint(latency=0.5) as endpoint:
        endpoint.choose = noting(bench, endpoint, 0.5)
        project(bench, endpoint, cases=6, timeout_seconds=30)
        finished = session(bench, "--agentbench-max-cost=0.3", "--agentbench-concurrency=1", *workers)
        spent = finished.report["totals"]["spent_usd"]["run"]
        assert spent == pytest.approx(billed(endpoint), rel=0.01)
        assert 9 <= len(endpoint.requests) <= (9 if not workers else 18)
        assert finished.report["totals"]["skipped"] == 6 - len(endpoint.requests) // 9
        assert sum(row["cost_usd"]["run"] or 0 for row in finished.runs.values()) == pytest.approx(spent)


@pytest.mark.parametrize("limit", [None, 3.0], ids=["end", "time limit"])
def test_requests_in_flight_at_the_end_of_a_run_are_counted(bench, limit):
    bench.agent(HANGING_UP.replace("ENDING", "pass" if limit is None else "await asyncio.sleep(60)"))
    with FaultEndpoint(latency=0.1) as endpoint:
        endpoint.choose = noting(bench, endpoint, 0.3 if limit is None else 4.0)
        project(bench, endpoint, timeout_seconds=30)
        if limit is not None:
            bench.profile("quick", runner_defaults={"timeout_seconds": 30}, run_timeout_seconds=limit)
        finished = session(bench)
        assert len(endpoint.requests) == 9
        [row] = finished.runs.values()
        assert row["cost_usd"]["run"] == pytest.approx(billed(endpoint)), row
        assert finished.report["totals"]["spent_usd"]["run"] == pytest.approx(billed(endpoint))


@pytest.mark.parametrize("workers", WORKERS)
def test_a_run_that_a_failure_under_x_cancels_is_in_the_spending(bench, workers):
    def choose(message: str, nth: int) -> str:
        return "hang" if "question 1?" in message and nth else "ok"

    def answer(body: dict) -> dict:
        if "question 1?" in last_user(body) and len(body["messages"]) == 1:
            return PARIS
        return {"role": "assistant", "content": "Rome"}

    bench.agent(
        HEAD
        + """
import httpx2

async def agent(case, context):
    gateway = context.gateway
    async with httpx2.AsyncClient(verify=False, timeout=60) as http:
        for _ in range(2 if case.case_id.endswith("q1") else 1):
            body = {"model": gateway.model, "messages": [{"role": "user", "content": case.messages[0].content}]}
            headers = {"authorization": f"Bearer {gateway.key}"}
            await http.post(f"{gateway.openai_base_url}/chat/completions", json=body, headers=headers)
            note("asked.txt", case.case_id)
    while not os.path.exists("asked.txt") or "q1" not in open("asked.txt").read():
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.3)
    return "Rome"
"""
    )
    with FaultEndpoint(choose, answer=answer) as endpoint:
        project(bench, endpoint, cases=2, timeout_seconds=60)
        finished = session(bench, "-x", "--agentbench-max-cost=100", "--agentbench-concurrency=2", *workers)
        totals = finished.report["totals"]
        assert len(endpoint.requests) == 3
        assert totals["spent_usd"]["run"] is None
        assert totals["at_least"]["spent_usd"]["run"] == pytest.approx(2 * PRICE)
        assert "cost: run $0.2000; paid in this session, cancelled runs included: >=$0.4000" in finished.text


def test_a_session_without_a_limit_says_too_why_its_figures_are_a_lower_bound(bench):
    with FaultEndpoint(in_order("malformed"), answer=lambda _: PARIS) as endpoint:
        project(bench, endpoint)
        [warning] = estimates(session(bench))
        assert "1 request returned no usage and may have been billed: up to 2.0000 USD by estimate" in warning


def test_lost_replies_of_judges_are_a_lower_bound_too_and_stay_one_when_reused(bench):
    def answer(body: dict) -> dict:
        if body["model"] != "judge":
            return PARIS
        scored = {"score": 9, "evidence": []}
        verdict = {"summary": "So.", "dimensions": dict.fromkeys(DIMENSIONS, scored), "overall": scored}
        return {"role": "assistant", "content": json.dumps({**verdict, "expectations": []})}

    def choose(message: str, nth: int) -> str:
        return "cut-body" if nth == 0 and message != "The capital of France? (one)" else "ok"

    with FaultEndpoint(choose, answer=answer) as endpoint:
        bench.case("one", deterministic_checks=None)
        at = {"base_url": endpoint.base_url, "api_key_env": "none", "prices": PRICES}
        bench.models({"model_id": "m", **at}, {"model_id": "judge", **at})
        bench.profile("quick")
        judged = {"judges": [{"judge_id": "j", "type": "llm_probe", "model": "judge"}]}
        judged["judge_runs"] = [{"judge_run_id": "j", "judge_id": "j"}]
        bench.write(
            "cases/evaluation_profiles/judged.yaml",
            {"schema_version": 1, "evaluation_profile_id": "judged", "title": "Judged", **judged},
        )
        for requests in (3, 3):
            finished = session(bench, "--agentbench-evaluation-profile=judged", "--agentbench-max-cost=1000")
            assert len(endpoint.requests) == requests, finished.text
            [row] = finished.runs.values()
            assert row["cost_usd"] == {"run": pytest.approx(PRICE), "judge": None}
            assert row["at_least"]["cost_usd"] == {"run": pytest.approx(PRICE), "judge": pytest.approx(PRICE)}
            assert "judge >=$0.2000" in finished.text


def test_commands_show_a_lower_bound_of_a_stored_report(bench, capsys):
    with FaultEndpoint(in_order("malformed"), answer=lambda _: PARIS) as endpoint:
        project(bench, endpoint)
        finished = session(bench)
    report = bench.path / "kept.json"
    report.write_text(json.dumps(finished.report))
    assert main(["report", str(report)]) == 0
    assert ">=$0.2000" in capsys.readouterr().out
    main(["merge", str(report), "--output", str(bench.path / "merged.json")])
    merged = json.loads((bench.path / "merged.json").read_text())
    assert merged["totals"]["at_least"] == finished.report["totals"]["at_least"]
