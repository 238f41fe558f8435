"""The tool that answers calls with the results that a case defines."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pytest_agentbench.bounded.patterns import search_pattern
from pytest_agentbench.config.canned_tools import CannedResult, CannedTool
from pytest_agentbench.tools.base import Tool, ToolContext, ToolOutput

PATTERN_SECONDS = 1.0
"""Seconds that the search for one pattern may take."""


def make_canned_tool(canned: CannedTool) -> Tool:
    """Return the tool that answers as `canned` defines. It changes nothing, so its calls may run concurrently."""

    async def call(arguments: dict[str, Any], context: ToolContext) -> Any:
        if canned.error is not None:
            return ToolOutput(f"error: {canned.error}", is_error=True)
        for result in canned.results:
            if _matches(result, arguments):
                return "null" if result.value is None else result.value
        text = f"error: {canned.name}: no 'when' of this tool matches the arguments {_as_text(arguments)}"
        return ToolOutput(text, is_error=True, refused=True)

    return Tool(canned.name, canned.description, canned.parameters, call, reads_only=True)


def _matches(result: CannedResult, arguments: Mapping[str, Any]) -> bool:
    return all(
        name in arguments and _is_found(pattern, _as_text(arguments[name])) for name, pattern in result.when.items()
    )


def _is_found(pattern: str, text: str) -> bool:
    try:
        return search_pattern(pattern, text, PATTERN_SECONDS) is not None
    except TimeoutError:
        reason = f"the pattern {pattern[:60]!r} takes over {PATTERN_SECONDS:g} s; write one that backtracks less"
        raise ValueError(reason) from None


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)
