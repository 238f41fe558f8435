"""Files: a `test.yaml` is one case, a dataset as many as it has rows."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_agentbench.collection.items import CaseItem, make_item, tag_items
from pytest_agentbench.collection.planning import Planner
from pytest_agentbench.config import located, suggest
from pytest_agentbench.engine import Job, Plan
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.records import Case, MetricSpec
from pytest_agentbench.sources import (
    CASE_FILES,
    BadRow,
    in_case_folder,
    is_dataset,
    open_dataset,
    read_rows,
    row_case,
)

PLANNER = pytest.StashKey[Planner]()


class CollectionError(pytest.Collector.CollectError):
    """One text per problem: xdist reports a text once, and a traceback once per worker."""


class _Cases(pytest.Module):
    """A Module with an empty module object, so that module-scoped fixtures and `request.module` work for cases too."""

    def __init__(self, **kw: Any) -> None:
        super().__init__(**kw)
        self.obj = types.ModuleType(self.path.stem)
        self._fixtureinfo: Any = None

    def _items(
        self, case_id: str, tags: tuple[str, ...], line: int, case: Callable[[], Case], plans: list[Plan]
    ) -> list[CaseItem]:
        planner = self.config.stash[PLANNER]
        items = []
        for plan in plans:
            for repetition in range(1, planner.repetitions(plan) + 1):
                job = Job(case_id, tags, case, plan, repetition)
                item = make_item(self, job, line, self._fixtureinfo)
                self._fixtureinfo = getattr(item, "_fixtureinfo", None)  # the same for every item of the file
                items.append(item)
        tag_items(self.config, items, tags)
        return items

    def _plans(self) -> list[Plan]:
        planner = self.config.stash[PLANNER]
        return planner.plans(planner.root(self.path), own_agent=planner.has_own_agent(self.path))


class CaseFile(_Cases):
    """A `test.yaml`."""

    def collect(self) -> Iterator[pytest.Item]:
        """The case's items, or one error with everything that is wrong with the file."""
        planner = self.config.stash[PLANNER]
        root = planner.root(self.path)
        try:
            plans = self._plans()
            case = planner.load(self.path, plans)
            first = planner.files(root).setdefault(case.case_id, self.path)
            if first != self.path:
                raise located(self.path, [(("case_id",), f"Duplicate case_id {case.case_id!r}; {first} has it too")])
        except ConfigError as error:
            raise CollectionError(str(error)) from None
        yield from self._items(case.case_id, case.tags, case.line, lambda: case, plans)


class DatasetFile(_Cases):
    """A JSONL or JSON file of questions, read in one pass; the rows are parsed again when they run."""

    def collect(self) -> Iterator[pytest.Item | pytest.Collector]:
        """The rows' items, and a failing node for each row that is none."""
        planner = self.config.stash[PLANNER]
        root = planner.root(self.path)
        try:
            plans = self._plans()
            dataset = open_dataset(self.path, root.path, planner.registry.known, _metrics(planner))
            for row in read_rows(dataset):
                if isinstance(row, BadRow):
                    yield BadRowNode.from_parent(self, name=f"line {row.line}", message=row.message)
                else:
                    case = functools.partial(row_case, dataset, row)
                    yield from self._items(row.case_id, row.tags, row.line, case, plans)
        except ConfigError as error:
            raise CollectionError(str(error)) from None


class BadRowNode(pytest.Collector):
    """A row that cannot be a case: an error of its own, so that the others still run."""

    def __init__(self, message: str, **kw: Any) -> None:
        super().__init__(**kw)
        self.message = message

    def collect(self) -> list[pytest.Item]:
        """Raises what is wrong with the row."""
        raise CollectionError(self.message)


CASE_COLLECTORS = (CaseFile, DatasetFile, BadRowNode)


def _metrics(planner: Planner) -> tuple[MetricSpec, ...] | None:
    if planner.settings.metric is None:
        return None
    name, threshold = planner.settings.metric
    if name not in planner.registry.metrics:
        raise ConfigError(f"--agentbench-metric: unknown metric {name!r}{suggest(name, planner.registry.metrics)}")
    return (MetricSpec(name=name, threshold=threshold),)


def collect_file(path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """The collector of a file that holds cases, None for any other. A `test.yaml` is known to look like a case.

    A file that was named on the command line is taken at its word: what is wrong with it is an error.
    """
    named = parent.session.isinitpath(path)
    if path.name in CASE_FILES:
        return CaseFile.from_parent(parent, path=path)
    if not named and (not is_dataset(path) or in_case_folder(path.parent, parent.config.rootpath)):
        return None
    return DatasetFile.from_parent(parent, path=path)
