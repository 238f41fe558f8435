"""Agents with Pydantic AI, which names models by their makers."""

from __future__ import annotations

from functools import partial
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.google import GoogleModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.google import GoogleProvider
from pydantic_ai.providers.openai import OpenAIProvider
from task import Task, run

MADE: dict[str, tuple[str, Any, Any, str]] = {
    "chat": ("openai-chat", OpenAIChatModel, OpenAIProvider, "/v1"),
    "responses": ("openai", OpenAIResponsesModel, OpenAIProvider, "/v1"),
    "messages": ("anthropic", AnthropicModel, AnthropicProvider, ""),
    "gemini": ("google", GoogleModel, GoogleProvider, ""),
}


async def ask(name: str, task: Task) -> str:
    prefix, model, provider, path = MADE[name]
    where = task.where(path)
    agent = Agent(
        model(task.model, provider=provider(**where)) if where else f"{prefix}:{task.model}", tools=[task.write_file]
    )
    if not task.stream:
        return (await agent.run(task.message)).output
    async with agent.run_stream(task.message) as stream:
        return await stream.get_output()


AGENTS = {name: partial(ask, name) for name in MADE}

if __name__ == "__main__":
    run(AGENTS)
