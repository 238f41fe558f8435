"""Properties of agents that a gateway has to know."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

from pytest_agentbench.models.messages import ToolCall
from pytest_agentbench.models.tape import map_texts

Where = Literal["any", "system", "user", "assistant", "tool"]


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
