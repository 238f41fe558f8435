"""An agent with Anthropic's SDK."""

from __future__ import annotations

from typing import Any

from anthropic import AsyncAnthropic
from task import PARAMETERS, Task, run


async def messages(task: Task) -> str:
    said: list[Any] = [{"role": "user", "content": task.message}]
    tools: list[Any] = [{"name": "write_file", "input_schema": PARAMETERS}]
    async with AsyncAnthropic(**task.where()) as client:
        while True:
            asked: dict[str, Any] = {"model": task.model, "max_tokens": 500, "messages": said, "tools": tools}
            if task.stream:
                async with client.messages.stream(**asked) as stream:
                    reply = await stream.get_final_message()
            else:
                reply = await client.messages.create(**asked)
            calls = [block for block in reply.content if block.type == "tool_use"]
            if not calls:
                return "".join(block.text for block in reply.content if block.type == "text")
            results = [
                {"type": "tool_result", "tool_use_id": call.id, "content": task.write_file(**call.input)}
                for call in calls
            ]
            said += [{"role": "assistant", "content": reply.content}, {"role": "user", "content": results}]


AGENTS = {"messages": messages}

if __name__ == "__main__":
    run(AGENTS)
