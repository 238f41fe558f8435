"""Which servers calculate: the fuzzy text of their tasks keeps every number (seed 004, 4.2)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pytest_agentbench.synthesis.base import Catalogue

_SUBJECT = re.compile(
    r"(?i)calculat|comput(?:e|ation|ing)|arithmetic|math|algebra|statistic|numeric|engineering|physics|"
    r"unit\w*[\s_-]+conver|conver(?:sion|ter)|计算|数学|换算|统计|工程"
)
_NUMBERS = ("number", "integer")
_FEWEST = 2
"""How many tools have to require numbers: a single one may only be counting."""


def calculates(catalogue: Catalogue, category: str | None) -> bool:
    """Whether its category says so; without one its name, or most of its tools, which then require numbers."""
    if category is not None:
        return _SUBJECT.search(category) is not None
    if _SUBJECT.search(catalogue.server):
        return True
    asking = sum(_requires_numbers(tool.input_schema) for tool in catalogue.tools)
    return asking >= _FEWEST and asking * 2 > len(catalogue.tools)


def _requires_numbers(schema: Mapping[str, Any]) -> bool:
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, Mapping) or not isinstance(required, list):
        return False
    return any(_is_numeric(properties.get(name)) for name in required if isinstance(name, str))


def _is_numeric(schema: Any) -> bool:
    """A number, or a list of numbers."""
    if not isinstance(schema, Mapping):
        return False
    return schema.get("type") in _NUMBERS or (schema.get("type") == "array" and _is_numeric(schema.get("items")))
