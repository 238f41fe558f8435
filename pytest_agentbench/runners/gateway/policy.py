"""Properties of agents that a gateway has to know."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

from pytest_agentbench.models.messages import ToolCall
from pytest_agentbench.models.tape import map_texts
from pytest_agentbench.records.case import ApiName
from pytest_agentbench.terminal_text import count_text

Where = Literal["any", "system", "user", "assistant", "tool"]

API_TITLES: Mapping[ApiName, str] = {
    "chat": "Chat Completions",
    "responses": "OpenAI Responses",
    "messages": "Anthropic Messages",
    "gemini": "Google generateContent",
}


def describe_apis(asked: Mapping[tuple[ApiName, str], int]) -> str:
    """Return the APIs that an agent asked in, each with a place such as `POST /v1/responses`, and how often."""
    return " and ".join(
        f"{API_TITLES[api]} ({place}, {count_text(count, 'time')})" for (api, place), count in asked.items()
    )


class Volatile(NamedTuple):
    """A pattern of text that differs in each run, and its replacement when requests are compared.

    `where` is the role of the messages that contain it; `any` means the whole request.
    """

    where: Where
    pattern: re.Pattern[str]
    stands_for: str


class Helper(NamedTuple):
    """An internal request of an agent, such as for a title, and its canned reply. Its system text matches the
    pattern.
    """

    system_matches: re.Pattern[str]
    reply: str


def call_as_made(call: ToolCall) -> tuple[str, dict[str, Any] | None]:
    """Return the name and the arguments of a call, unchanged."""
    return call.name, call.arguments


@dataclass(frozen=True, slots=True)
class GatewayPolicy:
    """Peculiarities of an agent. The defaults suit a program without any.

    Fields:

    - `names`: further names of the run's model. With `pin: rewrite` every name is accepted.
    - `dialects`: the APIs that the agent uses; empty: all.
    - `server_tools`: the treatment of tools that a provider would run. They pass only if the whole request passes.
    - `volatile`: texts that cassettes ignore when they compare requests.
    - `internal`: prefixes of user messages that the agent writes, so they contain no words of the case.
    - `helpers`: internal requests with canned replies, for scripted models.
    - `is_error(content, tool)`: whether a tool's result is an error.
    - `observe(messages, tools)`: called with each request before it is sent, or None.
    - `unwrap(call)`: the tool that a call is for, and its arguments.
    - `outage_status`: HTTP status after an outage. The agent must not retry after it.
    - `passes`: whether requests are forwarded unchanged to an endpoint that serves their API.
    - `translates`: whether requests are translated for other endpoints.
    """

    names: tuple[str, ...] = ()
    dialects: tuple[str, ...] = ()
    pin: Literal["refuse", "rewrite"] = "refuse"
    server_tools: Literal["refuse", "remove", "pass"] = "refuse"
    volatile: tuple[Volatile, ...] = ()
    internal: tuple[str, ...] = ()
    helpers: tuple[Helper, ...] = ()
    is_error: Callable[[str, str], bool] = lambda content, tool: False
    observe: Callable[[Sequence[Mapping[str, Any]], Sequence[Mapping[str, Any]]], None] | None = None
    unwrap: Callable[[ToolCall], tuple[str, dict[str, Any] | None]] = call_as_made
    outage_status: int = 400
    passes: bool = True
    translates: bool = True

    def make_alike(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the request, in the form of Chat Completions, without texts that differ in each run."""
        for where, pattern, stands_for in self.volatile:
            settle = partial(pattern.sub, stands_for)
            if where == "any":
                request = map_texts(request, settle)
            else:
                messages = list(request["messages"])
                for number, message in enumerate(messages):
                    if message.get("role") == where:
                        messages[number] = map_texts(message, settle)
                request = {**request, "messages": messages}
        return request

    def drop_moments(self, request: dict[str, Any], texts: Sequence[str]) -> dict[str, Any]:
        """Return the request as `make_alike` does, also without dates and times of day.

        Those in `texts`, the case's own, stay: a case with another date is another case.
        """
        own = {found[0] for text in texts for pattern, _ in _MOMENTS for found in pattern.finditer(text)}
        return {**map_texts(self.make_alike(request), partial(_drop_moments, own))}


def _drop_moments(own: Collection[str], text: str) -> str:
    for pattern, stands_for in _MOMENTS:
        text = pattern.sub(partial(_replace_foreign, own, stands_for), text)
    return text


def _replace_foreign(own: Collection[str], stands_for: str, found: re.Match[str]) -> str:
    if found[0] in own:
        return found[0]
    return stands_for


_MONTH = r"(?:Jan|Feb|Mar|Apr|May|June?|July?|Aug|Sept?|Oct|Nov|Dec)[a-z]*\.?"
_DAY = r"(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*,?\s+)?"
_CLOCK = r"\d{1,2}:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?:\s?[AaPp]\.?[Mm]\b\.?)?"
_ZONE = r"(?:\s?(?:Z|UTC|GMT|[+-]\d\d:?\d\d)(?!\w))?"
_MOMENTS = tuple(
    (re.compile(rf"(?<![\w.-]){pattern}(?![\w-])"), stands_for)
    for pattern, stands_for in (
        (rf"{_DAY}\d{{4}}-\d\d-\d\d(?:[T ]{_CLOCK}{_ZONE})?", "[date]"),
        (rf"{_DAY}{_MONTH}\s+\d{{1,2}}(?:st|nd|rd|th)?,?\s+{_CLOCK}{_ZONE}(?:\s+[A-Z]{{3,4}})?\s+\d{{4}}", "[date]"),
        (rf"{_DAY}{_MONTH}\s+\d{{1,2}}(?:st|nd|rd|th)?,?\s+(?:\d{{4}}|{_CLOCK})", "[date]"),
        (rf"{_DAY}\d{{1,2}}(?:st|nd|rd|th)?\s+{_MONTH},?\s+\d{{4}}", "[date]"),
        (rf"{_DAY}\d{{1,2}}([/.])\d{{1,2}}\1\d{{4}}|{_DAY}\d{{4}}/\d\d/\d\d", "[date]"),
        (rf"\d{{1,2}}:\d\d:\d\d(?:[.,]\d{{1,9}})?(?:\s?[AaPp][Mm]\b)?{_ZONE}", "[time]"),
        (r"\d{1,2}:\d\d\s?[AaPp][Mm]", "[time]"),
    )
)
"""Dates and times as agents write them into prompts. Years alone and `12:30` without seconds stay."""
