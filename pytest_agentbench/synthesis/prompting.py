"""Requests to the model, put together. Whatever others wrote stands in delimited blocks."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from pytest_agentbench.models import Block, boundary_of, clipped, rendered
from pytest_agentbench.synthesis.base import Catalogue, Language, Reason
from pytest_agentbench.synthesis.chinese import CHINESE
from pytest_agentbench.synthesis.english import ENGLISH
from pytest_agentbench.synthesis.wording import Wording
from pytest_agentbench.tools.mcp import ServerTool

WORDINGS: Mapping[Language, Wording] = {"en": ENGLISH, "zh": CHINESE}
"""The prompts, by the language of the tasks."""

_MOST_OF_TOOLS = 200_000
"""Characters of all tools of a request, some 50,000 tokens."""
_LEAST_OF_TOOL = 100
_SLOT = re.compile(r"^\{(\w+)\}$", re.MULTILINE)

Filling = Sequence[str | Block]
"""What comes in a slot: our own words, and material of others."""


def request(wording: Wording, template: str, fillings: Mapping[str, Filling]) -> list[dict[str, str]]:
    """The messages of a request: the template with its slots filled, each on lines of its own."""
    parts: list[str | Block] = []
    for at, piece in enumerate(_SLOT.split(template)):
        if at % 2:
            parts += fillings[piece]
        elif own := piece.removeprefix("\n").removesuffix("\n"):
            parts.append(own)
    boundary = boundary_of(parts)
    return [
        {"role": "system", "content": wording.system.replace("{boundary}", boundary)},
        {"role": "user", "content": rendered(parts, boundary)},
    ]


def tools_block(catalogues: Sequence[Catalogue]) -> Block:
    """All tools of the servers: id, description, and the JSON Schema of the arguments.

    Where they are too long together, the longest descriptions and schemas are cut until they are not.
    """
    tools = [tool for catalogue in catalogues for tool in catalogue.tools]
    limit = _MOST_OF_TOOLS
    text = _told(tools, limit)
    while len(text) > _MOST_OF_TOOLS and limit > _LEAST_OF_TOOL:
        limit //= 2
        text = _told(tools, limit)
    return Block("tools", text)


def _told(tools: Sequence[ServerTool], limit: int) -> str:
    return "\n\n".join(
        f"{tool.tool_id}\n{clipped(tool.description.strip(), limit)}\n"
        f"arguments: {clipped(json.dumps(tool.input_schema, ensure_ascii=False), limit)}"
        for tool in tools
    )


def problems_block(problems: Sequence[Reason]) -> Block:
    """What was wrong with former drafts, which the reasons quote."""
    return Block("reasons", "\n".join(f"- {problem}" for problem in problems))
