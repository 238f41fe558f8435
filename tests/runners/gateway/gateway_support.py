"""What the tests of the gateway share: gateways that listen, and how agents of each dialect ask and show replies."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from pytest_agentbench.config.sections import RunnerSettings
from pytest_agentbench.models.client import Endpoints
from pytest_agentbench.models.messages import ChatReply, ToolCall
from pytest_agentbench.models.scripts import Scripts
from pytest_agentbench.records.case import Model
from pytest_agentbench.records.run import RunnerEvent, ToolResultEvent, Usage
from pytest_agentbench.runners.base import Recorder
from pytest_agentbench.runners.chat import Requests
from pytest_agentbench.runners.gateway.gateway import Gateway
from pytest_agentbench.runners.gateway.policy import GatewayPolicy

GO = [{"role": "user", "content": "Go."}]
PLAIN = GatewayPolicy(passes=False)

Call = tuple[str, str, dict[str, Any]]
"""Id, name, arguments."""


def reply(*calls: Call, content: str | None = None) -> ChatReply:
    asked = tuple(ToolCall(id=id_, name=name, arguments=args, raw=json.dumps(args)) for id_, name, args in calls)
    return ChatReply(content, asked, "tool_calls", Usage(), "m", None, {"role": "assistant"}, 1, 0.1)


def shown(*calls: Call, content: str | None = None) -> dict[str, Any]:
    """The message by which an agent shows such a reply, its arguments written in its own way."""
    tool_calls = [
        {
            "id": id_,
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(args, separators=(",", ":"))},
        }
        for id_, name, args in calls
    ]
    return {"role": "assistant", "content": content, "tool_calls": tool_calls}


def result(call_id: str, content: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def results(trace: Recorder) -> list[tuple[str, str, str]]:
    return [(e.call_id, e.name, e.content) for e in trace.events if isinstance(e, ToolResultEvent)]


@dataclass(frozen=True)
class Spoken:
    """How an agent asks in a dialect, and reads what it is told."""

    dialect: str
    path: str
    body: Callable[[str, str], dict[str, Any]]
    text: Callable[[Any], str]
    code: Callable[[Any], str]
    tool: dict[str, Any]
    server_tool: dict[str, Any]
    called: Callable[[Any, str], list[dict[str, Any]]]
    usage: Callable[[Any], tuple[int, int, int]]
    stream_path: str | None = None

    def ask(self, text: str, model: str = "demo", **fields: Any) -> dict[str, Any]:
        """The body of a request with one user message."""
        return {**self.body(text, model), **fields}

    def at(self, model: str = "demo", *, stream: bool = False) -> str:
        return (self.stream_path if stream and self.stream_path else self.path).format(model=model)


def _after_chat(reply: Any, content: str) -> list[dict[str, Any]]:
    message = reply["choices"][0]["message"]
    return [message, {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": content}]


def _after_responses(reply: Any, content: str) -> list[dict[str, Any]]:
    [call] = [item for item in reply["output"] if item["type"] == "function_call"]
    return [*reply["output"], {"type": "function_call_output", "call_id": call["call_id"], "output": content}]


def _after_messages(reply: Any, content: str) -> list[dict[str, Any]]:
    [call] = [block for block in reply["content"] if block["type"] == "tool_use"]
    said = {"type": "tool_result", "tool_use_id": call["id"], "content": content, "is_error": True}
    return [{"role": "assistant", "content": reply["content"]}, {"role": "user", "content": [said]}]


def _after_gemini(reply: Any, content: str) -> list[dict[str, Any]]:
    own = reply["candidates"][0]["content"]
    [call] = [part["functionCall"] for part in own["parts"] if "functionCall" in part]
    said = {"functionResponse": {"id": call["id"], "name": call["name"], "response": {"output": content}}}
    return [own, {"role": "user", "parts": [said]}]


_SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
CHAT = Spoken(
    "chat",
    "/v1/chat/completions",
    lambda text, model: {"model": model, "messages": [{"role": "user", "content": text}]},
    lambda reply: reply["choices"][0]["message"]["content"],
    lambda body: body["error"]["code"],
    {"type": "function", "function": {"name": "write", "parameters": _SCHEMA}},
    {"type": "web_search"},
    _after_chat,
    lambda reply: (
        reply["usage"]["prompt_tokens"],
        reply["usage"]["prompt_tokens_details"]["cached_tokens"],
        reply["usage"]["completion_tokens"],
    ),
)
RESPONSES = Spoken(
    "responses",
    "/v1/responses",
    lambda text, model: {"model": model, "input": [{"role": "user", "content": text}]},
    lambda reply: reply["output"][-1]["content"][0]["text"],
    lambda body: body["error"]["code"],
    {"type": "function", "name": "write", "parameters": _SCHEMA},
    {"type": "web_search_preview"},
    _after_responses,
    lambda reply: (
        reply["usage"]["input_tokens"],
        reply["usage"]["input_tokens_details"]["cached_tokens"],
        reply["usage"]["output_tokens"],
    ),
)
MESSAGES = Spoken(
    "messages",
    "/v1/messages",
    lambda text, model: {"model": model, "max_tokens": 99, "messages": [{"role": "user", "content": text}]},
    lambda reply: reply["content"][-1]["text"],
    lambda body: body["error"]["code"],
    {"name": "write", "input_schema": _SCHEMA},
    {"type": "web_search_20250305", "name": "web_search"},
    _after_messages,
    lambda reply: (
        reply["usage"]["input_tokens"] + reply["usage"]["cache_read_input_tokens"],
        reply["usage"]["cache_read_input_tokens"],
        reply["usage"]["output_tokens"],
    ),
)
GEMINI = Spoken(
    "gemini",
    "/v1beta/models/{model}:generateContent",
    lambda text, model: {"contents": [{"role": "user", "parts": [{"text": text}]}]},
    lambda reply: reply["candidates"][0]["content"]["parts"][-1]["text"],
    lambda body: body["error"]["details"][0]["reason"],
    {"functionDeclarations": [{"name": "write", "parameters": _SCHEMA}]},
    {"googleSearch": {}},
    _after_gemini,
    lambda reply: (
        reply["usageMetadata"]["promptTokenCount"],
        reply["usageMetadata"]["cachedContentTokenCount"],
        reply["usageMetadata"]["candidatesTokenCount"] + reply["usageMetadata"]["thoughtsTokenCount"],
    ),
    "/v1beta/models/{model}:streamGenerateContent?alt=sse",
)
SPOKEN = (CHAT, RESPONSES, MESSAGES, GEMINI)
HISTORY = {"chat": "messages", "responses": "input", "messages": "messages", "gemini": "contents"}
"""The field of each dialect that has the conversation."""


@dataclass
class Served:
    """A gateway that listens, its trace, and an HTTP client that reaches it."""

    gateway: Gateway
    trace: Recorder
    http: httpx2.AsyncClient
    socket: Path
    model: Model

    async def ask(self, messages: list[dict[str, Any]] = GO, **fields: Any) -> httpx2.Response:
        body = {"model": self.model.requested_model, "messages": messages, **fields}
        return await self.http.post("/v1/chat/completions", json=body)

    async def message(self, messages: list[dict[str, Any]] = GO, **fields: Any) -> dict[str, Any]:
        response = await self.ask(messages, **fields)
        assert response.status_code == 200, response.text
        return response.json()["choices"][0]["message"]

    def events(self, kind: type) -> list[Any]:
        return [event for event in self.trace.events if isinstance(event, kind)]

    def notes(self, name: str) -> list[dict[str, Any]]:
        return [event.data for event in self.events(RunnerEvent) if event.name == name]


@asynccontextmanager
async def served(
    model: Model,
    folder: Path,
    *,
    scripts: Scripts | None = None,
    text: str | None = "Go.",
    over_budget: Callable[[Usage], str | None] = lambda usage: None,
    policy: GatewayPolicy = PLAIN,
    **settings: Any,
) -> AsyncIterator[Served]:
    """The gateway is in a turn with this text, None for no turn."""
    endpoints, trace, parameters = Endpoints(scripts=scripts), Recorder(), settings.pop("parameters", {})
    run = RunnerSettings(**{"retries": 0, **settings})
    requests = Requests("a_case", endpoints.client(model), run, trace)
    gateway = Gateway(requests, model, trace, parameters, over_budget, policy)
    path = folder / "model.sock"
    path.unlink(missing_ok=True)
    transport = httpx2.AsyncHTTPTransport(verify=False, uds=str(path))  # loading certificates takes 23 ms
    try:
        async with (
            gateway.serving(path),
            httpx2.AsyncClient(transport=transport, base_url="http://gateway", timeout=60) as http,
        ):
            with gateway.turn(text) if text is not None else nullcontext():
                yield Served(gateway, trace, http, path, model)
    finally:
        await endpoints.close()
