"""What a planner must reply, and what a reply is worth: a plan, or a text that says what is wrong with it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, StrictBool

from pytest_agentbench.models import ReplyPart, as_form, json_object

MAX_CALLS = 200
"""How many calls a plan may hold; the paper's most eager model makes 155 in a whole task."""

_BOOLEANS = {"true": True, "false": False}


def _finite(parameters: dict[str, Any]) -> dict[str, Any]:
    json.dumps(parameters, allow_nan=False)
    return parameters


def _as_boolean(given: object) -> object:
    return _BOOLEANS.get(given.strip().lower(), given) if isinstance(given, str) else given


class PlannedCall(ReplyPart):
    """A call as the planner wrote it: the tool's name, and its arguments, empty where none are given."""

    tool: Annotated[str, Field(min_length=1)]
    parameters: Annotated[
        dict[str, Any], AfterValidator(_finite), BeforeValidator(lambda given: {} if given is None else given)
    ] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Plan:
    """What the planner decided. Without `calls` planning ends."""

    reasoning: str
    calls: tuple[PlannedCall, ...]


def parse_plan(text: str) -> Plan:
    """The plan in a planner's reply: a JSON object, alone, in the only code fence, or the only plan in other text.

    Where `should_continue` is false, also as a text, the tools beside it are not even looked at. Raises InvalidReply
    with everything that is wrong.
    """
    found = json_object(text, embedded_keys=("should_continue", "planned_tools"))
    decision = as_form(found, _Decision)
    calls = tuple(as_form(found, _Calls).planned_tools) if decision.should_continue else ()
    return Plan(decision.reasoning, calls)


class _Decision(ReplyPart):
    should_continue: Annotated[StrictBool, BeforeValidator(_as_boolean)]
    reasoning: Annotated[str, BeforeValidator(lambda given: "" if given is None else given)] = ""


class _Calls(ReplyPart):
    planned_tools: Annotated[list[PlannedCall], Field(max_length=MAX_CALLS)]
