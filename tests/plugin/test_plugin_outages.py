"""Sessions against an endpoint that misbehaves on a schedule, and what they come to.

After each: no verdict is wrong (an outage is never a failure, and whoever had a good answer passes), nothing is asked
again once it is answered, and the spending that is shown is what the endpoint billed.
"""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from support.fault_endpoint import Choose
from support.misbehaving_endpoint import MisbehavingEndpoint
from test_plugin_gateway import IN_A_THREAD
from test_plugin_kill import PROFILE

from pytest_agentbench.records.base import DIMENSIONS

pytestmark = pytest.mark.slow
QUESTIONS, AT_ONCE = 24, 6
GOOD = frozenset({"ok", "close", "text-type", "no-usage", "other-model"})


def between(first: int, last: int, fault: str) -> Callable[[], Choose]:
    """Requests number `first` up to `last` of the session meet the fault."""

    def make() -> Choose:
        numbers = itertools.count()
        return lambda message, nth: fault if first <= next(numbers) < last else "ok"

    return make


def for_one(fault: str) -> Callable[[], Choose]:
    """One question always meets the fault."""
    return lambda: lambda message, nth: fault if "question 7?" in message else "ok"


def never() -> Choose:
    return lambda message, nth: "ok"


@dataclass(frozen=True)
class Scenario:
    name: str
    make: Callable[[], Choose] = never
    errors: int | None = 0
    """Runs without a verdict; None: as many as were not answered, at least one."""
    settings: dict[str, Any] = field(default_factory=dict)
    endpoint: dict[str, Any] = field(default_factory=dict)
    in_report: str = ""
    """What the summary says, a pattern."""


def some(fault: str, **fields: Any) -> Scenario:
    return Scenario(fault, between(9, 14, fault), **fields)


def one(fault: str, said: str) -> Scenario:
    return Scenario(f"one {fault}", for_one(fault), errors=1, in_report=said)


WAITED = r"\(status 429\), [\d.]+ s in all"
SCENARIOS = [
    *(some(f"status-{status}") for status in (408, 409, 425, 500, 502, 503, 504, 520, 529)),
    some("429", in_report=WAITED),
    *(some(f"429-after-{kind}", in_report=WAITED) for kind in ("seconds", "date", "negative")),
    some("429-after-huge", in_report=WAITED, settings={"outage_seconds": 2}),
    *(some(fault) for fault in ("page-200", "page-404", "page-502", "page-503", "text")),
    *(some(fault) for fault in ("empty", "cut-body", "malformed", "no-choices", "error-inside", "gzip")),
    *(some(fault) for fault in ("reset-before", "reset-after", "close", "text-type", "no-usage", "other-model")),
    *(some(fault, settings={"timeout_seconds": 3}) for fault in ("hang", "slow-body", "late")),
    *(some(fault, settings={"stream": True}) for fault in ("cut-stream", "ended-stream")),
    one("status-401", "1 refused for this request"),
    one("status-403", "1 refused for this request"),
    one("page-403", "1 refused for this request"),
    one("status-404", "1 rejected by the endpoint"),
    one("status-413", "1 rejected by the endpoint"),
    one("status-422", "1 rejected by the endpoint"),
    one("redirect", "1 rejected by the endpoint"),
    Scenario("key revoked", between(9, 10**9, "401"), errors=None, in_report="Key refused: "),
    Scenario("quota used up", between(9, 10**9, "quota"), errors=None, in_report="is stopped: .*You exceeded"),
    Scenario(
        "endless 429",
        between(9, 10**9, "429-after-huge"),
        errors=None,
        settings={"outage_seconds": 2},
        in_report=r"answered only with 429 for \d s",
    ),
    Scenario(
        "dead for good",
        errors=None,
        settings={"outage_seconds": 2},
        endpoint={"down_at": 10},
        in_report=r"has been down for \d s",
    ),
    Scenario("refused for 2 s", endpoint={"down_at": 10, "down_seconds": 2}, in_report="runs waited and went on"),
    Scenario("restarted", endpoint={"down_at": 10, "down_seconds": 0}),
]


REPEATED = {
    *("status-408", "status-409", "status-425", "status-500", "status-502", "status-504", "status-520", "status-529"),
    *("429-after-date", "429-after-negative", "page-404", "page-502", "page-503", "one page-403", "one status-403"),
    *("one status-413", "one status-422"),
}
"""Faults of a kind of which another scenario stays in the slow tier."""


def named(scenarios: list[Scenario], *slow: str) -> pytest.MarkDecorator:
    """Parametrize by the scenarios: those in `slow`, by default those that repeat no other, are in the slow tier."""
    in_slow = set(slow) or {scenario.name for scenario in scenarios} - REPEATED
    cases = [
        pytest.param(scenario, id=scenario.name, marks=() if scenario.name in in_slow else pytest.mark.full)
        for scenario in scenarios
    ]
    return pytest.mark.parametrize("scenario", cases)


def pick(*names: str) -> list[Scenario]:
    return [scenario for scenario in SCENARIOS if scenario.name in names]


def answer(body: dict) -> dict:
    if body["model"] != "judge":
        return {"role": "assistant", "content": "Paris"}
    scored = {"score": 8, "evidence": ["It says so."]}
    verdict = {"summary": "Seen.", "dimensions": dict.fromkeys(DIMENSIONS, scored), "overall": scored}
    return {"role": "assistant", "content": json.dumps(verdict)}


def question_of(message: str) -> str | None:
    found = re.search(r"question \d+\?", message)
    return found[0] if found else None


def is_of(model: str) -> Callable[[str], bool]:
    """Whether the last message of a request is one to the model: the judge is shown more than the question."""
    return lambda message: (re.fullmatch(r"question \d+\?", message) is None) == (model == "judge")


def run_scenario(
    bench: Any, monkeypatch: pytest.MonkeyPatch, scenario: Scenario, *options: str, faulty: str = "m"
) -> None:
    """Run the session and check what it came to; only requests to the model `faulty` misbehave."""
    monkeypatch.setenv("BENCH_KEY", "sk-bench")
    policy = {"stop_on_runner_error": True, "max_concurrency": AT_ONCE}
    bench.profile("p", policy=policy, runner_defaults=scenario.settings)
    concerns, misbehave = is_of(faulty), scenario.make()
    choose = lambda message, nth: misbehave(message, nth) if concerns(message) else "ok"  # noqa: E731
    with MisbehavingEndpoint(choose, answer=answer, latency=0.02, **scenario.endpoint) as endpoint:
        there = {"base_url": endpoint.base_url, "api_key_env": "BENCH_KEY"}
        there["prices"] = {"input_per_1m": 100_000, "output_per_1m": 0}  # a request: 1 USD
        bench.models(*({"model_id": name, **there} for name in ("m", "judge")))
        finished = bench.run("--model=m", "--agentbench-run-profile=p", *options)
    check(scenario, finished, endpoint, faulty)


def check(scenario: Scenario, finished: Any, endpoint: MisbehavingEndpoint, faulty: str) -> None:
    """`faulty` is who is asked last for a verdict."""
    outcomes = Counter(row["outcome"] for row in finished.report["runs"])
    assert outcomes.total() == QUESTIONS
    assert outcomes["failed"] == 0, finished.text
    if scenario.errors is None:
        assert outcomes["error"] > 0
    else:
        assert outcomes == Counter(passed=QUESTIONS - scenario.errors, error=scenario.errors), finished.text
    assert re.search(scenario.in_report, finished.text), finished.text
    answered = Counter(
        (each.body["model"], int(re.search(r"question (\d+)\?", each.message)[1]))
        for each in endpoint.requests
        if each.fault in GOOD
    )
    assert set(answered.values()) == {1}, "a question was asked again after its answer"
    passed = {
        int(re.search(r"\bq(\d+)\[", row["nodeid"])[1]) for row in finished.report["runs"] if row["outcome"] == "passed"
    }
    assert passed == {number for model, number in answered if model == faulty}
    check_bill(finished.report["totals"], endpoint)


def check_bill(totals: dict[str, Any], endpoint: MisbehavingEndpoint) -> None:
    """The spending is what the endpoint billed. If answers got lost, it is unknown and has a lower bound."""
    spent = totals["spent_usd"]
    if None not in spent.values():
        assert sum(spent.values()) == pytest.approx(endpoint.billed, rel=0.01)
        return
    read = sum(each.fault in GOOD - {"no-usage"} for each in endpoint.requests)
    known = sum(totals["at_least"]["spent_usd"].values())
    assert 0.99 * read <= known <= 1.01 * endpoint.billed


@named(SCENARIOS)
def test_of_an_endpoint_that_misbehaves_no_verdict_is_wrong(bench, monkeypatch, scenario):
    bench.questions(QUESTIONS)
    run_scenario(bench, monkeypatch, scenario)


BEHIND = pick("status-503", "429", "page-200", "text", "cut-body", "reset-before", "one status-403", "key revoked")


@named(
    [*BEHIND, *pick("refused for 2 s", "endless 429")],
    *("status-503", "429", "text", "reset-before", "one status-403", "key revoked", "refused for 2 s", "endless 429"),
)
def test_of_an_agent_behind_the_gateway_no_verdict_is_wrong(bench, monkeypatch, scenario):
    bench.write("conftest.py", IN_A_THREAD)
    bench.questions(QUESTIONS)
    run_scenario(bench, monkeypatch, scenario)


@named(
    [*pick("status-503", "429", "page-200", "text", "cut-body", "reset-before", "gzip"), *pick("refused for 2 s")],
    *("status-503", "429", "text", "gzip", "refused for 2 s"),
)
def test_of_a_judge_that_misbehaves_no_verdict_is_wrong(bench, monkeypatch, scenario):
    bench.write("cases/evaluation_profiles/judged.yaml", PROFILE)
    bench.rows("cases/many.jsonl", *({"id": f"q{n}", "question": f"question {n}?"} for n in range(QUESTIONS)))
    run_scenario(bench, monkeypatch, scenario, "--agentbench-evaluation-profile=judged", faulty="judge")
