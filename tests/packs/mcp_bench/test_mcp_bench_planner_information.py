"""Results in the requests of the planner: summaries, cuts and compression, against a real endpoint on loopback."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from planner_support import STOP, asked, events, plan, run, says
from runners.runners_support import assistant, told

from pytest_agentbench.errors import ProviderError
from pytest_agentbench.records.run import ToolResultEvent
from pytest_agentbench.runners.base import Recorder

LONG = "The wind in Oslo blows from the west. " * 200
"""Some 450 tokens, by what the endpoint says that it counts."""


def test_a_long_result_is_summarised_and_kept_whole_in_the_trace() -> None:
    summary = assistant("West wind.")
    with told(plan(("S:a", {}), ("S:b", {})), summary, STOP, assistant("x")) as (model, requests):
        context, _ = run(model, says("S:a", LONG), says("S:b", "short"), summarise_over_tokens=100)
    assert "fewer than 100 tokens" in asked(requests[1])
    assert LONG in asked(requests[1])
    assert "S:a {}\n-> succeeded\nWest wind." in asked(requests[2])
    assert "S:b {}\n-> succeeded\nshort" in asked(requests[2])
    assert LONG not in asked(requests[2])
    results = [event.content for event in context.trace.events if isinstance(event, ToolResultEvent)]
    assert results == [LONG, "short"]
    assert events(context, "summary") == [{"call_id": "r1-1", "content": "West wind."}]
    assert context.trace.usage.total_tokens == 60


def test_a_summary_that_is_too_long_is_cut() -> None:
    with told(plan(("S:a", {})), assistant(LONG * 2), STOP, assistant("x")) as (model, requests):
        context, _ = run(model, says("S:a", LONG), summarise_over_tokens=100)
    [noted] = events(context, "summary")
    kept, _, left_out = noted["content"].rpartition("\n")
    assert LONG.startswith(kept)
    assert left_out.startswith("[... about ")
    assert left_out in asked(requests[2])


@pytest.mark.parametrize("nothing", [assistant(None, finish="content_filter"), assistant("  ")])
def test_an_empty_summary_is_replaced_by_the_beginning_of_the_result(nothing: dict[str, Any]) -> None:
    with told(plan(("S:a", {})), nothing, STOP, assistant("x")) as (model, requests):
        _, end = run(model, says("S:a", LONG), summarise_over_tokens=100)
    assert end.status == "success"
    assert "-> succeeded\nThe wind in Oslo blows from the west." in asked(requests[2])
    assert LONG not in asked(requests[2])


def test_summaries_of_a_round_are_made_side_by_side() -> None:
    both = threading.Barrier(2, timeout=20)

    def summary(request: dict[str, Any]) -> dict[str, Any]:
        both.wait()
        return assistant("first" if "1st" in asked(request) else "second")

    with told(plan(("S:a", {}), ("S:b", {})), summary, summary, STOP, assistant("x")) as (model, requests):
        context, end = run(model, says("S:a", "1st " + LONG), says("S:b", "2nd " + LONG), summarise_over_tokens=100)
    assert end.status == "success"
    assert "S:a {}\n-> succeeded\nfirst" in asked(requests[3])
    assert "S:b {}\n-> succeeded\nsecond" in asked(requests[3])
    assert [each["call_id"] for each in events(context, "summary")] == ["r1-1", "r1-2"]


def test_a_summary_that_fails_is_a_failure_of_the_provider() -> None:
    trace = Recorder()
    with told(plan(("S:a", {})), 401) as (model, _), pytest.raises(ProviderError, match="401"):
        run(model, says("S:a", LONG), summarise_over_tokens=100, trace=trace)
    assert any(isinstance(event, ToolResultEvent) for event in trace.events)


def test_information_that_outgrows_its_target_is_compressed() -> None:
    rounds = [plan(("S:a", {"n": n})) for n in (1, 2)]
    condensed = assistant("Twice west wind.")
    with told(*rounds, condensed, STOP, assistant("x")) as (model, requests):
        context, _ = run(model, says("S:a", "round {n}: " + LONG), information_tokens=700)
    assert [each["purpose"] for each in events(context, "request")] == ["plan", "plan", "compression", "plan", "answer"]
    assert "fewer than 350 tokens" in asked(requests[2])
    assert all(f"round {n}: The wind" in asked(requests[2]) for n in (1, 2))
    for request in requests[3:]:
        assert "Twice west wind." in asked(request)
        assert "blows" not in asked(request)
    assert events(context, "compression") == [{"pieces": 1, "content": "Twice west wind."}]


def test_much_information_is_compressed_in_pieces_and_in_order() -> None:
    def condense(request: dict[str, Any]) -> dict[str, Any]:
        return assistant("+".join(f"number {n}" for n in range(4) if f"number {n} " in asked(request)))

    calls = [("S:a", {"n": n}) for n in range(4)]
    with told(plan(*calls), *[condense] * 4, STOP, assistant("x")) as (model, requests):
        context, _ = run(model, says("S:a", "number {n} " + LONG), information_tokens=300)
    [compressed] = events(context, "compression")
    assert compressed == {"pieces": 4, "content": "number 0\n\nnumber 1\n\nnumber 2\n\nnumber 3"}
    assert "fewer than 37 tokens" in asked(requests[1])


def test_the_token_count_of_the_provider_decides_when_to_summarise() -> None:
    def costly(tokens: int) -> dict[str, Any]:
        return {**plan(("S:a", {})), "usage": {"prompt_tokens": tokens, "completion_tokens": 1, "total_tokens": tokens}}

    text = "The wind in Oslo blows from the west. " * 10
    with told(costly(1), STOP, assistant("x")) as (model, requests):
        run(model, says("S:a", text), summarise_over_tokens=50)
    assert len(requests) == 3
    with told(costly(100_000), assistant("Wind."), STOP, assistant("x")) as (model, requests):
        run(model, says("S:a", text), summarise_over_tokens=150)
    assert len(requests) == 4
