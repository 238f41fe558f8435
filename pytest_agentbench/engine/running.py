"""Run a runner from start to end, with its time limit, its cassette, and a gateway if the agent asks for one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from pytest_agentbench.config.profiles import RunProfile
from pytest_agentbench.engine.attempt import RunPlan
from pytest_agentbench.engine.services import Services
from pytest_agentbench.errors import ProviderError
from pytest_agentbench.records.case import Model
from pytest_agentbench.runners.base import (
    RUN,
    OpenGateway,
    RunContext,
    RunEnd,
    Runner,
    conclude,
    end_by_error,
    end_by_time,
)

if TYPE_CHECKING:
    from pytest_agentbench.models.tape import Tape
    from pytest_agentbench.runners.gateway.gateway import Gateway


def open_gateway_of(services: Services, loop: asyncio.AbstractEventLoop, context: RunContext) -> OpenGateway:
    """Return the gateway of a run whose agent asks by itself, at the session's listener."""
    from pytest_agentbench.runners.gateway.opening import open_gateway

    return open_gateway(context, services.listener(loop))


def listen_for_gateway(
    services: Services, loop: asyncio.AbstractEventLoop, model: Model, gateway: Gateway
) -> OpenGateway:
    """Return a runner's own gateway, reached at the session's listener."""
    from pytest_agentbench.runners.gateway.opening import listen_for

    return listen_for(gateway, model, services.listener(loop))


def run_limit(profile: RunProfile, runner: Runner) -> float | None:
    """Return how many seconds a whole run may take: the profile's limit, else the runner's own. None: as long as it
    takes.
    """
    return profile.run_timeout_seconds or getattr(runner, "run_seconds", None)


def is_serial(run_plan: RunPlan) -> bool:
    """Return whether the run sets variables in this process, and is alone in it."""
    return run_plan.settings.get("env") == "serial"


@contextmanager
def set_environment(services: Services, context: RunContext) -> Iterator[None]:
    """Have clients in this process find the run's gateway by its variables inside the block."""
    services.keep_environ()
    with context.gateway.session_env():
        yield


Around = Callable[[], AbstractContextManager[Any]]


async def run_until_end(
    runner: Runner, context: RunContext, limit: float | None, tape: Tape | None, around: Around = nullcontext
) -> RunEnd:
    """Return the end of the run. A provider's failure is a status like any other, so that the trace is stored.

    The runner runs in the block that `around` makes, within the run's own context variables. The gateway's end takes
    precedence over the runner's, because agents hide outages, or fail by them.
    """
    try:
        end = await _run_to_end(runner, context, limit, tape, around)
    except Exception:
        if (found := _end_by_gateway(context, None)) is None:
            raise
        return found
    finally:
        context.asking.ended = True
        if context.opened_gateway is not None:
            context.opened_gateway.close()
        if (told := context.asking.describe_nothing()) is not None:
            context.trace.provider["asked_nothing"] = told
    return _end_by_gateway(context, end) or end


def _end_by_gateway(context: RunContext, end: RunEnd | None) -> RunEnd | None:
    """Return the end of the run by its own gateway, None without a gateway or if it has seen no reason.

    `end` is the runner's own, None if it raised.
    """
    opened = context.opened_gateway
    if opened is None:
        return None
    if end is not None and end.status == "timed_out" and opened.outage is None and opened.fault is None:
        return None
    try:
        return opened.find_end(answered=end is not None and end.status == "success")
    except ProviderError as error:
        return end_by_error(error)


async def _conclude(runner: Runner, context: RunContext, around: Around) -> RunEnd:
    """Return the end of the run by the runner's value, or by its provider's error."""
    try:
        with around():
            return conclude(await runner(context.case, context), context.trace)
    except ProviderError as error:
        return end_by_error(error)


async def _run_to_end(
    runner: Runner, context: RunContext, limit: float | None, tape: Tape | None, around: Around
) -> RunEnd:
    """Return how the run ended by its runner."""
    if (
        limit is None and tape is None and context.client is None and not context.roles
    ):  # nobody would look at the clock
        return await _conclude(runner, context, around)
    from pytest_agentbench.models.clock import RUN_CLOCK, RunClock

    clock, timer = RunClock(), None
    try:
        async with clock.limit(limit) as timer:
            if tape is not None:
                tape.timer = timer
            RUN_CLOCK.set(clock)
            RUN.set(context)
            context.variables = copy_context()
            return await _conclude(runner, context, around)
    except TimeoutError:
        if timer is None or not timer.expired():
            raise  # the agent's own
        return end_by_time("run_timeout", f"run_timeout_seconds ({limit:g} s)", clock)
