"""An agent with Instructor: a reply in a form is a call of a tool, whose result the next request shows."""

from __future__ import annotations

from typing import Any

import instructor
from openai import AsyncOpenAI
from pydantic import BaseModel
from task import Task, run


class write_file(BaseModel):
    """Write a file. The name of the class is the tool's."""

    path: str
    content: str


async def chat(task: Task) -> str:
    plain = AsyncOpenAI(**task.where("/v1"))
    messages: list[Any] = [{"role": "user", "content": task.message}]
    client = instructor.from_openai(plain)
    file, reply = await client.create_with_completion(model=task.model, messages=messages, response_model=write_file)
    message = reply.choices[0].message
    result = task.write_file(file.path, file.content)
    messages.append(message.model_dump(exclude_none=True))
    messages.append({"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": result})
    if not task.stream:
        last = await plain.chat.completions.create(model=task.model, messages=messages)
        return last.choices[0].message.content or ""
    chunks = await plain.chat.completions.create(model=task.model, messages=messages, stream=True)
    return "".join([chunk.choices[0].delta.content or "" async for chunk in chunks if chunk.choices])


AGENTS = {"chat": chat}

if __name__ == "__main__":
    run(AGENTS)
