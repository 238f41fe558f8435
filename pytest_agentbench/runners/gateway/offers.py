"""Read the tools that a request offers, and describe them in messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_agentbench.models.apis.base import Asked
from pytest_agentbench.models.json_values import as_object

_MOST_SHOWN = 20
"""Maximum tools that a message lists."""


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A tool of a request: its name, and its arguments by the schema. `properties` is empty if the schema has none."""

    name: str
    required: tuple[str, ...]
    properties: tuple[str, ...]

    def describe(self) -> str:
        """Return the name with the required arguments, or with all if none is required: `bash{command}`."""
        return f"{self.name}{{{', '.join(self.required or self.properties)}}}"

    def find_problem(self, arguments: Mapping[str, Any]) -> str | None:
        """Return how the names of arguments differ from the schema's, or None."""
        missing = [name for name in self.required if name not in arguments]
        unknown = [name for name in arguments if self.properties and name not in self.properties]
        if unknown:
            problem = f"has {_quote(unknown)}"
        elif missing:
            problem = f"lacks {_quote(missing)}"
        else:
            return None
        if self.required:
            return f"{problem}; {self.name} requires {_quote(self.required)}"
        return f"{problem}; {self.name} takes {_quote(self.properties)}"


def read_offer(tools: Sequence[Mapping[str, Any]]) -> dict[str, OfferedTool]:
    """Return the tools of a request in the form of Chat Completions, by name."""
    offer = {}
    for tool in tools:
        function = as_object(tool.get("function"))
        schema = as_object(function.get("parameters"))
        required = schema.get("required")
        names = tuple(map(str, required)) if isinstance(required, list) else ()
        name = str(function.get("name"))
        offer[name] = OfferedTool(name, names, tuple(map(str, as_object(schema.get("properties")))))
    return offer


def list_offered_names(asked: Asked) -> frozenset[str]:
    """Return all names by which a model may call the tools of a request."""
    return frozenset({tool["function"]["name"] for tool in asked.tools} | {tool.name for tool in asked.names.values()})


def describe_offer(offer: Mapping[str, OfferedTool]) -> str:
    """Return the tools for a message: `bash{command}, write{filePath, content}`."""
    shown = [tool.describe() for tool in offer.values()]
    if len(shown) > _MOST_SHOWN:
        shown[_MOST_SHOWN:] = [f"and {len(shown) - _MOST_SHOWN} more"]
    return ", ".join(shown) or "none"


def _quote(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))
