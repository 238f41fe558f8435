"""What the agents here share: the task, where their model is asked, and the tool that they have."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PARAMETERS = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "content": {"type": "string"}},
    "required": ["path", "content"],
    "additionalProperties": False,
}


@dataclass(frozen=True)
class Task:
    """What is asked. `base` and `key` are where, and None for a client that finds that by its variables."""

    message: str
    model: str
    stream: bool
    base: str | None = None
    key: str | None = None
    folder: Path = Path()

    def where(self, path: str = "", *, url: str = "base_url", key: str = "api_key") -> dict[str, Any]:
        """Return the client's arguments; none where it takes variables."""
        return {} if self.base is None else {url: self.base + path, key: self.key}

    def write_file(self, path: str, content: str) -> str:
        """Write a file."""
        (self.folder / path).write_text(content)
        return "written"


AgentProgram = Callable[[Task], Awaitable[str]]


def run(agents: Mapping[str, AgentProgram]) -> None:
    """Ask the agent that the command line names: AGENT whole|stream MESSAGE MODEL [BASE KEY]."""
    agent, how, message, model, *where = sys.argv[1:]
    print(asyncio.run(agents[agent](Task(message, model, how == "stream", *where))))
