"""Instructions of each stage, in the language that the tasks are to have (seed 004, A.3)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Wording:
    """The texts of one language. A line `{name}` is a slot of a template.

    `system` is every request's system message, with `{boundary}`. `several_servers`, `scenario`, `ordinal` and
    `count` are formatted first.
    """

    system: str
    generation: str
    """Slots: tools, several_servers, scenario, ordinal, others, problems."""
    several_servers: str
    scenario: str
    ordinal: str
    others: str
    problems: str
    fuzzing: str
    """Slots: task, count, exactness, problems."""
    count: str
    exact: str
    fuzzing_problems: str
    quality: str
    """Slots: task, fuzzy, tools."""
