"""JSON that a model writes: read from its reply and validated, or a text that says what is wrong with it."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from pytest_agentbench.errors import AgentbenchError

MAX_PROBLEMS = 12
MAX_LEVELS = 64
"""How deep a reply may nest: much deeper, and nothing that it becomes part of can be written any more."""
# Fences stand at the ends of lines, so that a text inside of the JSON may quote code.
_FENCED = re.compile(r"^[ \t]*```[A-Za-z]*\s(.*?)```[ \t\r]*$", re.DOTALL | re.MULTILINE)
_THOUGHTS = re.compile(r"\A\s*<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL)
_MAX_BRACES = 1000

P = TypeVar("P", bound="ReplyPart")


class InvalidReply(AgentbenchError):
    """A reply outside its contract; the text lists what is wrong, a line for each, as the model is told it."""

    @property
    def problems(self) -> list[str]:
        """The lines without their marks."""
        return [line.removeprefix("- ") for line in str(self).splitlines()]


class ReplyPart(BaseModel):
    """What a reply is made of; other keys are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


def read_json(text: str, form: type[P]) -> P:
    """The JSON object in a reply, alone or in the reply's only code fence, as a `form`.

    Raises InvalidReply with everything that is wrong with it.
    """
    return as_form(json_object(text), form)


def as_form(found: Mapping[str, Any], form: type[P]) -> P:
    """A JSON object as a `form`. Raises InvalidReply with everything that is wrong with it."""
    try:
        return form.model_validate(found)
    except ValidationError as error:
        raise invalid([_problem(each) for each in error.errors(include_url=False)]) from error


def json_object(text: str, embedded_keys: Collection[str] = ()) -> dict[str, Any]:
    """The JSON object in a reply, alone or in the reply's only code fence. Raises InvalidReply.

    With `embedded_keys` it may stand in other text too, where that has one object alone with any of these keys.
    """
    body = _THOUGHTS.sub("", text).strip()
    if not body:
        raise InvalidReply("- the reply is empty")
    try:
        return _only_object(body)
    except InvalidReply:
        found = [each for each in _embedded(body) if not each.keys().isdisjoint(embedded_keys)] if embedded_keys else []
        if not found:
            raise
    if len(found) > 1:
        raise InvalidReply(f"- the reply has {len(found)} JSON objects, so it is not clear which one counts")
    return found[0]


def invalid(problems: Sequence[str]) -> InvalidReply:
    """What to raise for a reply with these problems."""
    shown = [f"- {problem}" for problem in problems[:MAX_PROBLEMS]]
    if len(problems) > MAX_PROBLEMS:
        shown.append(f"- and {len(problems) - MAX_PROBLEMS} more")
    return InvalidReply("\n".join(shown))


def _only_object(body: str) -> dict[str, Any]:
    fenced = _FENCED.findall(body)
    if len(fenced) > 1:
        raise InvalidReply("- the reply has several code blocks, so it is not clear which one counts")
    try:
        found = _storable(json.loads(fenced[0] if fenced and not body.startswith("{") else body))
    except (ValueError, RecursionError) as error:
        raise InvalidReply(f"- the reply is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise InvalidReply(f"- the reply is a JSON {type(found).__name__}, expected an object")
    if _levels(found) > MAX_LEVELS:
        raise InvalidReply(f"- the reply nests deeper than {MAX_LEVELS} levels")
    return found


def _embedded(body: str) -> Iterator[dict[str, Any]]:
    """The JSON objects that stand in a text, none of them within another."""
    decoder, at = json.JSONDecoder(), body.find("{")
    for _ in range(_MAX_BRACES):
        if at < 0:
            return
        try:
            found, end = decoder.raw_decode(body, at)
            found = _storable(found)
        except (ValueError, RecursionError):
            end = at + 1
        else:
            if _levels(found) <= MAX_LEVELS:
                yield found
        at = body.find("{", end)


def _storable(found: Any) -> Any:
    """Without escaped lone surrogates, which cannot be written to a file."""
    return json.loads(json.dumps(found, ensure_ascii=False).encode("utf-8", "replace"))


def _levels(found: Any) -> int:
    """How deep it nests: 1 for what holds no list and no object."""
    levels, inner = 0, [found]
    while inner:
        levels += 1
        values = (each.values() if isinstance(each, dict) else each for each in inner)
        inner = [value for holder in values for value in holder if isinstance(value, dict | list)]
    return levels


def _problem(error: Mapping[str, Any]) -> str:
    where = ".".join(map(str, error["loc"]))
    if error["type"] == "missing":
        return f"{where}: missing"
    found = json.dumps(error["input"], default=str)
    found = found if len(found) <= 80 else f"{found[:80]}..."
    return f"{where}: found {found}; {error['msg'][:1].lower()}{error['msg'][1:]}"
