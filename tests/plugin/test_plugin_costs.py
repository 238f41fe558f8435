"""What a session says of a provider's prompt cache: how much was read from it, and what it saved."""

from __future__ import annotations

import pytest
from support.bench import Bench


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
