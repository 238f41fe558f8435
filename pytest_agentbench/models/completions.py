"""Chat completions on the server's side, answered by scripts, offline.

Requests over HTTP (`completions_http`) and requests in the same process get the same answers, byte for byte.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from pydantic_core import from_json

from pytest_agentbench.extensions import find_extension
from pytest_agentbench.models.apis.base import Asked, RequestRefused
from pytest_agentbench.models.apis.chat import error, list_events, require_messages, wants_usage
from pytest_agentbench.models.json_values import as_object
from pytest_agentbench.models.messages import ChatReply, take_string
from pytest_agentbench.models.prompts import ANSWER_SCHEMA, JUDGE_SCHEMA, ONE_WORD, REPETITION_FIELD, message_text
from pytest_agentbench.models.replies import SKIPPED_STEPS, RawReply, read_reply
from pytest_agentbench.models.routes import CASE_HEADER, ROLE_HEADER
from pytest_agentbench.models.script_files import (
    VERDICT_FORMS,
    ScriptedJudgement,
    ScriptedToolCall,
    ScriptedUsage,
    ScriptedVerdict,
    Step,
    VerdictForm,
    list_stage_sections,
)
from pytest_agentbench.models.scripts import NoScript, Scripts
from pytest_agentbench.records.base import DIMENSIONS
from pytest_agentbench.records.case import Model

_MAX_BODY = 32 * 1024 * 1024
EVENT_STREAM = {"content-type": "text/event-stream"}
"""Headers of a stream. Starlette's `media_type` would add a charset."""
_CHARACTERS_PER_TOKEN = 4
"""Approximate number for tokenizers on English text."""


def parse_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object that a request consists of. Raises RequestRefused for anything else."""
    try:
        request = _load(body)
    except (ValueError, RecursionError) as error:
        raise RequestRefused(400, f"the request is no JSON: {error}", "invalid_json") from error
    if not isinstance(request, dict):
        raise RequestRefused(400, "the request must be a JSON object", "invalid_request")
    return request


def _load(body: bytes) -> Any:
    try:
        return from_json(body)
    except ValueError:  # json accepts more, such as lone surrogates, and its errors have the line of the mistake
        return json.loads(body)


def read_request(body: bytes) -> dict[str, Any]:
    """Return the request for a completion, with at least one message. Raises RequestRefused for anything else."""
    request = parse_object(body)
    require_messages(request)
    return request


def refuse_large(size: int) -> None:
    """Raise RequestRefused for a request of more than 32 MB. `size` is in bytes."""
    if size > _MAX_BODY:
        raise RequestRefused(413, f"the request is larger than {_MAX_BODY:,} bytes", "too_large")


async def complete_scripted(
    scripts: Scripts, request: Mapping[str, Any], headers: Mapping[str, str], body: bytes
) -> dict[str, Any]:
    """Return the scripted completion for a request. `body` is its JSON. Raises RequestRefused if there is none."""
    step = _choose_step(scripts, request, headers.get(CASE_HEADER), headers.get(ROLE_HEADER))
    if step.latency_seconds:
        await asyncio.sleep(step.latency_seconds)
    _raise_scripted_error(step, headers)
    completion = _make_completion(step, request, body)
    if skipped := _count_skipped(scripts, step, request, headers):
        completion[SKIPPED_STEPS] = skipped
    return completion


async def answer_scripted(scripts: Scripts, asked: Asked, headers: Mapping[str, str]) -> ChatReply:
    """Return the scripts' reply to a request in any API. Raises RequestRefused if there is none."""
    if asked.refusal is not None:
        raise asked.refusal
    request = {**asked.parameters, "model": asked.model, "messages": asked.messages, "tools": asked.tools}
    completion = await complete_scripted(scripts, request, headers, json.dumps(request, sort_keys=True).encode())
    model = Model(model_id="demo", requested_model=asked.model or "demo", scripted=True)
    return read_reply(json.dumps(completion).encode(), "application/json", model, attempts=1, seconds=0.0)


class ScriptedConnection:
    """A connection to scripted models in this process: requests and replies have the same bytes as over HTTP."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    async def send(self, body: bytes, headers: Mapping[str, str], stall_seconds: float | None = None) -> RawReply:
        """Return the reply, with an error status if the script has one; its events are joined on request."""
        try:
            refuse_large(len(body))
            request = read_request(body)
            completion = await complete_scripted(self._scripts, request, headers, body)
        except RequestRefused as refused:
            content = json.dumps(error(refused.status, refused.code, str(refused))).encode()
            return RawReply(refused.status, {"content-type": "application/json", **(refused.headers or {})}, content)
        if request.get("stream"):
            content = b"".join(list_events(completion, include_usage=wants_usage(request)))
            if stall_seconds is None:
                return RawReply(200, EVENT_STREAM, content)
            from pytest_agentbench.models.streaming import StreamReader

            reader = StreamReader()
            reader.feed(content)
            return reader.finish(200, EVENT_STREAM)
        return RawReply(200, {"content-type": "application/json"}, json.dumps(completion).encode())

    async def close(self) -> None:
        """Do nothing: nothing is open."""


def _choose_step(
    scripts: Scripts, request: Mapping[str, Any], quoted_case_id: str | None, role: str | None = None
) -> Step:
    messages, case_id = request["messages"], quoted_case_id and unquote(quoted_case_id)
    offers_tools = bool(request.get("tools")) and request.get("tool_choice") != "none"
    try:
        if role is not None:
            return scripts.find(case_id, messages).of_role(role).step(messages, offers_tools=offers_tools)
        schema = _find_schema_name(request)
        if schema and (form := _find_form(schema)) is not None:
            verdict = scripts.verdict(case_id, messages, _read_repetition(request))
            if verdict.content is not None:
                return Step(content=verdict.content)
            return Step(content=form.write(verdict))
        # Stages of packs have schemas named `SECTION_STAGE`.
        for section, _ in list_stage_sections():
            if schema.startswith(f"{section}_"):
                stage = schema.removeprefix(f"{section}_")
                return Step(content=scripts.stage(case_id, messages, section, stage, _read_repetition(request)))
        # The original judge of correctness (compat v1) sends no schema, so its prompt identifies it.
        one_word = message_text(messages[0]).endswith(ONE_WORD)
        if schema == ANSWER_SCHEMA or one_word:
            judgement = scripts.judgement(case_id, messages, _read_repetition(request))
            return Step(content=_write_judgement(judgement, one_word=one_word))
        return scripts.find(case_id, messages).step(messages, offers_tools=offers_tools)
    except NoScript as error:
        raise RequestRefused(404, str(error), error.code) from error
    except TimeoutError as error:
        problem = "a script's `matches` takes too long on this message; write one that backtracks less"
        raise RequestRefused(400, problem, "script_pattern") from error


def _count_skipped(scripts: Scripts, step: Step, request: Mapping[str, Any], headers: Mapping[str, str]) -> int:
    """Return the number of steps with calls that were skipped because the request offers no tools."""
    case_id = headers.get(CASE_HEADER)
    if request.get("tools") or step.tool_calls or headers.get(ROLE_HEADER) or _find_schema_name(request):
        return 0
    try:
        script = scripts.find(case_id and unquote(case_id), request["messages"])
        return script.count_skipped(request["messages"])
    except NoScript:  # a judge's request
        return 0


def _find_schema_name(request: Mapping[str, Any]) -> str:
    """Return the name of the JSON Schema that a request demands, "" if it demands none."""
    schema = as_object(as_object(request.get("response_format")).get("json_schema"))
    return take_string(schema.get("name")) or ""


def _read_repetition(request: Mapping[str, Any]) -> int:
    number = as_object(request.get("metadata")).get(REPETITION_FIELD)
    if isinstance(number, str) and re.fullmatch("[1-9][0-9]{0,5}", number):
        return int(number)
    return 1


def _write_judgement(judgement: ScriptedJudgement, *, one_word: bool) -> str:
    if judgement.content is not None:
        return judgement.content
    if one_word:
        if judgement.correct:
            return "Correct"
        return "Incorrect"
    return json.dumps({"reason": judgement.reason, "correct": judgement.correct}, ensure_ascii=False)


def _write_verdict(verdict: ScriptedVerdict) -> str:
    """Return a verdict as a judge's reply: JSON by the judge's contract."""
    answer: dict[str, Any] = {
        "summary": verdict.summary,
        "dimensions": {name: verdict.scored(name).model_dump() for name in DIMENSIONS},
        "overall": verdict.scored().model_dump(),
    }
    if verdict.expectations:
        answer["expectations"] = [expectation.model_dump() for expectation in verdict.expectations]
    if verdict.criteria:
        answer["criteria"] = verdict.scored_criteria()
    return json.dumps(answer, ensure_ascii=False)


_VERDICT = VerdictForm(DIMENSIONS, _write_verdict)


def _find_form(schema: str) -> VerdictForm | None:
    """Return the form of the verdict that a response schema with this name demands, or None."""
    if schema == JUDGE_SCHEMA:
        return _VERDICT
    return find_extension(VERDICT_FORMS, schema)


def _raise_scripted_error(step: Step, headers: Mapping[str, str]) -> None:
    error = step.error
    if error is None:
        return
    # Clients count their retries in this header (OpenAI's and ours), so scripts need no state.
    retries = headers.get("x-stainless-retry-count", "0")
    if error.times is not None and retries.isdecimal() and int(retries) >= error.times:
        return
    retry_headers: dict[str, str] = {}
    if error.retry_after is not None:
        retry_headers["retry-after"] = f"{error.retry_after:g}"
    raise RequestRefused(error.status, error.message, error.code or "scripted_error", retry_headers)


def _make_completion(step: Step, request: Mapping[str, Any], body: bytes) -> dict[str, Any]:
    messages = request["messages"]
    message: dict[str, Any] = {"role": "assistant", "content": step.content, "refusal": None}
    finish = "stop"
    if step.tool_calls:
        message["tool_calls"] = [_make_tool_call(call, len(messages), n) for n, call in enumerate(step.tool_calls)]
        finish = "tool_calls"
    return {
        # Made from the body: equal requests get equal ids, so stored runs differ only in times.
        "id": f"chatcmpl-{hashlib.sha256(_leave_stream_out(request, body)).hexdigest()[:24]}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": request.get("model") or "demo",
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish}],
        "usage": _count_usage(step, messages, message),
    }


def _leave_stream_out(request: Mapping[str, Any], body: bytes) -> bytes:
    """Return the JSON of a request without its streaming fields."""
    if "stream" not in request:
        return body
    rest = {name: value for name, value in request.items() if name not in ("stream", "stream_options")}
    return json.dumps(rest, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def _make_tool_call(call: ScriptedToolCall, turn: int, index: int) -> dict[str, Any]:
    arguments = call.arguments
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    return {
        "id": f"call_{turn}_{index}",
        "type": "function",
        "function": {"name": call.sent_name, "arguments": arguments},
    }


def _count_usage(step: Step, messages: Sequence[Mapping[str, Any]], message: Mapping[str, Any]) -> dict[str, Any]:
    usage = step.usage or ScriptedUsage()
    prompt, completion = usage.input_tokens, usage.output_tokens
    if prompt is None:
        prompt = count_tokens(messages)
    if completion is None:
        completion_text = step.content or ""
        if step.tool_calls:
            completion_text += json.dumps(message["tool_calls"])
        completion = _estimate_tokens(completion_text)
    prompt_details = {"cached_tokens": usage.cached_tokens}
    if usage.cache_write_tokens:
        prompt_details["cache_write_tokens"] = usage.cache_write_tokens
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": prompt_details,
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def count_tokens(messages: Sequence[Mapping[str, Any]]) -> int:
    """Return the approximate number of tokens of messages."""
    return _estimate_tokens("".join(map(message_text, messages)))


def _estimate_tokens(text: str) -> int:
    return -(-len(text) // _CHARACTERS_PER_TOKEN)
