"""What a server says of itself, and what a call of one of its tools comes to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pytest_agentbench.records import Record


class ServerTool(Record):
    """A tool as its server describes it. `input_schema` is the JSON Schema of its arguments, as it came."""

    server: str
    name: str
    description: str = ""
    input_schema: dict[str, Any]

    @property
    def tool_id(self) -> str:
        """`Server:tool`, by which cases, traces and reports call it."""
        return f"{self.server}:{self.name}"


class Listing(Record):
    """The tools of one server, in its order, and the version that it gives of itself."""

    server_name: str
    server_version: str
    tools: tuple[ServerTool, ...]


@dataclass(frozen=True, slots=True)
class CallResult:
    """What a call came to, as text for a model to read. `is_error` is the server's own flag."""

    text: str
    is_error: bool = False
