"""Ends of runs that people decide about: filtered ones, endpoints without tools, reasoning that judges may see."""

from __future__ import annotations

import re
from typing import Any

import pytest
from support.bench import Bench, check
from support.replay_endpoint import ReplayEndpoint
from support.stored import Stored

WRITE = {
    "id": "c1",
    "type": "function",
    "function": {"name": "write_file", "arguments": '{"path": "a", "content": "b"}'},
}


def says(content: str | None, finish: str = "stop", **message: Any) -> dict[str, Any]:
    said = {"role": "assistant", "content": content, **message}
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    return {"json": {"choices": [{"index": 0, "message": said, "finish_reason": finish}], "usage": usage}}


def scenario(*replies: dict[str, Any]) -> dict[str, Any]:
    rules = [{"when": {"request_max": number}, "reply": reply} for number, reply in enumerate(replies, start=1)]
    return {"id": "m", "rules": [*rules, {"when": {}, "reply": replies[-1]}]}


def reached(bench: Bench, endpoint: ReplayEndpoint, **fields: Any) -> None:
    bench.models({"model_id": "m", "base_url": f"{endpoint.url}/v1", "api_key_env": "none", **fields})


def evaluation_profile(bench: Bench, **fields: Any) -> str:
    bench.write(
        "cases/evaluation_profiles/e.yaml",
        {"schema_version": 1, "evaluation_profile_id": "e", "title": "E", **fields},
    )
    return "--agentbench-evaluation-profile=e"


@pytest.mark.slow
@pytest.mark.parametrize(("said", "outcome"), [("fail", "failed"), ("skip", "skipped"), ("error", "error")])
def test_a_new_policy_for_filtered_runs_applies_without_a_request(bench: Bench, said: str, outcome: str) -> None:
    bench.case("c")
    with ReplayEndpoint([scenario(says(None, "content_filter"))]) as endpoint:
        reached(bench, endpoint)
        assert bench.run("--model", "m").outcomes == {"c[m]": "failed"}
        finished = bench.run("--model", "m", evaluation_profile(bench, on_filtered=said))
        assert len(endpoint.requests["m"]) == 1
    row = finished.runs["c[m]"]
    assert (row["outcome"], row["status"], row["end_reason"]) == (outcome, "failed", "filtered")
    assert "withheld" in row["message"]


@pytest.mark.slow
def test_an_endpoint_without_tools_is_asked_with_tools_once(bench: Bench) -> None:
    tools = {"messages": [{"role": "user", "content": "Go."}], "context": {"llm_probe": {"tools": ["write_file"]}}}
    for number in range(4):
        bench.case(f"tool{number}", input=tools)
    bench.case("plain")
    refusal = {"status": 400, "json": {"error": {"message": "library/x does not support tools"}}}
    rules = [{"when": {"has": "tools"}, "reply": refusal}, {"when": {}, "reply": says("Paris")}]
    with ReplayEndpoint([{"id": "m", "rules": rules}]) as endpoint:
        reached(bench, endpoint)
        finished = bench.run("--model", "m", "--agentbench-concurrency", "1")
        assert sum("tools" in body for body in endpoint.requests["m"]) == 1
        assert bench.run("--model", "m", "--agentbench-strict").outcomes["tool0[m]"] == "error"
    assert finished.outcomes == {"plain[m]": "passed", **{f"tool{number}[m]": "skipped" for number in range(4)}}
    assert finished.report["models"][0]["ends"] == {"answered": 1, "unsupported": 4}


@pytest.mark.slow
def test_judges_see_reasoning_only_where_the_profile_says_so(bench: Bench) -> None:
    bench.case("c", rubric={"criteria": [{"name": "right"}]})
    judge = {
        "judges": [{"judge_id": "j", "type": "llm_probe", "model": "judge"}],
        "judge_runs": [{"judge_run_id": "one", "judge_id": "j"}],
    }
    answers = [
        scenario(says("Paris", reasoning_content="It is the city of light.")),
        {**scenario(says("?")), "id": "judge"},
    ]
    with ReplayEndpoint(answers) as endpoint:
        entry = {"base_url": f"{endpoint.url}/v1", "api_key_env": "none"}
        bench.models({"model_id": "m", **entry}, {"model_id": "judge", **entry})
        bench.run("--model", "m", evaluation_profile(bench, **judge))
        assert not any("city of light" in str(body["messages"]) for body in endpoint.requests["judge"])
        bench.run("--model", "m", evaluation_profile(bench, **judge, judge_sees_reasoning=True))
        assert "city of light" in str(endpoint.requests["judge"][-1]["messages"])
        assert len(endpoint.requests["m"]) == 1


@pytest.mark.slow
@pytest.mark.parametrize("opener", ["<think>", ""])
def test_thoughts_before_an_answer_are_cut_unless_they_are_asked_for(bench: Bench, opener: str) -> None:
    bench.case(
        "c",
        reference="Paris",
        deterministic_checks=[check("whole", kind="regex_match", pattern="^Paris$")],
        metrics=[{"name": name, "threshold": 1} for name in ("exact_match", "similarity", "contains_answer")],
    )
    bench.profile("tags", runner_defaults={"keep_reasoning_tags": True})
    with ReplayEndpoint([scenario(says(f"{opener}Maybe Lyon?\n</think>\n\nParis"))]) as endpoint:
        reached(bench, endpoint)
        assert bench.run("--model", "m").outcomes == {"c[m]": "passed"}
        kept = bench.run("--model", "m", "--agentbench-run-profile", "tags")
    assert kept.outcomes == {"c[m]": "failed"}


@pytest.mark.slow
def test_a_failed_check_of_a_cut_answer_says_that_it_was_cut(bench: Bench) -> None:
    bench.case("c")
    with ReplayEndpoint([scenario(says("The capital is", "length"))]) as endpoint:
        reached(bench, endpoint, parameters={"max_tokens": 3})
        finished = bench.run("--model", "m")
    assert "ended: cut at the token limit (3)" in finished.text


@pytest.mark.slow
def test_a_temperature_that_the_endpoint_does_not_take_is_an_error_before_it_is_asked(bench: Bench) -> None:
    bench.case("c")
    bench.profile("hot", runner_defaults={"temperature": 1.5})
    with ReplayEndpoint([scenario(says("Paris"))]) as endpoint:
        reached(bench, endpoint, dialect="anthropic")
        finished = bench.run("--model", "m", "--agentbench-run-profile", "hot")
        assert not endpoint.requests
    assert finished.outcomes == {"c[m]": "error"}
    assert "temperature: found 1.5, expected at most 1" in finished.text


def says_too_long(message: str, **error: Any) -> dict[str, Any]:
    return {"status": 400, "json": {"error": {"message": message, **error}}}


FITS = {
    "anthropic": "input length and `max_tokens` exceed context limit: 1888 + 213330 > 200000, decrease input length",
    "openrouter": "This endpoint's maximum context length is 32768 tokens. However, you requested about 40126 tokens "
    "(126 of text input, 40000 in the output).",
    "vllm": "'max_tokens' or 'max_completion_tokens' is too large: 40000. This model's maximum context length is 32768 "
    "tokens and your request has 100 input tokens (40000 > 32768 - 100).",
    "together": "`inputs` tokens + `max_new_tokens` must be <= 4097. Given: 300 `inputs` tokens and 4000 "
    "`max_new_tokens`",
}


@pytest.mark.slow
@pytest.mark.parametrize("whose", FITS)
@pytest.mark.parametrize("more", ["", "900000"])
def test_where_the_prompt_alone_would_fit_the_limit_is_to_be_lowered(bench: Bench, whose: str, more: str) -> None:
    prompts = {"anthropic": "1888", "openrouter": "126", "vllm": "100", "together": "300"}
    said = FITS[whose].replace(prompts[whose], more) if more else FITS[whose]
    bench.case("c")
    with ReplayEndpoint([scenario(says_too_long(said))]) as endpoint:
        reached(bench, endpoint)
        row = bench.run("--model", "m").runs["c[m]"]
    assert row["end_reason"] == ("context_exceeded" if more else "rejected"), row["message"]
    assert ("lower max_tokens" in row["message"]) is not bool(more)


@pytest.mark.slow
@pytest.mark.parametrize(
    "replies",
    [[says("Paris", "banana")], [says("", "banana")], [says(None, "banana", tool_calls=[WRITE]), says("Paris")]],
)
def test_a_finish_reason_that_nobody_knows_is_told_once_a_session(bench: Bench, replies: list[dict[str, Any]]) -> None:
    bench.case("c")
    bench.case("d")
    with ReplayEndpoint([scenario(*replies)]) as endpoint:
        reached(bench, endpoint)
        finished = bench.run("--model", "m", "--agentbench-concurrency=1")
    told = finished.report["session"]["warnings"]
    assert sum("unknown finish reason 'banana'" in each for each in told) == 1, told


@pytest.mark.slow
def test_text_beside_an_error_is_kept_in_the_trace(bench: Bench) -> None:
    broken = says("half of it")
    broken["json"]["error"] = {"message": "upstream failed", "code": 502}
    bench.case("c")
    bench.profile("once", runner_defaults={"retries": 0})
    with ReplayEndpoint([scenario(broken)]) as endpoint:
        reached(bench, endpoint)
        row = bench.run("--model", "m", "--agentbench-run-profile=once").runs["c[m]"]
    assert row["end_reason"] == "provider_error"
    run = Stored(bench.path / "outputs", row["artifact"]).run()
    assert [event.data["text"] for event in run.trace if getattr(event, "name", None) == "partial"] == ["half of it"]


@pytest.mark.slow
@pytest.mark.parametrize("place", ["entry", "options"])
def test_a_judge_that_was_cut_off_gets_twice_the_limit_wherever_that_was_set(bench: Bench, place: str) -> None:
    bench.case("c", rubric={"criteria": [{"name": "right"}]})
    options = {"request_options": {"max_tokens": 50}} if place == "options" else {}
    parameters = {"parameters": {"max_tokens": 50}} if place == "entry" else {}
    judge = {
        "judges": [{"judge_id": "j", "type": "llm_probe", "model": "judge", **options}],
        "judge_runs": [{"judge_run_id": "one", "judge_id": "j"}],
    }
    answers = [scenario(says("Paris")), {**scenario(says('{"summ', "length")), "id": "judge"}]
    with ReplayEndpoint(answers) as endpoint:
        entry = {"base_url": f"{endpoint.url}/v1", "api_key_env": "none"}
        bench.models({"model_id": "m", **entry}, {"model_id": "judge", **entry, **parameters})
        finished = bench.run("--model", "m", evaluation_profile(bench, **judge))
        assert [body["max_tokens"] for body in endpoint.requests["judge"]] == [50, 100]
    assert "length: no verdict in 2 replies" in finished.runs["c[m]"]["message"]


@pytest.mark.slow
@pytest.mark.parametrize(("dialect", "nine"), [("mistral", True), ("other", False)])
def test_calls_that_a_case_tells_of_have_ids_that_the_endpoint_takes(bench: Bench, dialect: str, nine: bool) -> None:
    call = {"id": "call_1", "name": "write_file", "arguments": {"path": "x"}}
    told = [
        {"role": "user", "content": "Write."},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "ok"},
        {"role": "user", "content": "And now?"},
    ]
    bench.case("c", input={"messages": told})
    with ReplayEndpoint([scenario(says("Paris"))]) as endpoint:
        reached(bench, endpoint, dialect=dialect)
        assert bench.run("--model", "m").outcomes == {"c[m]": "passed"}
        _, asked, answered, _ = endpoint.requests["m"][0]["messages"]
    sent = asked["tool_calls"][0]["id"]
    assert sent == answered["tool_call_id"]
    assert re.fullmatch("[A-Za-z0-9]{9}" if nine else "call_1", sent)


CALL_AS_TEXT = '<tool_call>{"name": "write_file", "arguments": {"path": "a", "content": "b"}}</tool_call>'


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reply", "named", "warned"),
    [
        (says(None, reasoning_content="Paris"), "ended: blank answer: all text came as reasoning", False),
        (says(CALL_AS_TEXT), "ended: a tool call came as text: the endpoint seems to have no tool parser", True),
    ],
)
def test_a_failure_names_what_the_endpoint_seems_to_lack(
    bench: Bench, reply: dict[str, Any], named: str, warned: bool
) -> None:
    tools = {"messages": [{"role": "user", "content": "Go."}], "context": {"llm_probe": {"tools": ["write_file"]}}}
    bench.case("c", input=tools)
    with ReplayEndpoint([scenario(reply)]) as endpoint:
        reached(bench, endpoint)
        finished = bench.run("--model", "m")
    assert finished.outcomes == {"c[m]": "failed"}
    assert named in finished.text
    assert any("--tool-call-parser" in each for each in finished.report["session"]["warnings"]) is warned


@pytest.mark.slow
def test_an_aborted_generation_is_an_error_of_the_endpoint(bench: Bench) -> None:
    bench.case("c")
    bench.profile("once", runner_defaults={"retries": 1})
    with ReplayEndpoint([scenario(says("Paris", "abort"))]) as endpoint:
        reached(bench, endpoint)
        finished = bench.run("--model", "m", "--agentbench-run-profile=once")
        assert len(endpoint.requests["m"]) == 2
        bench.run("--model", "m", "--agentbench-run-profile=once")
        assert len(endpoint.requests["m"]) == 4
    row = finished.runs["c[m]"]
    assert (row["outcome"], row["status"], row["end_reason"]) == ("error", "provider_error", "aborted")
    assert finished.report["models"][0]["ends"] == {"aborted": 1}
    assert "1 stopped by the server" in finished.text
