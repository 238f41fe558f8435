"""What a session says of a provider's prompt cache: how much was read from it, and what it saved."""

from __future__ import annotations

import re

import pytest
from support.bench import Bench
from support.replay_endpoint import ReplayEndpoint
from test_plugin_ends import WRITE, reached, says, scenario


def test_a_session_tells_what_was_read_from_a_cache_and_the_cost_without_it(bench: Bench) -> None:
    bench.case("paris")
    usage = {"input_tokens": 3000, "output_tokens": 10, "cached_tokens": 1000, "cache_write_tokens": 1500}
    bench.write(
        "cases/paris/demo.yaml", {"schema_version": 1, "replies": [{"steps": [{"content": "Paris", "usage": usage}]}]}
    )
    prices = {"input_per_1m": 3, "output_per_1m": 15, "cached_input_per_1m": 0.3, "cache_write_per_1m": 3.75}
    bench.models({"model_id": "demo", "scripted": True, "prices": prices})
    finished = bench.run("cases", "--model", "demo")
    assert finished.report is not None
    [model] = finished.report["models"]
    assert model["cost_usd"]["run"] == pytest.approx(0.007575)
    assert model["cache"]["read_share"] == pytest.approx(1 / 3)
    assert model["cache"]["uncached_cost_usd"] == pytest.approx(0.00915)
    assert finished.runs["paris[demo]"]["usage"]["cache_write_tokens"] == 1500
    finished.result.stdout.fnmatch_lines(["*33% of the input read from a cache ($0.0092* without)*"])


def test_without_a_cache_nothing_is_said_of_one(bench: Bench) -> None:
    bench.case("paris")
    bench.write("cases/paris/demo.yaml", "schema_version: 1\nreplies: [{content: Paris}]\n")
    finished = bench.run("cases", "--model", "demo")
    assert finished.report is not None
    assert "cache" not in finished.report["models"][0]
    assert "read from a cache" not in finished.text


ASKED = {
    "messages": [{"role": "system", "content": "Be short."}, {"role": "user", "content": "The capital of France?"}],
    "context": {"llm_probe": {"tools": ["write_file"]}},
}


@pytest.mark.slow
@pytest.mark.parametrize(("ttl", "control"), [("5m", {}), ("1h", {"ttl": "1h"})])
def test_marks_ask_for_a_cache_of_anthropics_models(bench: Bench, ttl: str, control: dict[str, str]) -> None:
    bench.case("c", input=ASKED)
    mark = {"type": "ephemeral", **control}
    rules = [
        {"when": {"tool_messages": 0}, "reply": says(None, tool_calls=[WRITE])},
        {"when": {}, "reply": says("Paris")},
    ]
    with ReplayEndpoint([{"id": "anthropic/m", "rules": rules}]) as endpoint:
        named = {"requested_model": "anthropic/m", "dialect": "openrouter"}
        reached(bench, endpoint, **named)
        assert bench.run("--model", "m").outcomes == {"c[m]": "passed"}
        plain = endpoint.requests["anthropic/m"][0]
        reached(bench, endpoint, **named, prompt_cache={"ttl": ttl})
        bench.run("--model", "m")
        assert len(endpoint.requests["anthropic/m"]) == 2  # no other run by that
        bench.run("--model", "m", "--agentbench-no-reuse")
        marked = endpoint.requests["anthropic/m"][2:]
    assert "cache_control" not in str(plain)
    system, *_, last = marked[-1]["messages"]
    assert system["content"] == [{"type": "text", "text": "Be short.", "cache_control": mark}]
    assert (last["role"], last["content"][0]["cache_control"]) == ("tool", mark)
    assert str(marked[-1]).count("cache_control") == 2


@pytest.mark.slow
@pytest.mark.parametrize("suite", [None, "s" * 70])
def test_a_key_asks_for_openais_cache(bench: Bench, suite: str | None) -> None:
    bench.case("c")
    options = []
    if suite is not None:
        bench.write(f"cases/suites/{suite}.yaml", {"schema_version": 1, "suite_id": suite, "title": "S"})
        options = ["--agentbench-suite", suite]
    with ReplayEndpoint([scenario(says("Paris"))]) as endpoint:
        reached(bench, endpoint, dialect="openai", prompt_cache={})
        assert bench.run("--model", "m", *options).exit == 0
        reached(bench, endpoint, dialect="openai", prompt_cache={}, parameters={"prompt_cache_key": "mine"})
        bench.run("--model", "m", *options)
        key, own = (body["prompt_cache_key"] for body in endpoint.requests["m"])
    assert own == "mine"
    assert key == "default-m" if suite is None else len(key) == 64


@pytest.mark.slow
@pytest.mark.parametrize("fields", [{}, {"dialect": "openrouter", "requested_model": "google/m"}])
def test_a_cache_that_nothing_asks_for_is_refused_at_its_line(bench: Bench, fields: dict[str, str]) -> None:
    bench.case("c")
    with ReplayEndpoint([scenario(says("Paris"))]) as endpoint:
        reached(bench, endpoint, prompt_cache={"system": True}, **fields)
        finished = bench.run("--model", "m")
        assert not endpoint.requests
    assert re.search(r"models.yaml:\d+:\d+: models\[0\].prompt_cache: .*caches?", finished.text), finished.text
