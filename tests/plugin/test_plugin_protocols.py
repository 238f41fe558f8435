"""Sessions with models that are asked in Responses or Messages: a tool loop, judges, streams, batches, cassettes."""

from __future__ import annotations

import json
import shutil

import pytest
from support.batch_server import KEY, BatchServer
from support.bench import check
from support.replay_endpoint import ReplayEndpoint

from pytest_agentbench.cli import main
from pytest_agentbench.models.batches import collector

pytestmark = pytest.mark.slow
VERDICT = json.dumps({"summary": "fine"})
REASONED = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "SEALED"}
THOUGHT = {"type": "thinking", "thinking": "a file", "signature": "SIG"}
GIVEN = {"path": "a.txt", "content": "4"}
USED = {"responses": "function_outputs", "messages": "tool_results"}


def response(*output):
    usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
    return {"id": "resp_1", "model": "m-1", "status": "completed", "output": [*output], "usage": usage}


def message(*content, stop_reason="end_turn"):
    usage = {"input_tokens": 10, "output_tokens": 5}
    whole = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m-1", "usage": usage}
    return {**whole, "content": [*content], "stop_reason": stop_reason}


CALLING = {
    "responses": response(
        REASONED,
        {
            "type": "function_call",
            "id": "fc_1",
            "call_id": "call_1",
            "name": "write_file",
            "arguments": json.dumps(GIVEN),
            "status": "completed",
        },
    ),
    "messages": message(
        THOUGHT, {"type": "tool_use", "id": "toolu_1", "name": "write_file", "input": GIVEN}, stop_reason="tool_use"
    ),
}
ANSWERING = {
    "responses": response({"type": "message", "content": [{"type": "output_text", "text": "It is 4."}]}),
    "messages": message({"type": "text", "text": "It is 4."}),
}


def rule(document, **when):
    return {"when": when, "reply": {"status": 200, "json": document}}


def loop(api):
    """A model that writes a file and answers."""
    return {"id": "m", "rules": [rule(CALLING[api], **{USED[api]: 0}), rule(ANSWERING[api])]}


def project(bench, endpoint, api, **more):
    entry = {"model_id": "m", "base_url": f"{endpoint.url}/v1", "api_key_env": "none", "api": api}
    bench.models({**entry, **more})
    bench.case(
        "one",
        input={
            "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2 + 2?"}],
            "context": {"llm_probe": {"tools": ["write_file"]}},
        },
        deterministic_checks=[check("four", kind="regex_match", pattern="4")],
    )


@pytest.mark.parametrize("api", ["responses", "messages"])
def test_the_shown_request_is_the_one_that_is_sent(bench, capsys, monkeypatch, api):
    monkeypatch.chdir(bench.path)
    monkeypatch.setenv("THE_KEY", "a-key-that-nobody-may-see")
    with ReplayEndpoint([loop(api)]) as endpoint:
        project(bench, endpoint, api, api_key_env="THE_KEY", parameters={"max_tokens": 50, "seed": 1})
        bench.profile("p", runner_defaults={"temperature": 0.5})
        options = ["--model", "m", "--run-profile", "p", "--show-request", "one"]
        assert main(["validate", "cases", *options, "--json"]) == 0
        told = capsys.readouterr().out
        assert not endpoint.requests
        finished = bench.run("--model=m", "--agentbench-run-profile=p")
        assert finished.exit == 0, finished.text
        request, sent = json.loads(told), endpoint.requests["m"]
    assert request["body"] == sent[0]
    assert request["url"] == f"{endpoint.url}/v1/{api}"
    key = {"responses": "authorization", "messages": "x-api-key"}[api]
    assert request["headers"][key] == "***"
    assert "nobody-may-see" not in told
    origins = {name: place.rpartition("/")[2].partition(":")[0] for name, place in request["origins"].items()}
    assert origins.keys() == sent[0].keys()
    limit = {"responses": "max_output_tokens", "messages": "max_tokens"}[api]
    talk = {"responses": ("input",), "messages": ("messages", "system")}[api]
    assert origins[limit] == "models.yaml"
    assert origins["temperature"] == "p.yaml"
    assert {origins[name] for name in talk} == {"test.yaml"}
    if api == "responses":
        assert request["origins"]["store"] == "api: responses"
    assert any(text.startswith("seed: has no effect") for text in request["warnings"])
    [row] = finished.runs.values()
    assert row["adapted"] == ["seed dropped"]


@pytest.mark.parametrize("api", ["responses", "messages"])
def test_a_recorded_loop_is_replayed(bench, api):
    with ReplayEndpoint([loop(api)]) as endpoint:
        project(bench, endpoint, api)
        recorded = bench.run("--model=m", "--agentbench-cassettes=record")
        assert len(endpoint.requests["m"]) == 2
    shutil.rmtree(bench.path / "outputs")
    replayed = bench.run("--model=m", "--agentbench-cassettes=replay")
    for finished in (recorded, replayed):
        [row] = finished.runs.values()
        assert (row["outcome"], row["end_reason"], row["usage"]["input_tokens"]) == ("passed", "answered", 20)
    assert "replayed from cassettes" in replayed.text


def as_events(api, document):
    if api == "responses":
        return [{"type": "response.created", "response": {}}, {"type": "response.completed", "response": document}]
    blocks = [
        {"type": "content_block_start", "index": at, "content_block": block}
        for at, block in enumerate(document["content"])
    ]
    ended = {"type": "message_delta", "delta": {"stop_reason": document["stop_reason"]}, "usage": document["usage"]}
    return [{"type": "message_start", "message": {**document, "content": []}}, *blocks, ended, {"type": "message_stop"}]


@pytest.mark.parametrize("api", ["responses", "messages"])
def test_a_streamed_loop_ends_like_a_whole_one(bench, api):
    rules = [
        {"when": each["when"], "reply": {"status": 200, "content_type": "text/event-stream", "sse": events}}
        for each in loop(api)["rules"]
        for events in [as_events(api, each["reply"]["json"])]
    ]
    with ReplayEndpoint([{"id": "m", "rules": rules}]) as endpoint:
        project(bench, endpoint, api, stream=True)
        finished = bench.run("--model=m")
        [row] = finished.runs.values()
        assert (row["outcome"], row["end_reason"]) == ("passed", "answered"), finished.text
        first, second = endpoint.requests["m"]
    assert (first["stream"], "stream_options" in first) == (True, False)
    thought = {"responses": lambda: second["input"][2], "messages": lambda: second["messages"][1]["content"][0]}[api]()
    assert thought == {"responses": REASONED, "messages": THOUGHT}[api]


@pytest.mark.parametrize("api", ["responses", "messages"])
def test_a_final_answer_is_asked_for_as_the_protocol_has_it(bench, api):
    with ReplayEndpoint([loop(api)]) as endpoint:
        project(bench, endpoint, api)
        bench.profile("p", runner_defaults={"max_turns": 1})
        finished = bench.run("--model=m", "--agentbench-run-profile=p")
        [row] = finished.runs.values()
        assert (row["outcome"], row["end_reason"]) == ("passed", "max_turns"), finished.text
        last = endpoint.requests["m"][-1]
    assert last.get("tool_choice") == {"responses": None, "messages": {"type": "none"}}[api]
    assert bool(last.get("tools")) == (api == "messages")


@pytest.mark.parametrize("api", ["responses", "messages"])
def test_judges_ask_in_the_form_that_the_protocol_has(bench, api):
    with ReplayEndpoint([loop(api), {"id": "judge", "rules": [rule(ANSWERING[api])]}]) as endpoint:
        entry = {"base_url": f"{endpoint.url}/v1", "api_key_env": "none", "api": api}
        bench.models({"model_id": "m", **entry}, {"model_id": "judge", **entry})
        bench.case("one", rubric={"criteria": [{"name": "short"}]}, deterministic_checks=[])
        bench.write(
            "cases/evaluation_profiles/e.yaml",
            {
                "schema_version": 1,
                "evaluation_profile_id": "e",
                "title": "E",
                "judges": [{"judge_id": "j", "type": "llm_probe", "model": "judge"}],
                "judge_runs": [{"judge_run_id": "r", "judge_id": "j"}],
            },
        )
        bench.run("--model=m", "--agentbench-evaluation-profile=e")
        asked = endpoint.requests["judge"][0]
    form = asked["text"]["format"] if api == "responses" else asked["output_config"]["format"]
    assert form["type"] == "json_schema"
    assert form["schema"]["type"] == "object"


def test_requests_of_messages_go_in_batches(bench, monkeypatch):
    monkeypatch.setattr(collector, "PACE", collector.Pace(quiet=0.2, first=0.02, longest=0.02))
    monkeypatch.setenv("BATCH_KEY", KEY)
    with BatchServer("anthropic", states=("ended",)) as server:
        bench.models(
            {
                "model_id": "m",
                "base_url": server.base_url,
                "api_key_env": "BATCH_KEY",
                "batch": "anthropic",
                "api": "messages",
            }
        )
        bench.rows("cases/sums.jsonl", *({"id": each, "question": f"2+2? item {each}", "answer": "4"} for each in "ab"))
        finished = bench.run("--model=m")
        assert (finished.exit, server.problems, server.direct) == (0, [], []), finished.text
        assert all(request["max_tokens"] == 4096 for request in server.batches[0]["requests"].values())


def test_an_entry_without_an_endpoint_may_not_name_an_api(bench, capsys):
    for more, answerer in (({"scripted": True}, "scripts answer"), ({"provider": "mine"}, "the provider mine asks")):
        path = bench.models({"model_id": "m", "api": "messages", **more})
        assert main(["validate", str(path)]) != 0
        assert f"models[0].api: found 'messages', expected none: {answerer}" in capsys.readouterr().out
    path = bench.models({"model_id": "m", "api": "completions"})
    assert main(["validate", str(path)]) != 0
    assert "models[0].api" in capsys.readouterr().out
    path = bench.models({"model_id": "m", "api": "messages", "parameters": {"temperature": 1.5, "seed": 1}})
    assert main(["validate", str(path)]) != 0
    assert "expected at most 1" in capsys.readouterr().out
    path = bench.models({"model_id": "m", "api": "messages", "parameters": {"seed": 1}})
    assert main(["validate", str(path)]) == 0
    assert "models[0].parameters.seed: has no effect" in capsys.readouterr().out
