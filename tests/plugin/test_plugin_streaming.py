"""Sessions whose replies are streamed: the same runs, with the times of their replies beside them."""

from __future__ import annotations

import json

import pytest
from support.fault_endpoint import FaultEndpoint, in_order
from support.stored import find_stored

CALL = {"id": "c1", "type": "function", "function": {"name": "write_file", "arguments": '{"path": "a", "content": ""}'}}


def answer(body):
    """Calls a tool first, and then says what it came to."""
    if body["messages"][-1]["role"] == "tool":
        return {"role": "assistant", "content": "It is Paris, after all.", "reasoning_content": "why not"}
    return {"role": "assistant", "content": "Let me see.", "tool_calls": [CALL]}


def project(bench, endpoint, **entry):
    bench.models({"model_id": "local", "base_url": endpoint.base_url, "api_key_env": "none", **entry})
    messages = [{"role": "user", "content": "The capital of France?"}]
    bench.case("one", input={"messages": messages, "context": {"llm_probe": {"tools": ["write_file"]}}})


def trace_of(bench, case_id="one"):
    """The stored run, without what differs from run to run: times and ids."""
    artifact = json.loads(find_stored(bench.path / "outputs", f"*/{case_id}/run_1.json")[0].read_text())
    own = ("at", "seconds", "duration_seconds")
    events = [{k: v for k, v in event.items() if k not in own} for event in artifact["trace"]]
    replies = [event["data"] for event in events if event.get("name") == "reply"]
    times = [{k: data.pop(k) for k in [*data] if k.endswith("seconds") or "per_second" in k} for data in replies]
    for each in times:
        each.pop("seconds")
    kept = {name: artifact[name] for name in ("request", "usage", "status", "fingerprint")}
    return json.dumps([events, kept]), times


@pytest.mark.slow
@pytest.mark.parametrize("model", ["local", "demo"])
def test_runs_are_the_same_with_and_without_streams(bench, model):
    if model == "demo":
        bench.write(
            "cases/one/demo.yaml", {"schema_version": 1, "replies": [{"content": "It is  Paris,\nafter all. "}]}
        )
    found = {}
    with FaultEndpoint(answer=answer) as endpoint:
        for stream in (False, True):
            project(bench, endpoint)
            bench.profile("way", runner_defaults={"stream": stream})
            finished = bench.run("--model", model, "--agentbench-run-profile", "way", "--agentbench-no-reuse")
            assert finished.outcomes == {f"one[{model}]": "passed"}
            found[stream], times = trace_of(bench)
            assert all(bool(each) is stream for each in times)
    assert found[True] == found[False]


@pytest.mark.slow
def test_a_stream_asked_for_or_not_is_the_same_run(bench):
    with FaultEndpoint(answer=answer) as endpoint:
        project(bench, endpoint)
        first = bench.run("--model", "local")
        project(bench, endpoint, stream=True, stall_seconds=5)
        bench.profile("way", runner_defaults={"stream": True, "stall_seconds": 9})
        again = bench.run("--model", "local")
        assert len(endpoint.requests) == 2
    assert (first.report["totals"]["reused"], again.report["totals"]["reused"]) == (0, 1)
    assert (first.report["models"][0]["streaming"], "streaming" in first.runs["one[local]"]) == (None, False)


def test_times_of_streamed_replies_are_in_artifact_and_report(bench):
    with FaultEndpoint(in_order("ok"), answer=answer, latency=0.02) as endpoint:
        project(bench, endpoint, stream=True)
        finished = bench.run("--model", "local")
    _, times = trace_of(bench)
    row, model = finished.runs["one[local]"], finished.report["models"][0]
    assert len(times) == 2
    for name in ("ttft_seconds", "first_text_seconds", "output_tokens_per_second"):
        values = sorted(each[name] for each in times)
        assert sorted(row["streaming"][name]) == values
        assert model["streaming"][name] == {"p50": values[0], "p95": values[1]}
    assert times[0]["ttft_seconds"] >= 0.02


def test_judges_of_a_streamed_model_are_streamed_too(bench):
    verdict = json.dumps({"correct": True, "reason": "it is"})
    with FaultEndpoint(answer=lambda body: {"role": "assistant", "content": verdict}) as endpoint:
        bench.models({"model_id": "j", "base_url": endpoint.base_url, "api_key_env": "none", "stream": "auto"})
        bench.agent()
        metric = {"name": "llm_judgement", "args": {"model": "j"}, "threshold": 1}
        bench.case("one", reference="Paris", metrics=[metric], deterministic_checks=None)
        finished = bench.run()
        assert [request.body.get("stream") for request in endpoint.requests] == [True], finished.text


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"stream": "yes"}, "stream"),
        ({"stall_seconds": 0}, "stall_seconds"),
        ({"parameters": {"stream": True}}, "parameters.stream: is a setting of runs, which no endpoint takes"),
    ],
)
def test_an_invalid_stream_setting_is_an_error_with_its_line(bench, entry, said):
    with FaultEndpoint() as endpoint:
        project(bench, endpoint, **entry)
        finished = bench.run("--model", "local")
        assert not endpoint.requests
    assert "models.yaml:" in finished.text
    assert said in finished.text
