"""Runs as spans and verdicts as events: names that the conventions have, times that lie within the run."""

from __future__ import annotations

import json
import re
import socket
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes, test_attributes
from opentelemetry.semconv.attributes import error_attributes, server_attributes
from reports_samples import MODEL, make_evaluation, make_judge, make_run
from support.otlp_collector import Collector

from pytest_agentbench.records.case import Model
from pytest_agentbench.records.evaluation import CheckResult, MetricResult
from pytest_agentbench.records.run import (
    FinalOutputEvent,
    MessageEvent,
    RunnerEvent,
    ToolCallEvent,
    ToolResultEvent,
    Usage,
)
from pytest_agentbench.reports.telemetry.sending import FLUSH_SECONDS, Telemetry
from pytest_agentbench.reports.telemetry.spans import (
    CONTENT_LIMIT,
    agent_span,
    call_spans,
    captures_content,
    evaluation_events,
    is_disabled,
    otel_problem,
    provider_name,
    sends,
)
from pytest_agentbench.secrets.redaction import Redactor

CONVENTIONS = {
    value
    for module in (gen_ai_attributes, test_attributes, error_attributes, server_attributes)
    for name, value in vars(module).items()
    if name.isupper() and isinstance(value, str)
}
FULL = make_run(
    trace=(
        MessageEvent(sequence=0, at=0.0, role="system", content="Be brief."),
        MessageEvent(sequence=1, at=0.0, role="user", content="Where?"),
        RunnerEvent(sequence=2, at=0.01, name="request", data={"number": 1}),
        RunnerEvent(
            sequence=3,
            at=0.4,
            name="reply",
            data={"number": 1, "finish_reason": "tool_calls", "attempts": 2, "response_id": "r-1"},
        ),
        ToolCallEvent(sequence=4, at=0.41, call_id="a", name="slow", arguments={"q": 1}),
        ToolCallEvent(sequence=5, at=0.41, call_id="b", name="quick", arguments=None, raw="{broken"),
        ToolResultEvent(sequence=6, at=0.9, call_id="a", name="slow", content="x", duration_seconds=0.48),
        ToolResultEvent(
            sequence=7, at=0.9, call_id="b", name="quick", content="no", is_error=True, duration_seconds=0.1
        ),
        RunnerEvent(sequence=8, at=0.91, name="request", data={"number": 2}),
        RunnerEvent(sequence=9, at=1.2, name="reply", data={"number": 2, "finish_reason": "stop"}),
        FinalOutputEvent(sequence=10, at=1.3, content="Paris"),
    ),
    request={"parameters": {"temperature": 0.5, "max_completion_tokens": 9, "seed": 7, "stop": ["x"], "tools": True}},
    provider={"model": "gpt-4o-2024", "finish_reason": "stop"},
    usage=Usage(
        input_tokens=30,
        output_tokens=9,
        cached_tokens=4,
        cost_usd=0.1,
        raw=({"prompt_tokens": 10, "completion_tokens": 4}, {"prompt_tokens": 20, "completion_tokens": 5}),
    ),
)


def calls(run=FULL, model=MODEL, content=False):
    return {span.name: span for span in call_spans(run, model, content=content)}


@pytest.mark.parametrize("content", [False, True])
def test_every_name_is_one_of_the_conventions_or_our_own(content):
    verdict = make_evaluation(
        checks=(CheckResult(check_id="c", kind="k", outcome="error", message="m"),),
        metrics=(MetricResult(name="f1", score=None, error="broken"),),
        judge=make_judge(summary="fine"),
        error="no judge",
    )
    facts = [agent_span(FULL, MODEL, content=content), *call_spans(FULL, MODEL, content=content)]
    told = [span.attributes for span in facts] + [*evaluation_events(verdict, content=content)]
    names = {name for attributes in told for name in attributes}
    assert {name for name in names if not name.startswith("agentbench.")} <= CONVENTIONS
    assert len(names) > 25


def test_calls_side_by_side_take_their_own_time():
    found = calls()
    assert (found["execute_tool slow"].start, round(found["execute_tool slow"].end, 6)) == (0.41, 0.89)
    assert (found["execute_tool quick"].start, round(found["execute_tool quick"].end, 6)) == (0.41, 0.51)


def test_each_reply_has_its_own_usage_where_the_blocks_are_those_of_the_replies():
    first, second = (span for span in call_spans(FULL, MODEL, content=False) if span.name == "chat gpt-4o")
    assert first.attributes["gen_ai.usage.input_tokens"] == 10
    assert second.attributes["gen_ai.usage.output_tokens"] == 5
    more = FULL.model_copy(update={"usage": Usage(input_tokens=30, raw=({"prompt_tokens": 30},))})
    assert "gen_ai.usage.input_tokens" not in calls(more)["chat gpt-4o"].attributes


def test_a_span_of_a_gateway_request_has_its_dialect_and_mode():
    asked = {"number": 1, "dialect": "messages", "mode": "translate", "conversation": 1}
    replied = {"number": 1, "ttft_seconds": 0.2}
    events = [RunnerEvent(sequence=0, at=0, name="request", data=asked)]
    events.append(RunnerEvent(sequence=1, at=1, name="reply", data=replied))
    [span] = call_spans(make_run(trace=tuple(events)), MODEL, content=False)
    assert span.attributes["agentbench.gateway.dialect"] == "messages"
    assert span.attributes["agentbench.gateway.mode"] == "translate"
    assert span.attributes["agentbench.ttft_seconds"] == 0.2


def test_a_request_without_a_reply_fails_with_the_run():
    cut = make_run(None, "timed_out", trace=FULL.trace[:3])
    [span] = call_spans(cut, MODEL, content=False)
    assert (span.end, span.error) == (1.5, "the run took more than 30 s")
    assert span.attributes["error.type"] == "run_timeout"


def test_a_tool_call_without_a_result_fails():
    [span] = (s for s in call_spans(make_run(trace=FULL.trace[:5]), MODEL, content=False) if "slow" in s.name)
    assert (span.end, span.error, span.attributes["error.type"]) == (1.5, "no result", "no_result")


def test_an_own_agent_has_its_name_and_no_provider():
    run = make_run(trace=FULL.trace[4:8]).model_copy(
        update={"model": {"model_id": "my_agent"}, "runner_type": "callable"}
    )
    span = agent_span(run, None, content=False)
    assert span.name == "invoke_agent my_agent"
    assert "gen_ai.provider.name" not in span.attributes
    assert [each.name for each in call_spans(run, None, content=False)] == ["execute_tool slow", "execute_tool quick"]


def test_long_texts_are_cut_and_stay_json():
    run = make_run("x" * 50_000)
    [answer] = json.loads(agent_span(run, MODEL, content=True).attributes["gen_ai.output.messages"])
    assert answer["parts"][0]["content"] == "x" * CONTENT_LIMIT + " [33,616 more characters]"


AT = {"sequence": st.just(0), "at": st.floats(0, 1.5)}
NUMBERED = st.just({}) | st.fixed_dictionaries({"number": st.integers(1, 3)})
EVENTS = st.one_of(
    st.builds(RunnerEvent, **AT, name=st.sampled_from(["request", "reply"]), data=NUMBERED),
    st.builds(ToolCallEvent, **AT, call_id=st.sampled_from("ab"), name=st.text(), arguments=st.none()),
    st.builds(
        ToolResultEvent,
        **AT,
        call_id=st.sampled_from("abc"),
        name=st.text(),
        content=st.text(),
        duration_seconds=st.none() | st.floats(0, 9),
    ),
    st.builds(MessageEvent, **AT, role=st.just("user"), content=st.text()),
)


@pytest.mark.slow
@given(events=st.lists(EVENTS, max_size=12))
def test_any_trace_becomes_spans_within_the_run(events):
    run = make_run(trace=tuple(events))
    agent_span(run, MODEL, content=True)
    for span in call_spans(run, MODEL, content=True):
        assert 0 <= span.start <= span.end <= run.duration_seconds + 1e-9
        assert re.match(r"chat gpt-4o|execute_tool", span.name)


@pytest.mark.slow
@pytest.mark.parametrize("dead", ["refused", "hangs"])
def test_a_dead_collector_holds_up_the_end_of_a_session_for_a_few_seconds(monkeypatch, dead):
    said: list[str] = []
    with Collector(hangs=True) as collector, socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{unused.getsockname()[1]}"
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", nobody if dead == "refused" else collector.endpoint)
        telemetry = Telemetry("session", Redactor({}), said.append)
        for number in range(2_000):  # several batches
            telemetry.run(FULL.model_copy(update={"run_id": str(number)}), None, MODEL, reused=False)
        begun = time.monotonic()
        telemetry.pytest_sessionfinish()
        assert time.monotonic() - begun < FLUSH_SECONDS + 5
    [problem] = said
    assert problem.startswith("10000 of 10000 spans were not sent: ")


def warnings_after_a_run(monkeypatch, collector):
    said: list[str] = []
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint)
    telemetry = Telemetry("session", Redactor({"A_KEY": "zebra-4711-crossing"}), said.append)
    telemetry.run(FULL, None, MODEL, reused=False)
    telemetry.pytest_sessionfinish()
    return said


def test_an_answer_without_end_is_not_read(monkeypatch):
    with Collector(endless=True) as collector:
        assert warnings_after_a_run(monkeypatch, collector) == []
    assert len(collector.spans) == 5
    assert collector.told < 50_000_000  # what lies in the buffers of both sides


def test_a_redirect_is_not_followed_and_not_taken_for_success(monkeypatch):
    with Collector(status=307) as collector:
        [problem] = warnings_after_a_run(monkeypatch, collector)
    assert problem.startswith("5 of 5 spans were not sent: ")
    assert f"redirects (307) to {collector.endpoint}/elsewhere, which is not followed" in problem
    assert [path for path, _ in collector.requests] == ["/v1/traces"]


def test_answers_of_a_collector_are_escaped_redacted_and_shortened(monkeypatch):
    with Collector(status=400, reason=f"no \x1b[2J zebra-4711-crossing {'x' * 5_000}") as collector:
        [problem] = warnings_after_a_run(monkeypatch, collector)
    assert "\\x1b[2J [redacted] xxx" in problem
    assert len(problem) < 700


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"scripted": True}, "agentbench"),
        ({}, "openai"),
        ({"base_url": "https://api.openai.com/v1"}, "openai"),
        ({"base_url": "https://x.openai.azure.com/openai/v1"}, "azure.ai.openai"),
        ({"base_url": "https://openrouter.ai/api/v1"}, "openrouter"),
        ({"base_url": "http://127.0.0.1:8000/v1"}, "openai"),
        ({"provider": "house"}, "house"),
    ],
)
def test_providers_have_the_conventions_names(fields, name):
    assert provider_name(Model(model_id="m", requested_model="m", **fields)) == name


def test_the_environment_is_read():
    assert otel_problem({}) is None
    assert otel_problem({"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf", "OTEL_LOGS_EXPORTER": "none"}) is None
    assert "found 'http/json'" in (otel_problem({"OTEL_EXPORTER_OTLP_LOGS_PROTOCOL": "http/json"}) or "")
    assert "found 'console'" in (otel_problem({"OTEL_TRACES_EXPORTER": "console"}) or "")
    assert not sends("LOGS", {"OTEL_LOGS_EXPORTER": "none"})
    assert sends("TRACES", {"OTEL_LOGS_EXPORTER": "none"})
    assert captures_content({"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "True"})
    assert not captures_content({"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "false"})
    assert is_disabled({"OTEL_SDK_DISABLED": "TRUE"})
    assert not is_disabled({})
