"""How often the paired verdict finds a skill that helps by 20 points, and one that does nothing.

    python benchmarks/skill_power.py [CASES]

Prints the table of docs/skills.md: shares of 1,000 simulated comparisons of `without` and `with`, half of whose runs
pass without the skill.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from random import Random

from pytest_agentbench.statistics.paired import mcnemar, mean_difference, sign_flip

SIMULATIONS = 1000
ALPHA = 0.05
BASE = 0.5
"""Share of runs that pass without the skill."""
Case = tuple[float, float]
"""Probabilities that a run passes without and with the skill."""


def steady(random: Random, gain: float) -> Case:
    """Return a case that always passes or always fails; the skill makes some of the failing ones pass."""
    if random.random() < BASE:
        return 1.0, 1.0
    return 0.0, float(random.random() < gain / (1 - BASE))


def varied(random: Random, gain: float) -> Case:
    """Return a case of its own difficulty: many nearly always pass or fail, some pass every other time."""
    probability = random.betavariate(0.5, 0.5)
    return probability, probability + (1 - probability) * gain / (1 - BASE)


def coin(random: Random, gain: float) -> Case:
    """Return a case that passes every other time, as all others do."""
    return BASE, BASE + gain


KINDS: dict[str, Callable[[Random, float], Case]] = {
    "always pass or always fail": steady,
    "differ in difficulty": varied,
    "all pass every other time": coin,
}


def share_found(draw: Callable[[Random, float], Case], gain: float, cases: int, repetitions: int) -> float:
    """Return the share of comparisons with a significant difference in favour of the skill, or of any if gain is 0."""
    random, found = Random(f"{draw.__name__} {gain} {cases} {repetitions}"), 0
    for _ in range(SIMULATIONS):
        differences = [_compare(random, *draw(random, gain), repetitions) for _ in range(cases)]
        if repetitions == 1:
            p_value = mcnemar(differences.count(-1.0), differences.count(1.0))
        else:
            _, p_value = sign_flip(differences)
        found += p_value <= ALPHA and (not gain or mean_difference(differences) > 0)
    return found / SIMULATIONS


def _compare(random: Random, without: float, with_skill: float, repetitions: int) -> float:
    passed = [sum(random.random() < probability for _ in range(repetitions)) for probability in (without, with_skill)]
    return (passed[1] - passed[0]) / repetitions


def rows(cases: int) -> list[tuple[str, int, float, float]]:
    """Return kind of cases, repetitions, share found of a skill that helps by 20 points, and of one without effect."""
    return [
        (name, repetitions, share_found(draw, 0.2, cases, repetitions), share_found(draw, 0.0, cases, repetitions))
        for name, draw in KINDS.items()
        for repetitions in (1, 3)
    ]


if __name__ == "__main__":
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    print("| the cases | repetitions | found: +20 points | found: no effect |\n|---|---|---|---|")
    for name, repetitions, helpful, idle in rows(number):
        print(f"| {name} | {repetitions} | {helpful:.1%} | {idle:.1%} |")
