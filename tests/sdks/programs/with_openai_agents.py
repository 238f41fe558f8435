"""Agents with OpenAI's Agents SDK."""

from __future__ import annotations

from agents import Agent, OpenAIProvider, RunConfig, Runner, function_tool
from task import Task, run


async def responses(task: Task, *, use_responses: bool = True) -> str:
    agent = Agent(name="writer", model=task.model, tools=[function_tool(task.write_file)])
    provider = OpenAIProvider(use_responses=use_responses, **task.where("/v1"))
    # The gateway's variables have it off as well
    config = RunConfig(model_provider=provider, tracing_disabled=task.base is not None)
    if not task.stream:
        return str((await Runner.run(agent, task.message, run_config=config)).final_output)
    result = Runner.run_streamed(agent, task.message, run_config=config)
    async for _ in result.stream_events():
        pass
    return str(result.final_output)


async def chat(task: Task) -> str:
    return await responses(task, use_responses=False)


AGENTS = {"chat": chat, "responses": responses}

if __name__ == "__main__":
    run(AGENTS)
