"""Book the cost of requests of runs and judgements, also if their results are thrown away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from pytest_agentbench.engine.grading import GradingServices
from pytest_agentbench.models.metering import METER, Meter, metered
from pytest_agentbench.records.run import Usage
from pytest_agentbench.runners.base import RunContext

if TYPE_CHECKING:
    from pytest_agentbench.models.tape import Tape


@asynccontextmanager
async def pay_for_run(services: GradingServices, context: RunContext, tape: Tape | None) -> AsyncIterator[None]:
    """Add requests of the block without a reply to the run's usage.

    At the block's end, wait for replies that the agent did not wait for. If the block raises, the run is not stored:
    stop waiting, and book the run's usage here.
    """
    meter = Meter(lambda usage: context.trace.add_usage(usage))
    token = METER.set(meter)
    try:
        yield
        await meter.finish()
    except BaseException:
        await asyncio.sleep(0)  # the requests' callers that were cancelled just now have not heard of it yet
        await meter.give_up()
        if (usage := context.trace.usage) != Usage():
            services.spend("run", [usage], tape)
        if context.roles:
            from pytest_agentbench.engine.roles import spend_roles

            spend_roles(services, context.roles, tape)
        raise
    finally:
        METER.reset(token)


@asynccontextmanager
async def pay_for_judging(services: GradingServices, tape: Tape | None) -> AsyncIterator[None]:
    """Book requests of the block without a reply, which are part of no verdict."""
    spent: list[Usage] = []
    try:
        async with metered(spent.append):
            yield
    finally:
        if spent:
            services.spend("judge", spent, tape)
