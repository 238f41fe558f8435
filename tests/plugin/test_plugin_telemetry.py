"""--agentbench-otel: what a collector receives of sessions, and what a session that cannot reach one does."""

from __future__ import annotations

import json
import socket
from itertools import pairwise

import pytest
from support.bench import ECHO, HEAD, check
from support.fault_endpoint import FaultEndpoint, always
from support.otlp_collector import Collector

SECRET = "zebra-crossing-4711"
USAGE = {"prompt_tokens": 12, "completion_tokens": 5, "total_tokens": 17}
CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
STEPS = [
    {"tool_calls": [{"name": "write_file", "arguments": {"path": "city.txt", "content": "Paris"}}]},
    {"tool_calls": [{"name": "read_file", "arguments": {"path": "missing.txt"}}]},
    {"content": "Paris"},
]
WITHOUT = """
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name.startswith("opentelemetry") else find(name, *rest)
"""
"""The beginning of a conftest.py that hides the extra."""


@pytest.fixture
def collector(monkeypatch):
    with Collector() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint)
        yield collector


@pytest.fixture
def spans(bench, collector):
    """Runs a session that sends spans, and gives the collector."""

    def run(*args: str) -> Collector:
        collector.finished = bench.run("--agentbench-otel", *args)
        return collector

    return run


def tool_case(bench) -> None:
    bench.case(
        "city",
        input={
            "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Write it down."}],
            "context": {"llm_probe": {"tools": ["write_file", "read_file"]}},
        },
    )
    bench.write("cases/city/demo.yaml", {"schema_version": 1, "replies": [{"steps": STEPS}]})


def test_a_run_is_a_trace_of_its_model_and_tool_calls(bench, spans):
    tool_case(bench)
    collector = spans("--model=demo", "--agentbench-repetitions=2")
    assert collector.finished.outcomes == {"city[demo]": "passed", "city[demo-r2]": "passed"}
    first, second = sorted(collector.roots(), key=lambda root: root.attributes["agentbench.repetition"])
    assert first.trace_id != second.trace_id
    assert first.name == "invoke_agent llm_probe"
    calls = collector.below(first)
    assert [span.name for span in calls] == [
        "chat demo",
        "execute_tool write_file",
        "chat demo",
        "execute_tool read_file",
        "chat demo",
    ]
    assert {span.trace_id for span in calls} == {first.trace_id}
    for earlier, later in pairwise(calls):
        assert first.start <= earlier.start <= earlier.end <= later.start <= first.end
    assert [span.kind for span in calls] == [3, 1, 3, 1, 3]  # client, internal
    assert [span.failed for span in calls] == [None, None, None, "the tool answered with an error", None]
    assert calls[3].attributes["error.type"] == "tool_error"
    assert first.attributes["agentbench.outcome"] == "passed"
    assert first.attributes["test.case.result.status"] == "pass"
    assert first.attributes["agentbench.scripted"] is True
    assert second.attributes["agentbench.repetition"] == 2


def test_attributes_are_the_conventions(bench, spans):
    bench.case("capital")
    reply = {"role": "assistant", "content": "Paris"}
    with FaultEndpoint(answer=lambda body: reply) as endpoint:
        address = {"base_url": endpoint.base_url, "api_key_env": "none", "requested_model": "vendor/gpt"}
        bench.models({"model_id": "local", **address, "parameters": {"temperature": 0.25, "max_tokens": 64}})
        collector = spans("--model=local")
    [root] = collector.roots()
    [chat] = collector.below(root)
    port = int(endpoint.base_url.rsplit(":", 1)[1].partition("/")[0])
    asked = {
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "vendor/gpt",
        "gen_ai.request.temperature": 0.25,
        "gen_ai.request.max_tokens": 64,
        "server.address": "127.0.0.1",
        "server.port": port,
    }
    assert root.attributes.items() >= {**asked, "gen_ai.operation.name": "invoke_agent"}.items()
    assert chat.attributes.items() >= {**asked, "gen_ai.operation.name": "chat", "agentbench.attempts": 1}.items()
    assert chat.attributes["gen_ai.response.finish_reasons"] == ["stop"]
    row = collector.finished.runs["capital[local]"]
    assert root.attributes["gen_ai.usage.input_tokens"] == row["usage"]["input_tokens"]
    assert chat.attributes["gen_ai.usage.output_tokens"] == row["usage"]["output_tokens"]
    assert root.attributes["agentbench.fingerprint"] == row["fingerprint"]
    assert root.resource["service.name"] == "pytest-agentbench"


def test_verdicts_are_events_of_the_runs_span(bench, spans):
    bench.agent(ECHO)
    bench.case(
        "london",
        metadata={"says": "London"},
        deterministic_checks=[
            check("paris", kind="regex_match", pattern="Paris"),
            check("city", kind="regex_match", pattern="London"),
        ],
    )
    collector = spans()
    [root] = collector.roots()
    assert {(event.trace_id, event.span_id) for event in collector.events} == {(root.trace_id, root.span_id)}
    assert {event.name for event in collector.events} == {"gen_ai.evaluation.result"}
    verdicts = [event.attributes for event in collector.events]
    labels = {each["gen_ai.evaluation.name"]: each["gen_ai.evaluation.score.label"] for each in verdicts}
    assert labels == {"outcome": "failed", "check.paris": "failed", "check.city": "passed"}
    assert not [event for event in collector.events if "gen_ai.evaluation.explanation" in event.attributes]


@pytest.mark.slow
def test_reused_runs_are_not_sent_again(bench, spans):
    bench.agent(ECHO)
    bench.questions(2)
    assert len(spans("--agentbench-metric=contains_answer").spans) == 2
    collector = spans("--agentbench-metric=contains_answer")
    assert collector.finished.report["totals"]["reused"] == 2
    assert (len(collector.spans), len(collector.events)) == (2, 4)  # outcome and metric of two


@pytest.mark.slow
def test_a_new_verdict_on_a_stored_run_is_an_event_of_its_first_span(bench, spans):
    bench.agent(ECHO)
    bench.questions(1)
    [root] = spans("--agentbench-metric=contains_answer").roots()
    collector = spans("--agentbench-metric=exact_match")
    assert collector.finished.report["totals"]["reused"] == 1
    assert collector.roots() == [root]
    metrics = [event for event in collector.events if event.attributes["gen_ai.evaluation.name"].startswith("metric.")]
    assert [event.attributes["gen_ai.evaluation.name"] for event in metrics] == [
        "metric.contains_answer",
        "metric.exact_match",
    ]
    assert {event.span_id for event in metrics} == {root.span_id}


@pytest.mark.slow
def test_texts_are_sent_only_where_that_is_asked_for(bench, spans, monkeypatch):
    tool_case(bench)
    collector = spans("--model=demo")
    assert b"Write it down." not in collector.body
    assert b"city.txt" not in collector.body
    monkeypatch.setenv(CONTENT, "true")
    collector.spans.clear()
    collector = spans("--model=demo", "--agentbench-no-reuse")
    [root] = collector.roots()
    told = {name: json.loads(root.attributes[f"gen_ai.{name}"]) for name in ("input.messages", "output.messages")}
    assert told["input.messages"] == [{"role": "user", "parts": [{"type": "text", "content": "Write it down."}]}]
    assert told["output.messages"][0]["parts"] == [{"type": "text", "content": "Paris"}]
    assert json.loads(root.attributes["gen_ai.system_instructions"])[0]["content"] == "Be brief."
    [write] = collector.named("execute_tool write_file")
    assert json.loads(write.attributes["gen_ai.tool.call.arguments"]) == {"path": "city.txt", "content": "Paris"}
    assert "gen_ai.tool.call.result" in write.attributes


def test_no_secret_is_sent(bench, spans, monkeypatch):
    monkeypatch.setenv("MY_API_KEY", SECRET)
    monkeypatch.setenv(CONTENT, "true")
    bench.agent(
        HEAD + "def agent(case):\n    return RunOutput(status='failed', error='no ' + os.environ['MY_API_KEY'],"
        "output=os.environ['MY_API_KEY'])\n"
    )
    bench.case("leaky")
    collector = spans()
    assert collector.roots()[0].failed == "no [redacted]"
    assert SECRET.encode() not in collector.body


@pytest.mark.slow
def test_hostile_text_is_carried(bench, spans, monkeypatch):
    monkeypatch.setenv(CONTENT, "true")
    bench.agent(HEAD + "def agent(case):\n    return '\\ud800<script>\\u202e\\x1b[31m' + 'x' * 5_000_000\n")
    bench.case("odd")
    collector = spans()
    [answer] = json.loads(collector.roots()[0].attributes["gen_ai.output.messages"])
    content = answer["parts"][0]["content"]
    assert "<script>" in content
    assert content.endswith("more characters]")
    assert len(collector.body) < 100_000
    assert collector.finished.report["session"]["warnings"] == []


@pytest.mark.slow
def test_workers_send_spans_of_their_runs(bench, collector):
    bench.agent(ECHO)
    bench.questions(6)
    finished = bench.spawn("--agentbench-otel", "-n2", "--agentbench-metric=contains_answer")
    assert finished.report["totals"]["passed"] == 6
    assert sorted(root.attributes["agentbench.case_id"] for root in collector.roots()) == [
        f"cases/many.q{n}" for n in range(6)
    ]
    assert len({root.resource["service.instance.id"] for root in collector.roots()}) == 2
    assert len({root.resource["agentbench.session_id"] for root in collector.roots()}) == 1


def test_a_provider_error_is_a_failed_span(bench, spans):
    bench.case("capital")
    with FaultEndpoint(always("400")) as endpoint:
        bench.models({"model_id": "local", "base_url": endpoint.base_url, "api_key_env": "none"})
        collector = spans("--model=local")
    assert collector.finished.outcomes == {"capital[local]": "error"}
    [root] = collector.roots()
    [chat] = collector.below(root)
    assert "banana" in root.failed
    assert chat.failed == root.failed
    assert chat.attributes["error.type"] == root.attributes["error.type"]
    assert collector.events == []


def test_variables_of_the_sdk_hold(bench, spans, monkeypatch):
    bench.agent(ECHO)
    bench.case("capital")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "nightly")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=ci,team=bench")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=seven")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
    monkeypatch.setenv("OTEL_LOGS_EXPORTER", "none")
    collector = spans()
    [root] = collector.roots()
    assert root.resource["service.name"] == "nightly"
    assert root.resource["team"] == "bench"
    assert {path for path, _ in collector.requests} == {"/v1/traces"}
    assert collector.requests[0][1]["x-tenant"] == "seven"


@pytest.mark.parametrize(("name", "value"), [("OTEL_SDK_DISABLED", "true"), ("OTEL_TRACES_SAMPLER", "always_off")])
def test_spans_can_be_switched_off(bench, spans, monkeypatch, name, value):
    bench.agent(ECHO)
    bench.case("capital")
    monkeypatch.setenv(name, value)
    collector = spans()
    assert collector.spans == []
    assert collector.finished.report["session"]["warnings"] == []


def test_nothing_is_sent_unasked(bench, collector):
    bench.agent(ECHO)
    bench.case("capital")
    bench.run()
    bench.run("--agentbench-otel", "--agentbench-dry-run", "--agentbench-no-reuse")
    assert collector.requests == []


@pytest.mark.parametrize("status", [400, 401, 500])
def test_a_collector_that_refuses_costs_a_warning(bench, spans, collector, status):
    bench.agent(ECHO)
    bench.case("capital")
    collector.status = status
    finished = spans().finished
    assert finished.exit == 0
    [warning] = finished.report["session"]["warnings"]
    assert warning.startswith("OpenTelemetry: 1 of 1 spans and 2 of 2 events were not sent: Failed to export")
    assert str(status) in warning
    assert "Failed to export" not in finished.text.replace(warning, "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dead", "workers"),
    [
        pytest.param("refused", (), id="refused"),
        pytest.param("refused", ("-n2",), id="refused, workers", marks=pytest.mark.full),
        pytest.param("hangs", (), id="hangs", marks=pytest.mark.full),
        pytest.param("hangs", ("-n2",), id="hangs, workers"),
    ],
)
def test_a_dead_collector_fails_no_session(bench, monkeypatch, dead, workers):
    bench.agent(ECHO)
    bench.questions(40)
    with Collector(hangs=dead == "hangs") as collector, socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{unused.getsockname()[1]}"
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", nobody if dead == "refused" else collector.endpoint)
        finished = bench.spawn("--agentbench-otel", "--agentbench-metric=contains_answer", *workers)
    assert finished.exit == 0
    assert finished.report["totals"]["passed"] == 40
    warnings = finished.report["session"]["warnings"]
    assert len(warnings) == (len(workers) * 2 or 1)
    assert all("were not sent" in text for text in warnings)


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "found 'grpc', expected 'http/protobuf'"),
        ("OTEL_TRACES_EXPORTER", "zipkin", "found 'zipkin', expected 'otlp' or 'none'"),
    ],
)
def test_another_way_of_sending_is_refused_before_anything_runs(bench, monkeypatch, name, value, problem):
    monkeypatch.setenv(name, value)
    bench.agent(ECHO)
    bench.case("capital")
    finished = bench.run("--agentbench-otel")
    assert finished.exit == pytest.ExitCode.USAGE_ERROR
    assert problem in finished.text
    assert finished.report is None


@pytest.mark.parametrize("workers", [(), pytest.param(("-n2",), marks=pytest.mark.slow)], ids=["serial", "workers"])
def test_settings_that_the_sdk_refuses_are_errors_before_any_run(bench, monkeypatch, workers):
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "100")
    bench.agent(ECHO)
    bench.case("capital")
    finished = bench.run("--agentbench-otel", *workers)
    assert "--agentbench-otel: the SDK refuses the OTEL_* variables: max_export_batch_size must be" in finished.text
    assert "INTERNALERROR" not in finished.text
    assert finished.exit != 0
    assert finished.runs == {}


@pytest.mark.slow
@pytest.mark.parametrize("workers", [(), ("-n2",)], ids=["serial", "workers"])
def test_without_the_extra_it_is_a_usage_error(bench, workers):
    bench.case("capital")
    bench.agent(WITHOUT + ECHO)
    finished = bench.spawn("--agentbench-otel", *workers)
    assert finished.exit != 0
    assert "pip install 'pytest-agentbench[otel]'" in finished.text
    assert finished.report is None or finished.report["runs"] == []
