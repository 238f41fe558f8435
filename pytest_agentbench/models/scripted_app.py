"""An ASGI app that speaks the chat-completions protocol and answers from scripts, offline."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from pytest_agentbench.extensions import find_extension
from pytest_agentbench.models.completions_http import (
    App,
    EventStream,
    Receive,
    RequestRefused,
    Scope,
    Send,
    asks_for_models,
    read_body,
    read_request,
    send_json,
    send_models,
)
from pytest_agentbench.models.conversation import NoScript, message_text
from pytest_agentbench.models.script_files import (
    VERDICT_FORMS,
    ScriptedJudgement,
    ScriptedToolCall,
    ScriptedUsage,
    ScriptedVerdict,
    Step,
    VerdictForm,
    stage_sections,
)
from pytest_agentbench.models.scripts import Scripts
from pytest_agentbench.records.base import DIMENSIONS

JUDGE_SCHEMA = "judge_verdict"
"""The name of the response schema by which a judge's request is known."""
ANSWER_SCHEMA = "answer_verdict"
"""The same for a judge that says whether an answer is correct."""
ONE_WORD = "Reply with exactly one word: Correct or Incorrect."
"""How the system message of such a request ends where one word is asked for."""
REPETITION_FIELD = "agentbench_repetition"
"""In a request's `metadata`: which of several votes on the same answer, or verdicts on a run, it asks for, from 1."""

_CHARACTERS_PER_TOKEN = 4


def scripted_app(scripts: Scripts, *, latency_seconds: float = 0.0) -> App:
    """Serve `POST /v1/chat/completions` (streaming too) and `GET /v1/models`; each answer waits `latency_seconds`."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise NotImplementedError(f"the scripted endpoint speaks HTTP only, not {scope['type']}")
        try:
            body = await read_body(receive)
            if latency_seconds:
                await asyncio.sleep(latency_seconds)
            await _answer(scripts, scope, body, send)
        except RequestRefused as refused:
            await send_json(send, refused.status, refused.body("scripted_error"), refused.headers)

    return app


async def _answer(scripts: Scripts, scope: Scope, body: bytes, send: Send) -> None:
    if asks_for_models(scope):
        await send_models(send, "demo")
        return
    request = read_request(body)
    step = _step(scripts, request, scope["headers"])
    if step.latency_seconds:
        await asyncio.sleep(step.latency_seconds)
    _raise_scripted_error(step, scope["headers"])
    completion = _completion(step, request, body)
    if request.get("stream"):
        await EventStream(send).send_completion(completion, request.get("stream_options"))
    else:
        await send_json(send, 200, completion)


def _step(scripts: Scripts, request: Mapping[str, Any], headers: Sequence[tuple[bytes, bytes]]) -> Step:
    header, messages = _header(headers, b"x-agentbench-case"), request["messages"]
    case_id = None if header is None else unquote(header)
    try:
        asked = _schema_name(request)
        if asked is not None and (form := _find_form(asked)) is not None:
            verdict = scripts.verdict(case_id, messages, _repetition(request))
            return Step(content=verdict.content if verdict.content is not None else form.write(verdict))
        for section, _ in stage_sections():
            if asked is not None and asked.startswith(f"{section}_"):
                stage = asked.removeprefix(f"{section}_")
                return Step(content=scripts.stage(case_id, messages, section, stage, _repetition(request)))
        one_word = message_text(messages[0]).endswith(ONE_WORD)
        if asked == ANSWER_SCHEMA or one_word:
            judgement = scripts.judgement(case_id, messages, _repetition(request))
            return Step(content=_judgement_text(judgement, one_word=one_word))
        offers_tools = bool(request.get("tools")) and request.get("tool_choice") != "none"
        return scripts.find(case_id, messages).step(messages, offers_tools=offers_tools)
    except NoScript as error:
        raise RequestRefused(404, str(error), error.code) from error
    except TimeoutError as error:
        said = "a script's `matches` takes too long on this message; write one that backtracks less"
        raise RequestRefused(400, said, "script_pattern") from error


def _schema_name(request: Mapping[str, Any]) -> str | None:
    response_format = request.get("response_format")
    schema = response_format.get("json_schema") if isinstance(response_format, dict) else None
    name = schema.get("name") if isinstance(schema, dict) else None
    return name if isinstance(name, str) else None


def _repetition(request: Mapping[str, Any]) -> int:
    metadata = request.get("metadata")
    said = metadata.get(REPETITION_FIELD) if isinstance(metadata, dict) else None
    return int(said) if isinstance(said, str) and re.fullmatch("[1-9][0-9]{0,5}", said) else 1


def _judgement_text(judgement: ScriptedJudgement, *, one_word: bool) -> str:
    if judgement.content is not None:
        return judgement.content
    if one_word:
        return "Correct" if judgement.correct else "Incorrect"
    return json.dumps({"reason": judgement.reason, "correct": judgement.correct}, ensure_ascii=False)


def _verdict_text(verdict: ScriptedVerdict) -> str:
    """Return the verdict as a judge writes it: JSON that keeps the judge's contract."""
    answer: dict[str, Any] = {
        "summary": verdict.summary,
        "dimensions": {name: verdict.scored(name).model_dump() for name in DIMENSIONS},
        "overall": verdict.scored().model_dump(),
    }
    if verdict.expectations:
        answer["expectations"] = [expectation.model_dump() for expectation in verdict.expectations]
    return json.dumps(answer, ensure_ascii=False)


_VERDICT = VerdictForm(DIMENSIONS, _verdict_text)


def _find_form(schema: str) -> VerdictForm | None:
    """Return how a verdict is written that a request asks for by the name of its response schema."""
    return _VERDICT if schema == JUDGE_SCHEMA else find_extension(VERDICT_FORMS, schema)


def _raise_scripted_error(step: Step, headers: Sequence[tuple[bytes, bytes]]) -> None:
    error = step.error
    if error is None:
        return
    retries = _header(headers, b"x-stainless-retry-count") or "0"
    if error.times is not None and retries.isdecimal() and int(retries) >= error.times:
        return
    wait = {} if error.retry_after is None else {"retry-after": f"{error.retry_after:g}"}
    raise RequestRefused(error.status, error.message, error.code or "scripted_error", wait)


def _completion(step: Step, request: Mapping[str, Any], body: bytes) -> dict[str, Any]:
    messages = request["messages"]
    message: dict[str, Any] = {"role": "assistant", "content": step.content, "refusal": None}
    if step.tool_calls:
        message["tool_calls"] = [_tool_call(call, len(messages), n) for n, call in enumerate(step.tool_calls)]
    return {
        "id": f"chatcmpl-{hashlib.sha256(body).hexdigest()[:24]}",
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
        "usage": _usage(step, messages, message),
    }


def _tool_call(call: ScriptedToolCall, turn: int, index: int) -> dict[str, Any]:
    arguments = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments, ensure_ascii=False)
    return {"id": f"call_{turn}_{index}", "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _usage(step: Step, messages: Sequence[Mapping[str, Any]], message: Mapping[str, Any]) -> dict[str, Any]:
    said = step.usage or ScriptedUsage()
    prompt, completion = said.input_tokens, said.output_tokens
    if prompt is None:
        prompt = _tokens("".join(message_text(each) for each in messages))
    if completion is None:
        completion = _tokens((step.content or "") + (json.dumps(message["tool_calls"]) if step.tool_calls else ""))
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": said.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": said.reasoning_tokens},
    }


def _tokens(text: str) -> int:
    return -(-len(text) // _CHARACTERS_PER_TOKEN)


def _header(headers: Sequence[tuple[bytes, bytes]], name: bytes) -> str | None:
    return next((value.decode("latin-1") for key, value in headers if key == name), None)
