"""Replies of endpoints that end a run otherwise than by its answer: those of public reports, and their kinds."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from runners_support import assistant, make_case, probe, told
from support.replay_endpoint import ReplayEndpoint

from pytest_agentbench.errors import ProviderError
from pytest_agentbench.models.messages import ChatReply
from pytest_agentbench.records.case import Model
from pytest_agentbench.records.run import RunArtifact, Usage
from pytest_agentbench.runners.base import RunContext, RunEnd
from pytest_agentbench.runners.probe import llm_probe

REPORTED = Path(__file__).parents[3] / "shared" / "data" / "reports" / "endpoint" / "replies.jsonl"
ROWS = {row["case"]: row for row in map(json.loads, REPORTED.read_text().splitlines())} if REPORTED.is_file() else {}
ONLY_THOUGHTS = "blank answer: all text came as reasoning, so the endpoint's reasoning parser may have misfiled it"
NO_PARSER = "a tool call came as text: the endpoint seems to have no tool parser"


def artifact_of(context: RunContext, end: RunEnd) -> RunArtifact:
    return RunArtifact.model_validate(
        {
            "run_id": "0" * 32,
            "case_id": "a_case",
            "runner_type": "llm_probe",
            "model": {"model_id": "m"},
            "repetition": 1,
            "status": end.status,
            "started_at": "2026-01-01T00:00:00Z",
            "duration_seconds": 1.0,
            "trace": tuple(context.trace.events),
            "end_reason": end.reason,
            "end_detail": end.detail,
        }
    )


def replay(name: str) -> tuple[RunContext, RunEnd, int]:
    """Run a case with tools at an endpoint that gives the reported reply: what came of it, and how many requests."""
    row = ROWS[name]
    body = row["body"] if isinstance(row["body"], str) else json.dumps(row["body"])
    reply = {"status": row["status"], "content_type": row["content_type"], "text": body}
    with ReplayEndpoint([{"id": name, "rules": [{"when": {}, "reply": reply}]}]) as endpoint:
        streamed = row["content_type"] == "text/event-stream"
        model = Model(
            model_id="m", requested_model=name, base_url=f"{endpoint.url}/v1", api_key_env=None, stream=streamed
        )
        try:
            context, end = probe(make_case(tools=("write_file",)), model, settings={"retries": 0})
        finally:
            asked = len(endpoint.requests[name])
    assert end is not None
    return context, end, asked


needs_rows = pytest.mark.skipif(not ROWS, reason="the reported replies are not beside this checkout")


@needs_rows
@pytest.mark.parametrize("name", ["abort", "stream_without_finish_reason"])
def test_a_reported_reply_that_was_given_up_is_an_outage(name: str) -> None:
    with pytest.raises(ProviderError) as caught:
        replay(name)
    assert (caught.value.reason, caught.value.retryable) == ("aborted", True)
    assert "the server stopped generating" in str(caught.value)


@needs_rows
def test_thoughts_of_a_reported_reply_are_no_part_of_its_answer() -> None:
    context, end, _ = replay("think_without_opener")
    assert (end.status, end.reason, context.trace.output) == ("success", "answered", "Paris")


@needs_rows
def test_a_reported_reply_of_only_reasoning_is_blank_with_the_reason() -> None:
    context, end, _ = replay("answer_only_in_reasoning")
    assert (end.status, end.reason, context.trace.output) == ("success", "empty", "")
    assert artifact_of(context, end).ending == ONLY_THOUGHTS


@needs_rows
def test_a_reported_tool_call_as_text_is_named() -> None:
    context, end, _ = replay("tool_call_as_text")
    assert (end.status, end.reason) == ("success", "answered")
    assert artifact_of(context, end).ending == NO_PARSER
    assert [text for text in context.trace.warnings if text.startswith(NO_PARSER)]


CALL = '<tool_call>{"name": "write_file", "arguments": {}}</tool_call>'


@pytest.mark.parametrize(
    ("tools", "reply", "named"),
    [
        (["write_file"], assistant(CALL), True),
        (["write_file"], assistant(f"<think>{CALL}</think>"), True),
        (["write_file"], assistant(CALL.replace("write_file", "read_file")), False),
        (["write_file"], assistant("Done."), False),
        ([], assistant(CALL), False),
    ],
)
def test_a_call_as_text_is_named_if_its_tool_was_offered(tools: list[str], reply: Any, named: bool) -> None:
    with told(reply) as (model, _):
        context, end = probe(make_case(tools=tools), model)
    assert end is not None
    assert (artifact_of(context, end).ending == NO_PARSER) is named
    assert len(context.trace.warnings) == named


def test_a_call_as_text_in_the_forced_last_answer_is_only_text() -> None:
    with told(assistant(None, ("read_file", {"path": "a"})), assistant(CALL)) as (model, _):
        context, end = probe(make_case(tools=["read_file", "write_file"]), model, settings={"max_turns": 1})
    assert end is not None
    assert end.reason == "max_turns"
    assert not context.trace.warnings


@pytest.mark.parametrize(
    ("message", "ending"),
    [
        ({"reasoning_content": "Paris"}, ONLY_THOUGHTS),
        ({"reasoning": "Paris"}, ONLY_THOUGHTS),
        ({"content": "<think>Paris</think>"}, ONLY_THOUGHTS),
        ({"content": ""}, "blank answer"),
    ],
)
def test_a_blank_answer_has_a_note_if_all_text_was_reasoning(message: dict[str, Any], ending: str) -> None:
    reply = assistant()
    reply["choices"][0]["message"] |= message
    with told(reply) as (model, _):
        context, end = probe(make_case(), model)
    assert end is not None
    assert artifact_of(context, end).ending == ending


def test_reasoning_of_an_earlier_reply_explains_no_blank_answer() -> None:
    first = assistant(None, ("list_files", {}))
    first["choices"][0]["message"]["reasoning_content"] = "Look first."
    with told(first, assistant("")) as (model, _):
        context, end = probe(make_case(tools=["list_files"]), model)
    assert end is not None
    assert artifact_of(context, end).ending == "blank answer"


class OwnClient:
    """A model that a plugin adds, which says only text and finish reason."""

    def __init__(self, finish: str) -> None:
        self.model = Model(model_id="own", requested_model="own", provider="own")
        self._finish = finish

    async def complete(self, messages: Any, **_: Any) -> ChatReply:
        return ChatReply("Par", (), self._finish, Usage(), "own", None, {"role": "assistant", "content": "Par"}, 1, 0.0)


@pytest.mark.parametrize(
    ("finish", "status", "reason"),
    [
        ("stop", "success", "answered"),
        ("abort", "provider_error", "aborted"),
        ("error", "provider_error", "provider_error"),
    ],
)
def test_a_plugins_model_that_was_given_up_has_not_answered(finish: str, status: str, reason: str) -> None:
    case = make_case()

    async def run() -> RunEnd:
        client: Any = OwnClient(finish)
        context = RunContext(case, lambda: None, model=client.model, client=client)  # type: ignore[arg-type,return-value]
        return await llm_probe(case, context)

    end = asyncio.run(run())
    assert (end.status, end.reason) == (status, reason)
    assert (end.error is None) is (status == "success")


MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m-1",
    "content": [{"type": "text", "text": "Paris"}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 10, "output_tokens": 5},
}
OLDER = "asked with anthropic-version 2023-06-01: 2026-10-21 takes no "


@pytest.mark.parametrize(
    ("settings", "fields", "names"),
    [
        ({}, {}, None),
        ({"temperature": 0.5, "top_p": 1}, {}, "temperature, top_p"),
        ({}, {"parameters": {"top_k": 3}}, "top_k"),
        ({"temperature": 0.5}, {"anthropic_version": "2023-06-01"}, None),
        ({"temperature": 0.5}, {"headers": {"Anthropic-Version": "2023-06-01"}}, None),
    ],
)
def test_the_reason_for_an_older_version_of_anthropics_api_is_reported_once(
    settings: dict[str, Any], fields: dict[str, Any], names: str | None
) -> None:
    call = {"type": "tool_use", "id": "c", "name": "list_files", "input": {}}
    calling = {**MESSAGE, "content": [call], "stop_reason": "tool_use"}
    with told(calling, MESSAGE) as (model, _):
        model = model.model_copy(update={"api": "messages", **fields})
        context, end = probe(make_case(tools=["list_files"]), model, settings=settings)
    assert end is not None
    assert (end.status, context.trace.output) == ("success", "Paris")
    assert context.trace.warnings == ([f"{OLDER}{names}"] if names else [])
