"""Define what a gateway knows of the agent that asks it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

from pytest_agentbench.models.messages import ToolCall
from pytest_agentbench.models.tape import map_texts

Where = Literal["any", "system", "user", "assistant", "tool"]


class Volatile(NamedTuple):
    """Name what an agent writes that is another one in each run, and what stands for it where requests are compared.

    `where` is the role of the messages that have it, `any` stands for all of the request.
    """

    where: Where
    pattern: re.Pattern[str]
    stands_for: str


class Helper(NamedTuple):
    """A request of the agent's own, such as for a title, told by its system text; `reply` is the answer of a script."""

    system_matches: re.Pattern[str]
    reply: str


def call_as_made(call: ToolCall) -> tuple[str, dict[str, Any] | None]:
    """Return the tool of a call and its arguments, as the model made it."""
    return call.name, call.arguments


@dataclass(frozen=True, slots=True)
class GatewayPolicy:
    """Hold an agent's peculiarities. The defaults are those of a program that has none.

    It asks in `dialects`, where it says so. `names` are further names of the run's model; with `pin: rewrite` any
    name stands for it. `server_tools` says what becomes of tools that a provider would run; they pass only where
    the whole request does. `volatile` is what cassettes do not compare. `internal` begins user messages that are
    the agent's own and no words of the case. `helpers` get canned replies from scripts. `is_error(content, tool)`
    tells results of tools that failed, `unwrap(call)` the tool that a call is for and its arguments. An outage is
    told with the status `outage_status`: one that the agent does not ask again after. Requests go as they are to an
    endpoint that speaks their dialect, unless `passes` says otherwise, and are translated for any other, unless
    `translates` does.
    """

    names: tuple[str, ...] = ()
    dialects: tuple[str, ...] = ()
    pin: Literal["refuse", "rewrite"] = "refuse"
    server_tools: Literal["refuse", "remove", "pass"] = "refuse"
    volatile: tuple[Volatile, ...] = ()
    internal: tuple[str, ...] = ()
    helpers: tuple[Helper, ...] = ()
    is_error: Callable[[str, str], bool] = lambda content, tool: False
    unwrap: Callable[[ToolCall], tuple[str, dict[str, Any] | None]] = call_as_made
    outage_status: int = 400
    passes: bool = True
    translates: bool = True

    def make_alike(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the request, in the form of Chat Completions, as it is compared with those of other runs."""
        for where, pattern, stands_for in self.volatile:
            settle = partial(pattern.sub, stands_for)
            if where == "any":
                request = map_texts(request, settle)
            else:
                messages = [
                    map_texts(each, settle) if each.get("role") == where else each for each in request["messages"]
                ]
                request = {**request, "messages": messages}
        return request
