"""The order of the rubric in each iteration, shuffled against judges that favour what comes first (seed 004, 5.2)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, TypeVar

from pytest_agentbench.judging.tool_use.wording import Axis

Shuffle = Literal["axes", "bands", "none"]
"""Axes and the dimensions within each are shuffled; the bands of each dimension too; nothing is."""

T = TypeVar("T")


def shuffled(rubric: Sequence[Axis], how: Shuffle, case_id: str, iteration: int) -> tuple[Axis, ...]:
    """The same axes, dimensions and bands in the order of an iteration: the same for every judge and in every session.

    Every order is drawn by itself. The orders of axes and dimensions are the same with `axes` and with `bands`.
    """
    if how == "none":
        return tuple(rubric)
    orders = random.Random(f"{case_id}:{iteration}")
    axes = _drawn(orders, [replace(axis, scales=_drawn(orders, axis.scales)) for axis in rubric])
    if how == "axes":
        return axes
    return tuple(_with_bands_drawn(orders, axis) for axis in axes)


def _with_bands_drawn(orders: random.Random, axis: Axis) -> Axis:
    return replace(axis, scales=tuple(replace(scale, bands=_drawn(orders, scale.bands)) for scale in axis.scales))


def _drawn(orders: random.Random, items: Sequence[T]) -> tuple[T, ...]:
    return tuple(orders.sample(items, len(items)))
