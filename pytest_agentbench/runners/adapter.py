"""A user's own callable as a runner."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.records import Case
from pytest_agentbench.runners.base import RunContext, Runner

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def adapt(agent: Callable[..., Any]) -> Runner:
    """Make a runner of a callable that takes `(case)` or `(case, context)`; its signature is looked at once, here.

    A coroutine function is awaited on the engine's loop, a plain one runs in a thread (`context.in_thread`). What it
    returns and raises goes through unchanged. A second parameter gets the context if it is named `context` or has no
    default. Raises ConfigError for what cannot be called so.
    """
    if not callable(agent):
        raise ConfigError(f"agentbench_runner: found {type(agent).__name__}, expected a callable; {_EXPECTED}")
    call = _with_context(agent)
    if _is_async(agent):
        return call

    async def in_thread(case: Case, context: RunContext) -> Any:
        result = await context.in_thread(partial(call, case, context))
        return await result if inspect.isawaitable(result) else result

    return in_thread


_EXPECTED = "an agent takes (case) or (case, context)"


def _with_context(agent: Callable[..., Any]) -> Callable[[Case, RunContext], Any]:
    """The callable, called with both arguments and passing on those that it takes."""
    try:
        parameters = list(inspect.signature(agent).parameters.values())
    except (TypeError, ValueError):  # builtins that do not tell
        return lambda case, context: agent(case)
    positional = [parameter for parameter in parameters if parameter.kind in _POSITIONAL]
    keywords = [parameter for parameter in parameters if parameter.kind is inspect.Parameter.KEYWORD_ONLY]
    takes_any = any(parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in parameters)
    required = [parameter.name for parameter in positional[2:] + keywords if _is_required(parameter)]
    if (not positional and not takes_any) or set(required) - {"context"}:
        name = getattr(agent, "__name__", type(agent).__name__)
        raise ConfigError(f"agentbench_runner: found {name}{inspect.signature(agent)}; {_EXPECTED}")
    if len(positional) > 1 and (_is_required(positional[1]) or positional[1].name == "context"):
        return agent
    if any(parameter.name == "context" for parameter in positional[2:] + keywords):
        return lambda case, context: agent(case, context=context)
    return lambda case, context: agent(case)


def _is_required(parameter: inspect.Parameter) -> bool:
    return parameter.default is inspect.Parameter.empty


def _is_async(agent: Callable[..., Any]) -> bool:
    while isinstance(agent, partial):
        agent = agent.func
    return inspect.iscoroutinefunction(agent) or inspect.iscoroutinefunction(type(agent).__call__)
