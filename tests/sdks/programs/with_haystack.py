"""Agents with Haystack."""

from __future__ import annotations

import os
from typing import Any

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"

from haystack.components.agents import Agent
from haystack.components.generators.chat import OpenAIChatGenerator, OpenAIResponsesChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import Tool
from haystack.utils import Secret
from task import PARAMETERS, Task, run


async def chat(task: Task, *, generator: Any = OpenAIChatGenerator) -> str:
    where = task.where("/v1", url="api_base_url")
    if where:
        where["api_key"] = Secret.from_token(where["api_key"])
    tool = Tool(name="write_file", description="Write a file.", parameters=PARAMETERS, function=task.write_file)
    agent = Agent(chat_generator=generator(model=task.model, **where), tools=[tool])

    async def ignore(chunk: Any) -> None:
        pass

    callback = ignore if task.stream else None
    result = await agent.run_async([ChatMessage.from_user(task.message)], streaming_callback=callback)
    return str(result["last_message"].text)


async def responses(task: Task) -> str:
    return await chat(task, generator=OpenAIResponsesChatGenerator)


AGENTS = {"chat": chat, "responses": responses}

if __name__ == "__main__":
    run(AGENTS)
