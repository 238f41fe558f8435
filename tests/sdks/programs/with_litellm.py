"""Agents with LiteLLM, which names models by their makers."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import litellm
from task import PARAMETERS, Task, run

litellm.suppress_debug_info = True
PREFIXES = {"chat": "openai/", "responses": "openai/responses/", "messages": "anthropic/", "gemini": "gemini/"}


async def ask(name: str, task: Task) -> str:
    # Of models that it does not know, LiteLLM asks for whole responses and streams them itself, calls twice
    litellm.register_model({task.model: {"litellm_provider": "openai", "supports_native_streaming": True}})
    path = "/v1" if name in ("chat", "responses") else ""
    messages: list[Any] = [{"role": "user", "content": task.message}]
    tools = [{"type": "function", "function": {"name": "write_file", "parameters": PARAMETERS}}]
    while True:
        reply: Any = await litellm.acompletion(
            model=f"{PREFIXES[name]}{task.model}",
            messages=messages,
            tools=tools,
            stream=task.stream,
            **task.where(path, url="api_base"),
        )
        if task.stream:
            reply = litellm.stream_chunk_builder([chunk async for chunk in reply], messages=messages)
        said = reply.choices[0].message
        if not said.tool_calls:
            return said.content or ""
        messages.append(said.model_dump(exclude_none=True))
        for call in said.tool_calls:
            result = task.write_file(**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})


AGENTS = {name: partial(ask, name) for name in PREFIXES}

if __name__ == "__main__":
    run(AGENTS)
