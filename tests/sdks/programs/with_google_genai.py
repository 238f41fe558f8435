"""An agent with Google's SDK, which calls functions itself."""

from __future__ import annotations

from typing import Any

from google import genai
from task import Task, run


async def gemini(task: Task) -> str:
    where = task.where(key="api_key")
    client = genai.Client(**({"http_options": {"base_url": where.pop("base_url")}, **where} if where else {}))
    asked: dict[str, Any] = {"model": task.model, "contents": task.message, "config": {"tools": [task.write_file]}}
    async with client.aio as models:
        if not task.stream:
            return (await models.models.generate_content(**asked)).text or ""
        stream = await models.models.generate_content_stream(**asked)
        return "".join([event.text or "" async for event in stream])


AGENTS = {"gemini": gemini}

if __name__ == "__main__":
    run(AGENTS)
