"""The table of benchmarks whose lines take a while each: a line is printed as soon as it is measured."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NoReturn


@dataclass(frozen=True)
class Measured:
    """A line of the table; `peer`, `more` and `target` are empty where nothing is compared or promised.

    `met` says something where there is a target.
    """

    scenario: str
    ours: str
    peer: str
    more: str
    target: str
    met: bool


@dataclass(frozen=True)
class Section:
    """Lines that are measured together; `problem` is why they cannot be measured here."""

    measure: Callable[[], Iterable[Measured]]
    problem: str | None = None


def print_table(sections: Mapping[str, Section], only: str | None, *, more: str, peer: str = "peer") -> NoReturn:
    """Measures all sections, or the `only` one. The exit status is 1 where a target is missed.

    `peer` and `more` head the columns of what is compared with, and of the difference.
    """
    print(f"| scenario | ours | {peer} | {more} | target | met |\n|---|---:|---:|---:|---:|---|")
    all_met = True
    for name, section in sections.items():
        if only not in (None, name):
            continue
        if section.problem is not None:
            print(f"{name}: not measured: {section.problem}", file=sys.stderr)
            continue
        for line in section.measure():
            met = ("yes" if line.met else "NO") if line.target else ""
            print(f"| {line.scenario} | {line.ours} | {line.peer} | {line.more} | {line.target} | {met} |", flush=True)
            all_met = all_met and line.met
    sys.exit(not all_met)
