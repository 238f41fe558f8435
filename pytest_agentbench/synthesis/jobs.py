"""The tasks to make: their ids, servers, and what they are offered beside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_agentbench.config import PlannerSettings
from pytest_agentbench.synthesis.base import Catalogue, Combination
from pytest_agentbench.synthesis.calculation import calculates
from pytest_agentbench.synthesis.task_file import TaskFile
from pytest_agentbench.tools.mcp import distraction_servers

DISTRACTION_SERVERS = PlannerSettings().distraction_servers
"""How many servers stand beside those of a task: as many as a run offers by default."""


@dataclass(frozen=True)
class Job:
    """One task to make, the `number`-th, from 1, of `count` for these servers.

    `exact`: it calculates, so that its numbers stay. `distraction` are servers beside its own.
    """

    task_id: str
    number: int
    count: int
    combination: Combination
    catalogues: Sequence[Catalogue]
    exact: bool
    distraction: Sequence[str]


def jobs_of(
    combination: Combination,
    count: int,
    catalogues: Mapping[str, Catalogue],
    categories: Mapping[str, str | None],
    file: TaskFile,
) -> list[Job]:
    """The first `count` tasks of a combination. `categories` are those of all declared servers, None for no category.

    :raises ConfigError: tasks of other servers in the file have the same ids.
    """
    own = [catalogues[name] for name in combination.servers]
    exact = any(calculates(catalogue, categories[catalogue.server]) for catalogue in own)

    def job(number: int, task_id: str) -> Job:
        distraction = distraction_servers(task_id, categories, combination.servers)[:DISTRACTION_SERVERS]
        return Job(task_id, number, count, combination, own, exact, distraction)

    return [job(number, task_id) for number, task_id in enumerate(file.task_ids(combination, count), start=1)]
