"""A stored run as spans and its verdict as events, by the GenAI conventions of OpenTelemetry."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

from pytest_agentbench.models.replies import read_usage
from pytest_agentbench.records.case import Model
from pytest_agentbench.records.evaluation import CheckResult, Evaluation, JudgeResult
from pytest_agentbench.records.run import (
    FinalOutputEvent,
    MessageEvent,
    RunArtifact,
    RunnerEvent,
    ToolCallEvent,
    ToolResultEvent,
    Usage,
)

INSTALL = "pip install 'pytest-agentbench[otel]'"
CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_PROTOCOLS = (
    "OTEL_EXPORTER_OTLP_PROTOCOL",
    "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
    "OTEL_EXPORTER_OTLP_LOGS_PROTOCOL",
)
_EXPORTERS = ("OTEL_TRACES_EXPORTER", "OTEL_LOGS_EXPORTER")


def otel_problem(environ: Mapping[str, str]) -> str | None:
    """Return why spans cannot be sent (missing extra, unsupported exporter), or None."""
    if find_spec("opentelemetry") is None or any(
        find_spec(name) is None for name in ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
    ):
        return f"--agentbench-otel needs the OpenTelemetry SDK and its OTLP exporter: {INSTALL}"
    for name in _PROTOCOLS:
        if environ.get(name, "http/protobuf") != "http/protobuf":
            return (
                f"--agentbench-otel: {name}: found {environ[name]!r}, expected 'http/protobuf', the one that is sent; "
                "collectors take it on port 4318"
            )
    for name in _EXPORTERS:
        if environ.get(name, "otlp") not in ("otlp", "none"):
            return f"--agentbench-otel: {name}: found {environ[name]!r}, expected 'otlp' or 'none'"
    return None


def sends(signal: str, environ: Mapping[str, str]) -> bool:
    """Return whether `TRACES` or `LOGS` are sent."""
    return environ.get(f"OTEL_{signal}_EXPORTER", "otlp") == "otlp"


def captures_content(environ: Mapping[str, str]) -> bool:
    """Return whether texts of people, models and tools may be sent."""
    return environ.get(CONTENT, "").strip().lower() == "true"


def is_disabled(environ: Mapping[str, str]) -> bool:
    """Return whether the SDK is switched off as a whole."""
    return environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"


_NAMES = {
    "azure": "azure.ai.openai",
    "aws": "aws.bedrock",
    "google": "gcp.gemini",
    "mistral": "mistral_ai",
    "x-ai": "x_ai",
}
"""Where `gen_ai.provider.name` differs from the name in genai-prices."""


def provider_name(model: Model) -> str:
    """Return a model's `gen_ai.provider.name`, derived from its address.

    For an unknown address it is `openai`, the protocol's name, as the conventions demand. A scripted model is
    `agentbench`; a model of a plugin has the plugin's name.
    """
    if model.scripted:
        return "agentbench"
    return model.provider or _by_address(model.base_url)


@cache
def _by_address(base_url: str | None) -> str:
    from genai_prices.data_snapshot import get_snapshot

    if base_url is None:
        return "openai"
    try:
        provider = get_snapshot().find_provider(None, None, base_url).id
    except LookupError:
        return "openai"
    return _NAMES.get(provider, provider)


# A stored run becomes spans: one for the agent's invocation, and below it one for each request to models and
# tools. Names and attributes follow OpenTelemetry's GenAI semantic conventions (operations `invoke_agent`,
# `chat` and `execute_tool`). Attributes that they do not define begin with `agentbench.`.


Attribute = str | bool | int | float | Sequence[str]

CONTENT_LIMIT = 16_384
"""Characters of the longest text that is sent of a message, an argument or a result."""
_PARAMETERS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "max_tokens": "max_tokens",
    "max_completion_tokens": "max_tokens",
    "frequency_penalty": "frequency_penalty",
    "presence_penalty": "presence_penalty",
    "seed": "seed",
}


@dataclass(frozen=True, slots=True)
class SpanFacts:
    """One span. `start` and `end` are seconds since the run began; `calls_out` marks a request to a server.

    `error` is the status message of a failed span.
    """

    name: str
    start: float
    end: float
    attributes: Mapping[str, Attribute]
    calls_out: bool = False
    error: str | None = None


@dataclass
class _Attributes:
    """Attributes of one span, without those that are None."""

    attributes: dict[str, Attribute] = field(default_factory=dict)

    def add(self, prefix: str, facts: Mapping[str, Attribute | None]) -> None:
        for name, value in facts.items():
            if value is not None:
                self.attributes[f"{prefix}.{name}"] = value


def agent_span(artifact: RunArtifact, model: Model | None, *, content: bool) -> SpanFacts:
    """Return the span of the whole run. With `content` it has the messages to the agent and its answer."""
    facts, answered, message = _Attributes(), artifact.provider, None
    agent = artifact.model["model_id"] if model is None else artifact.runner_type
    finish = answered.get("finish_reason")
    facts.add("gen_ai", {"operation.name": "invoke_agent", "agent.name": agent, "conversation.id": artifact.run_id})
    facts.add("gen_ai", _asked(artifact, model))
    facts.add("gen_ai", {"response.model": answered.get("model"), "response.finish_reasons": finish and [str(finish)]})
    facts.add("gen_ai.usage", _tokens(artifact.usage))
    facts.add("server", _server(model))
    if artifact.error is not None:
        facts.add("error", {"type": artifact.error.code})
        message = artifact.error.message
    facts.add("test", {"case.name": artifact.case_id, "suite.name": artifact.suite_id})
    facts.add(
        "agentbench",
        {
            "run_id": artifact.run_id,
            "case_id": artifact.case_id,
            "model_id": artifact.model["model_id"],
            "repetition": artifact.repetition,
            "runner": artifact.runner_type,
            "run_profile_id": artifact.run_profile_id,
            "status": artifact.status,
            "scripted": bool(artifact.model.get("scripted")),
            "cassette": artifact.cassette,
            "cost_usd": artifact.usage.cost_usd,
            "fingerprint": artifact.fingerprint,
        },
    )
    if content:
        facts.add("gen_ai", _conversation(artifact))
    return SpanFacts(f"invoke_agent {agent}", 0.0, artifact.duration_seconds, facts.attributes, error=message)


def call_spans(artifact: RunArtifact, model: Model | None, *, content: bool) -> Iterator[SpanFacts]:
    """Yield the child spans: one for each request to a model in the trace, and one for each tool call."""
    yield from _chats(artifact, model)
    yield from _tools(artifact, content)


def _chats(artifact: RunArtifact, model: Model | None) -> Iterator[SpanFacts]:
    events = [event for event in artifact.trace if isinstance(event, RunnerEvent)]
    replies = {event.data.get("number"): event for event in events if event.name == "reply"}
    usages = _usages(artifact, model, len(replies))
    for request in events:
        if request.name != "request" or "number" not in request.data:
            continue
        reply = replies.get(request.data["number"])
        facts, message, end = _Attributes(), None, artifact.duration_seconds
        facts.add("gen_ai", {"operation.name": "chat", **_asked(artifact, model)})
        facts.add("server", _server(model))
        if reply is None and artifact.error is not None:
            facts.add("error", {"type": artifact.error.code})
            message = artifact.error.message
        facts.add("agentbench.gateway", {name: request.data.get(name) for name in ("dialect", "mode")})
        if reply is not None:
            end = reply.at
            finish = reply.data.get("finish_reason")
            facts.add("gen_ai.response", {"id": reply.data.get("response_id"), "finish_reasons": finish and [finish]})
            facts.add("agentbench", {name: reply.data.get(name) for name in ("attempts", "ttft_seconds")})
            facts.add("gen_ai.usage", _tokens(usages.get(reply.sequence)))
        yield SpanFacts(
            f"chat {facts.attributes.get('gen_ai.request.model', '')}".rstrip(),
            request.at,
            max(request.at, end),
            facts.attributes,
            calls_out=True,
            error=message,
        )


def _usages(artifact: RunArtifact, model: Model | None, replies: int) -> dict[int, Usage]:
    """Return the usage of each reply by its event, or {} if usage blocks and replies do not match one to one."""
    # Blocks have no numbers. If a retry or the user's own agent added one, blocks cannot be assigned to replies.
    blocks = artifact.usage.raw
    if model is None or len(blocks) != replies:
        return {}
    events = (e for e in artifact.trace if isinstance(e, RunnerEvent) and e.name == "reply")
    name = model.requested_model
    return {e.sequence: read_usage(block, model, name) for e, block in zip(events, blocks, strict=True)}


def _tools(artifact: RunArtifact, content: bool) -> Iterator[SpanFacts]:
    results: dict[str, list[ToolResultEvent]] = defaultdict(list)
    for event in artifact.trace:
        if isinstance(event, ToolResultEvent):
            results[event.call_id].append(event)
    for call in artifact.tool_calls:
        # In order, for some models number their calls anew in each reply
        result = results[call.call_id].pop(0) if results[call.call_id] else None
        facts, error_type, error, content_of_result = _Attributes(), None, None, None
        if result is None:
            error_type, error = "no_result", "no result"
        else:
            content_of_result = result.content
            if result.is_error:
                error_type, error = "tool_error", "the tool answered with an error"
        facts.add("gen_ai", {"operation.name": "execute_tool", "tool.type": "function", "tool.name": call.name})
        facts.add("gen_ai.tool.call", {"id": call.call_id})
        facts.add("error", {"type": error_type})
        if content:
            arguments = call.raw if call.arguments is None else json.dumps(call.arguments, ensure_ascii=False)
            facts.add("gen_ai.tool.call", {"arguments": _cut(arguments), "result": _cut(content_of_result)})
        yield SpanFacts(
            f"execute_tool {call.name}", call.at, _tool_end(call, result, artifact), facts.attributes, error=error
        )


def _tool_end(call: ToolCallEvent, result: ToolResultEvent | None, artifact: RunArtifact) -> float:
    """Return the end of a call: calls of one reply run concurrently, and results are recorded after the slowest."""
    if result is None:
        return max(call.at, artifact.duration_seconds)
    if result.duration_seconds is None:
        return max(call.at, result.at)
    return min(call.at + result.duration_seconds, max(call.at, result.at))


def _asked(artifact: RunArtifact, model: Model | None) -> dict[str, Attribute | None]:
    """Return the provider, the model and the parameters of a request."""
    if model is None:
        return {}
    parameters = artifact.request.get("parameters")
    facts: dict[str, Attribute | None] = {"provider.name": provider_name(model), "request.model": model.requested_model}
    for name, value in parameters.items() if isinstance(parameters, Mapping) else ():
        # The conventions have numbers here; a model's own parameter of this name may be anything
        if name in _PARAMETERS and isinstance(value, int | float):
            facts[f"request.{_PARAMETERS[name]}"] = value
    return facts


def _server(model: Model | None) -> dict[str, Attribute | None]:
    """Return host and port of the model's endpoint, or {} if the model has no address."""
    if model is None or model.base_url is None:
        return {}
    try:
        url = urlsplit(model.base_url)
        return {"address": url.hostname, "port": url.port or {"https": 443, "http": 80}.get(url.scheme)}
    except ValueError:
        return {}


def _tokens(usage: Usage | None) -> dict[str, Attribute | None]:
    if usage is None:
        return {}
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_read.input_tokens": usage.cached_tokens,
        "cache_creation.input_tokens": usage.cache_write_tokens,
        "reasoning.output_tokens": usage.reasoning_tokens,
    }


def _conversation(artifact: RunArtifact) -> dict[str, Attribute | None]:
    """Return the messages to the agent and its answer, in the conventions' JSON."""
    inputs: list[MessageEvent] = []
    for event in artifact.trace:
        if isinstance(event, MessageEvent) and event.role != "assistant":
            inputs.append(event)
        elif not isinstance(event, RunnerEvent) or event.name == "request":
            break
    system = [_part(event.content) for event in inputs if event.role == "system"]
    messages = [{"role": e.role, "parts": [_part(e.content)]} for e in inputs if e.role != "system"]
    outputs = [event for event in artifact.trace if isinstance(event, FinalOutputEvent)][-1:]
    finish = str(artifact.provider.get("finish_reason") or "stop")
    answers = [{"role": "assistant", "parts": [_part(e.content)], "finish_reason": finish} for e in outputs]
    facts = {"system_instructions": system, "input.messages": messages, "output.messages": answers}
    return {name: json.dumps(value, ensure_ascii=False) for name, value in facts.items() if value}


def _part(text: str) -> dict[str, str | None]:
    return {"type": "text", "content": _cut(text)}


def _cut(text: str | None) -> str | None:
    if text is None or len(text) <= CONTENT_LIMIT:
        return text
    return f"{text[:CONTENT_LIMIT]} [{len(text) - CONTENT_LIMIT:,} more characters]"


EVENT = "gen_ai.evaluation.result"
_EXPLANATION = "gen_ai.evaluation.explanation"
_LABELS = {None: None, True: "passed", False: "failed"}


def evaluation_events(evaluation: Evaluation, *, content: bool) -> Iterator[dict[str, Any]]:
    """Yield the attributes of each event. Explanations quote the agent's text, so they need `content`."""
    for event in _results(evaluation):
        if not content:
            event.pop(_EXPLANATION, None)
        yield event


def _results(evaluation: Evaluation) -> Iterator[dict[str, Any]]:
    reasons = " ".join(evaluation.reasons)
    yield _result("outcome", evaluation.outcome, evaluation.final_score, reasons, evaluation.error and "error")
    yield from map(_check, evaluation.checks)
    for metric in evaluation.metrics:
        error = metric.error and "error"
        yield _result(f"metric.{metric.name}", _LABELS[metric.passed], metric.score, None, error)
    if evaluation.judge is not None:
        yield from _judge(evaluation.judge)


def _check(check: CheckResult) -> dict[str, Any]:
    error = "error" if check.outcome == "error" else None
    return _result(f"check.{check.check_id}", check.outcome, None, check.message, error)


def _judge(judge: JudgeResult) -> Iterator[dict[str, Any]]:
    yield _result("judge.overall", _LABELS[judge.passed], judge.overall, judge.summary, None)
    for dimension, score in judge.dimensions.items():
        yield _result(f"judge.{dimension}", None, score, None, None)


def _result(
    name: str, label: str | None, score: float | None, explanation: str | None, error: str | None
) -> dict[str, Any]:
    facts: Mapping[str, Any] = {
        "gen_ai.evaluation.name": name,
        "gen_ai.evaluation.score.label": label,
        "gen_ai.evaluation.score.value": score,
        _EXPLANATION: explanation or None,
        "error.type": error,
    }
    return {key: value for key, value in facts.items() if value is not None}
