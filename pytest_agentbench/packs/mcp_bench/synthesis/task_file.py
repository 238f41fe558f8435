"""Add accepted tasks to a file in the form of MCP-Bench, and list the tasks to make."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ConfigDict

from pytest_agentbench.bounded.writing import write_atomically
from pytest_agentbench.config.base import Scope, validate
from pytest_agentbench.config.documents import parse_json, read_bytes
from pytest_agentbench.errors import ConfigError, UnwritableError
from pytest_agentbench.packs.mcp_bench.records import PlannerSettings, distraction_servers
from pytest_agentbench.packs.mcp_bench.synthesis.base import Catalogue, Combination, Generated, is_calculator
from pytest_agentbench.records.base import Record

_LARGEST = 256 * 2**20
_SEPARATOR = re.compile(r"[\W_]+")


class _Task(Record):
    # Unknown fields of existing files are written back unchanged.
    model_config = ConfigDict(frozen=True, extra="allow")

    task_id: str
    task_description: str = ""
    fuzzy_description: str = ""


class _Group(Record):
    model_config = ConfigDict(frozen=True, extra="allow")

    servers: tuple[str, ...]
    tasks: tuple[_Task, ...]


class _Document(Record):
    model_config = ConfigDict(frozen=True, extra="allow")

    server_tasks: tuple[_Group, ...]


class TaskFile:
    """A file of accepted tasks. Its other content stays unchanged, also if people write it meanwhile.

    `was_there` is whether the file existed. Raises ConfigError for a file of another form, which is never overwritten.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.was_there = path.exists()
        self._requested: set[frozenset[str]] = set()
        self._document: dict[str, Any] = {"server_tasks": []}
        self._read()

    def __contains__(self, task_id: object) -> bool:
        return any(task["task_id"] == task_id for task in self._tasks())

    def task_ids(self, combination: Combination, count: int) -> list[str]:
        """Return the ids of the first `count` tasks of a combination: a slug of its servers and a number.

        :raises ConfigError: tasks of other servers have the same ids.
        """
        slug, servers = _slug(combination.servers), frozenset(combination.servers)
        for other in [*self._requested, *(frozenset(group["servers"]) for group in self._groups)]:
            # `A-B` and `A_B` are two servers with one slug: their tasks would overwrite each other.
            if other != servers and _slug(sorted(other)) == _slug(sorted(servers)):
                raise ConfigError(
                    f"{self.path}: tasks of {', '.join(sorted(servers))} and tasks of {', '.join(sorted(other))} would "
                    f"have the same ids ({slug}_000, ...); write them to different files with --output"
                )
        self._requested.add(servers)
        return [f"{slug}_{number:03}" for number in range(count)]

    def texts(self, field: str, combination: Combination | None = None) -> list[str]:
        """Return the texts of all tasks, or of the tasks of a combination, in their order."""
        groups = self._groups if combination is None else filter(None, [self._group(combination)])
        return [task[field] for group in groups for task in group["tasks"] if task.get(field)]

    def add(
        self, combination: Combination, task_id: str, generated: Generated, fuzzy: str, distraction: Sequence[str]
    ) -> None:
        """Add a task, and write the whole file or nothing.

        :raises UnwritableError: the file cannot be written.
        :raises ConfigError: the file has another form since the last call.
        """
        self._read()  # people and other calls may have written meanwhile
        group = self._group(combination)
        if group is None:
            group = {
                "server_name": "+".join(combination.servers),
                "servers": list(combination.servers),
                "combination_name": combination.name,
                "combination_type": combination.type,
                "tasks": [],
            }
            self._groups.append(group)
        task = {
            "task_id": task_id,
            "task_description": generated.task_description,
            "fuzzy_description": fuzzy,
            "dependency_analysis": generated.dependency_analysis,
            "dependencies": {tool: list(needed) for tool, needed in generated.dependencies.items()},
            "distraction_servers": list(distraction),
        }
        # Tasks end in any order. Sorted, so that two calls for the same tasks write the same file.
        group["tasks"] = sorted([*group["tasks"], task], key=lambda task: str(task["task_id"]))
        self._write()

    def _read(self) -> None:
        """Read the file if it exists: a deleted file is created again with the next task."""
        if not self.path.exists():
            return
        try:
            parsed = parse_json(read_bytes(self.path, _LARGEST), self.path)
            validate(parsed, _Document, Scope(folder=str(self.path.parent)))
        except ConfigError as error:
            raise ConfigError(
                f"{error}\nexpected a file in the form that this command writes; name another file with --output"
            ) from error
        self._document = parsed.data

    def _write(self) -> None:
        self._document["total_tasks"] = len(list(self._tasks()))
        data = (json.dumps(self._document, ensure_ascii=False, indent=2) + "\n").encode("utf-8", "replace")
        try:
            write_atomically(str(self.path.parent), self.path.name, data)
        except OSError as error:
            reason = error.strerror or error
            raise UnwritableError(f"{self.path}: cannot be written: {reason}; the file is unchanged") from error

    @property
    def _groups(self) -> list[dict[str, Any]]:
        groups: list[dict[str, Any]] = self._document["server_tasks"]
        return groups

    def _group(self, combination: Combination) -> dict[str, Any] | None:
        servers = frozenset(combination.servers)
        return next((group for group in self._groups if frozenset(group["servers"]) == servers), None)

    def _tasks(self) -> Iterator[dict[str, Any]]:
        return (task for group in self._groups for task in group["tasks"])


def _slug(servers: Iterable[str]) -> str:
    words = "_".join(_SEPARATOR.sub("_", server).strip("_") for server in servers)
    return words.lower().strip("_") or "task"


DISTRACTION_SERVERS = PlannerSettings().distraction_servers
"""Number of servers offered in addition to a task's own: the default of a run."""


@dataclass(frozen=True)
class Job:
    """A task to make, the `number`-th, from 1, of `count` for these servers.

    `exact` tasks calculate, so their numbers must be kept. `distraction` are additional servers.
    """

    task_id: str
    number: int
    count: int
    combination: Combination
    catalogues: Sequence[Catalogue]
    exact: bool
    distraction: Sequence[str]


def make_jobs(
    combination: Combination,
    count: int,
    catalogues: Mapping[str, Catalogue],
    categories: Mapping[str, str | None],
    file: TaskFile,
) -> list[Job]:
    """Return jobs for the first `count` tasks of a combination. `categories` are by declared server, or None.

    :raises ConfigError: tasks of other servers in the file have the same ids.
    """
    chosen = [catalogues[name] for name in combination.servers]
    exact = any(is_calculator(catalogue, categories[catalogue.server]) for catalogue in chosen)

    def job(number: int, task_id: str) -> Job:
        distraction = distraction_servers(task_id, categories, combination.servers)[:DISTRACTION_SERVERS]
        return Job(task_id, number, count, combination, chosen, exact, distraction)

    return [job(number, task_id) for number, task_id in enumerate(file.task_ids(combination, count), start=1)]
