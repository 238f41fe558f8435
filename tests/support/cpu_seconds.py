"""Bounds of CPU seconds that hold on a slow machine as well."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

USUAL = 0.035  # CPU seconds of `work` on the machine that bounds are chosen on


def work() -> None:
    """Do what parsers do: make strings, look them up, count."""
    counts: dict[str, int] = {}
    for number in range(100_000):
        name = f"name {number % 5000}"
        counts[name] = counts.get(name, 0) + len(name.split())


def slowness() -> float:
    """Return how many times longer this machine takes now than the usual one, at least 1.

    A shared machine may run at a third of its speed for hours, and then be as fast as before.
    """
    begun = time.process_time()
    for _ in range(4):
        work()
    return max(1.0, (time.process_time() - begun) / 4 / USUAL)


@contextmanager
def at_most(seconds: float, what: object = "") -> Iterator[None]:
    """Fail if the block takes more CPU seconds, all threads of this process together, on the usual machine."""
    begun = time.process_time()
    yield
    taken = time.process_time() - begun
    if taken > seconds:
        assert taken <= seconds * slowness(), f"{taken:.3g} s of CPU, expected at most {seconds} {what}"
