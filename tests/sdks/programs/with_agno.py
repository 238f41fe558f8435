"""Agents with Agno."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

from agno.agent import Agent
from agno.models.anthropic import Claude
from agno.models.google import Gemini
from agno.models.openai import OpenAIChat, OpenAIResponses
from task import Task, run


def make_model(name: str, task: Task) -> Any:
    if name == "messages":
        # It takes both keys from the variables, and its client accepts one
        os.environ.pop("ANTHROPIC_AUTH_TOKEN", None)
        where = task.where()
        return Claude(id=task.model, **({"api_key": where["api_key"], "client_params": where} if where else {}))
    if name == "gemini":
        options = {"http_options": {"base_url": task.base}}
        return Gemini(id=task.model, **({"api_key": task.key, "client_params": options} if task.base else {}))
    return {"chat": OpenAIChat, "responses": OpenAIResponses}[name](id=task.model, **task.where("/v1"))


async def ask(name: str, task: Task) -> str:
    # Its telemetry goes to api.agno.com with any base URL
    agent = Agent(model=make_model(name, task), tools=[task.write_file], telemetry=False)
    if not task.stream:
        return str((await agent.arun(task.message)).content)
    return "".join([getattr(event, "content", None) or "" async for event in agent.arun(task.message, stream=True)])


AGENTS = {name: partial(ask, name) for name in ("chat", "responses", "messages", "gemini")}

if __name__ == "__main__":
    run(AGENTS)
