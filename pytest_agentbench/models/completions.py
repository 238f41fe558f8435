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
from pytest_agentbench.models.messages import ChatReply
from pytest_agentbench.models.prompts import (
    ANSWER_SCHEMA,
    JUDGE_SCHEMA,
    ONE_WORD,
    REPETITION_FIELD,
    message_text,
)
from pytest_agentbench.models.replies import RawReply, read_reply
from pytest_agentbench.models.routes import CASE_HEADER
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
"""Headers of a stream, by hand: Starlette's `media_type` would add a charset."""
_CHARACTERS_PER_TOKEN = 4


def parse_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object that a request consists of. Raises RequestRefused for anything else."""
    try:
        request = _load(body)
    except (ValueError, RecursionError) as error:
        raise RequestRefused(400, f"the request is no JSON: {error}", "invalid_json") from error
    if not isinstance(request, dict):
        raise RequestRefused(400, "the request is to be a JSON object", "invalid_request")
    return request


def _load(body: bytes) -> Any:
    try:
        return from_json(body)
    except ValueError:  # half characters, which Python takes, among others; and it says where a mistake is
        return json.loads(body)


def read_request(body: bytes) -> dict[str, Any]:
    """Return the request for a completion, with at least one message. Raises RequestRefused for anything else."""
    request = parse_object(body)
    require_messages(request)
    return request


def refuse_large(size: int) -> None:
    """Raise RequestRefused for a request of so many bytes where that is more than 32 MB."""
    if size > _MAX_BODY:
        raise RequestRefused(413, f"the request is larger than {_MAX_BODY:,} bytes", "too_large")


async def complete_scripted(
    scripts: Scripts, request: Mapping[str, Any], headers: Mapping[str, str], body: bytes
) -> dict[str, Any]:
    """Return the completion that the scripts have for a request, of which `body` is the JSON. Raises RequestRefused."""
    step = _choose_step(scripts, request, headers.get(CASE_HEADER))
    if step.latency_seconds:
        await asyncio.sleep(step.latency_seconds)
    _raise_scripted_error(step, headers)
    return _make_completion(step, request, body)


async def answer_scripted(scripts: Scripts, asked: Asked, headers: Mapping[str, str]) -> ChatReply:
    """Return the scripts' reply to a request in any dialect. Raises RequestRefused."""
    if asked.refusal is not None:
        raise asked.refusal
    request = {**asked.parameters, "model": asked.model, "messages": asked.messages, "tools": asked.tools}
    completion = await complete_scripted(scripts, request, headers, json.dumps(request, sort_keys=True).encode())
    model = Model(model_id="demo", requested_model=asked.model or "demo", scripted=True)
    return read_reply(json.dumps(completion).encode(), "application/json", model, attempts=1, seconds=0.0)


class ScriptedConnection:
    """The way to scripted models in the same process: requests and replies are the bytes that HTTP would carry."""

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


def _choose_step(scripts: Scripts, request: Mapping[str, Any], quoted_case_id: str | None) -> Step:
    messages, case_id = request["messages"], None if quoted_case_id is None else unquote(quoted_case_id)
    try:
        asked = _find_schema_name(request)
        if asked is not None and (form := _find_form(asked)) is not None:
            verdict = scripts.verdict(case_id, messages, _read_repetition(request))
            return Step(content=verdict.content if verdict.content is not None else form.write(verdict))
        # Stages of packs have schemas named `SECTION_STAGE`.
        for section, _ in list_stage_sections():
            if asked is not None and asked.startswith(f"{section}_"):
                stage = asked.removeprefix(f"{section}_")
                return Step(content=scripts.stage(case_id, messages, section, stage, _read_repetition(request)))
        # The original judge of correctness (compat v1) sends no schema, so its prompt identifies it.
        one_word = message_text(messages[0]).endswith(ONE_WORD)
        if asked == ANSWER_SCHEMA or one_word:
            judgement = scripts.judgement(case_id, messages, _read_repetition(request))
            return Step(content=_write_judgement(judgement, one_word=one_word))
        offers_tools = bool(request.get("tools")) and request.get("tool_choice") != "none"
        return scripts.find(case_id, messages).step(messages, offers_tools=offers_tools)
    except NoScript as error:
        raise RequestRefused(404, str(error), error.code) from error
    except TimeoutError as error:
        said = "a script's `matches` takes too long on this message; write one that backtracks less"
        raise RequestRefused(400, said, "script_pattern") from error


def _find_schema_name(request: Mapping[str, Any]) -> str | None:
    response_format = request.get("response_format")
    schema = response_format.get("json_schema") if isinstance(response_format, dict) else None
    name = schema.get("name") if isinstance(schema, dict) else None
    if isinstance(name, str):
        return name
    return None


def _read_repetition(request: Mapping[str, Any]) -> int:
    metadata = request.get("metadata")
    said = metadata.get(REPETITION_FIELD) if isinstance(metadata, dict) else None
    if isinstance(said, str) and re.fullmatch("[1-9][0-9]{0,5}", said):
        return int(said)
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
    """Return the verdict as a judge writes it: JSON that keeps the judge's contract."""
    answer: dict[str, Any] = {
        "summary": verdict.summary,
        "dimensions": {name: verdict.scored(name).model_dump() for name in DIMENSIONS},
        "overall": verdict.scored().model_dump(),
    }
    if verdict.expectations:
        answer["expectations"] = [expectation.model_dump() for expectation in verdict.expectations]
    return json.dumps(answer, ensure_ascii=False)


_VERDICT = VerdictForm(DIMENSIONS, _write_verdict)


def _find_form(schema: str) -> VerdictForm | None:
    """Return how a verdict is written that a request asks for by the name of its response schema."""
    if schema == JUDGE_SCHEMA:
        return _VERDICT
    return find_extension(VERDICT_FORMS, schema)


def _raise_scripted_error(step: Step, headers: Mapping[str, str]) -> None:
    error = step.error
    if error is None:
        return
    # The client counts its retries for us, so that scripts need no state: openai and our own send this header.
    retries = headers.get("x-stainless-retry-count", "0")
    if error.times is not None and retries.isdecimal() and int(retries) >= error.times:
        return
    wait = {} if error.retry_after is None else {"retry-after": f"{error.retry_after:g}"}
    raise RequestRefused(error.status, error.message, error.code or "scripted_error", wait)


def _make_completion(step: Step, request: Mapping[str, Any], body: bytes) -> dict[str, Any]:
    messages = request["messages"]
    message: dict[str, Any] = {"role": "assistant", "content": step.content, "refusal": None}
    if step.tool_calls:
        message["tool_calls"] = [_make_tool_call(call, len(messages), n) for n, call in enumerate(step.tool_calls)]
    return {
        # Of the body: equal requests get equal ids, so stored runs differ in nothing but times.
        "id": f"chatcmpl-{hashlib.sha256(_leave_stream_out(request, body)).hexdigest()[:24]}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": request.get("model") or "demo",
        "choices": [
            {
                "index": 0,
                "message": message,
                "logprobs": None,
                "finish_reason": "tool_calls" if step.tool_calls else "stop",
            }
        ],
        "usage": _count_usage(step, messages, message),
    }


def _leave_stream_out(request: Mapping[str, Any], body: bytes) -> bytes:
    """Return the JSON of a request without its streaming fields."""
    if "stream" not in request:
        return body
    rest = {name: value for name, value in request.items() if name not in ("stream", "stream_options")}
    return json.dumps(rest, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def _make_tool_call(call: ScriptedToolCall, turn: int, index: int) -> dict[str, Any]:
    arguments = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments, ensure_ascii=False)
    return {
        "id": f"call_{turn}_{index}",
        "type": "function",
        "function": {"name": call.sent_name, "arguments": arguments},
    }


def _count_usage(step: Step, messages: Sequence[Mapping[str, Any]], message: Mapping[str, Any]) -> dict[str, Any]:
    said = step.usage or ScriptedUsage()
    prompt, completion = said.input_tokens, said.output_tokens
    # Roughly as tokenizers count English.
    if prompt is None:
        prompt = count_tokens(messages)
    if completion is None:
        completion = _estimate_tokens(
            (step.content or "") + (json.dumps(message["tool_calls"]) if step.tool_calls else "")
        )
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {
            "cached_tokens": said.cached_tokens,
            **({"cache_write_tokens": said.cache_write_tokens} if said.cache_write_tokens else {}),
        },
        "completion_tokens_details": {"reasoning_tokens": said.reasoning_tokens},
    }


def count_tokens(messages: Sequence[Mapping[str, Any]]) -> int:
    """Return about how many tokens messages are."""
    return _estimate_tokens("".join(message_text(each) for each in messages))


def _estimate_tokens(text: str) -> int:
    return -(-len(text) // _CHARACTERS_PER_TOKEN)
