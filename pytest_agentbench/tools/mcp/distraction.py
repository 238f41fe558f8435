"""Servers that an MCP task is offered beside its own, to tempt the agent (seed 004, 3.2)."""

from __future__ import annotations

import random
from collections.abc import Iterable


def distraction_servers(task_id: str, declared: Iterable[str], needed: Iterable[str]) -> list[str]:
    """Return all declared servers but the needed ones, in an order that the task's id draws.

    The first N are its sample of N. The order is the same for the same names in whatever order.
    """
    others = sorted(set(declared) - set(needed))
    random.Random(task_id).shuffle(others)
    return others
