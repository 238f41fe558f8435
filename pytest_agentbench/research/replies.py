"""Forms of replies that several stages share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from pytest_agentbench.models import InvalidReply, ReplyPart, as_form, invalid, json_object

P = TypeVar("P", bound=ReplyPart)

TEXT: dict[str, Any] = {"type": "string"}
NUMBER: dict[str, Any] = {"type": "number"}


def exactly(**properties: dict[str, Any]) -> dict[str, Any]:
    """The JSON Schema of an object with these properties and no others."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def listed(**properties: dict[str, Any]) -> dict[str, Any]:
    """The JSON Schema of a list of such objects."""
    return {"type": "array", "items": exactly(**properties)}


def parts(text: str, names: Iterable[str], form: type[P]) -> dict[str, P]:
    """The reply's object of each name, as a `form`. Raises InvalidReply with all that is wrong with any of them."""
    found = json_object(text)
    read: dict[str, P] = {}
    problems: list[str] = []
    for name in names:
        if not isinstance(found.get(name), dict):
            problems.append(f"{name}: missing, expected an object with reason and score")
            continue
        try:
            read[name] = as_form(found[name], form)
        except InvalidReply as error:
            problems += [f"{name}.{problem}" for problem in error.problems]
    if problems:
        raise invalid(problems)
    return read
