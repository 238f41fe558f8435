"""Agents with OpenAI's SDK."""

from __future__ import annotations

import json
from typing import Any

from openai import AsyncOpenAI
from task import PARAMETERS, Task, run

FUNCTION = {"name": "write_file", "parameters": PARAMETERS, "strict": True}


async def chat(task: Task) -> str:
    messages: list[Any] = [{"role": "user", "content": task.message}]
    tools: list[Any] = [{"type": "function", "function": FUNCTION}]
    async with AsyncOpenAI(**task.where("/v1")) as client:
        while True:
            asked: dict[str, Any] = {"model": task.model, "messages": messages, "tools": tools}
            if task.stream:
                async with client.chat.completions.stream(**asked) as stream:
                    reply = await stream.get_final_completion()
            else:
                reply = await client.chat.completions.create(**asked)
            said = reply.choices[0].message
            if not said.tool_calls:
                return said.content or ""
            messages.append(said.model_dump(exclude={"parsed"}, exclude_none=True))
            for call in said.tool_calls:
                result = task.write_file(**json.loads(call.function.arguments))
                messages.append({"role": "tool", "tool_call_id": call.id, "content": result})


async def responses(task: Task) -> str:
    items: list[Any] = [{"role": "user", "content": task.message}]
    tools: list[Any] = [{"type": "function", **FUNCTION}]
    async with AsyncOpenAI(**task.where("/v1")) as client:
        while True:
            asked: dict[str, Any] = {"model": task.model, "input": items, "tools": tools}
            if task.stream:
                async with client.responses.stream(**asked) as stream:
                    reply = await stream.get_final_response()
            else:
                reply = await client.responses.create(**asked)
            calls = [item for item in reply.output if item.type == "function_call"]
            if not calls:
                return reply.output_text
            items += [item.to_dict() for item in reply.output]
            for call in calls:
                result = task.write_file(**json.loads(call.arguments))
                items.append({"type": "function_call_output", "call_id": call.call_id, "output": result})


AGENTS = {"chat": chat, "responses": responses}

if __name__ == "__main__":
    run(AGENTS)
