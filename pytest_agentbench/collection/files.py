"""Files: a `test.yaml` is one case, a dataset as many as it has rows."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from pytest_agentbench.collection.items import CaseItem, make_item, tag_items
from pytest_agentbench.collection.planning import Planner
from pytest_agentbench.config import located
from pytest_agentbench.engine import Job, Plan
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.records import Case, MetricSpec, Model
from pytest_agentbench.sources import (
    BadRow,
    Dataset,
    Row,
    row_case,
)

PLANNER = pytest.StashKey[Planner]()
Judges = Sequence[tuple[Model, ...]]
"""For each plan the models that the metrics of a case ask."""


class CollectionError(pytest.Collector.CollectError):
    """One text per problem: xdist reports a text once, and a traceback once per worker."""


class Cases(pytest.Module):
    """A Module with an empty module object, so that module-scoped fixtures and `request.module` work for cases too."""

    def __init__(self, **kw: Any) -> None:
        super().__init__(**kw)
        self.obj = types.ModuleType(self.path.stem)
        self._fixtureinfo: Any = None

    def _items(
        self,
        case_id: str,
        tags: tuple[str, ...],
        line: int,
        case: Callable[[], Case],
        plans: list[Plan],
        judges: Judges,
    ) -> list[CaseItem]:
        planner = self.config.stash[PLANNER]
        items = []
        for plan, asked in zip(plans, judges, strict=True):
            for repetition in range(1, planner.repetitions(plan) + 1):
                job = Job(case_id, tags, case, plan, repetition, judges=asked)
                item = make_item(self, job, line, self._fixtureinfo)
                self._fixtureinfo = getattr(item, "_fixtureinfo", None)  # the same for every item of the file
                items.append(item)
        tag_items(self.config, items, tags)
        return items

    def _plans(self) -> list[Plan]:
        planner = self.config.stash[PLANNER]
        return planner.plans(planner.root(self.path), own_agent=planner.has_own_agent(self.path))


class CaseFile(Cases):
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
            planner.answer(case)
            judges = planner.metric_judges(plans, case.metrics, f"{self.path}:{case.line}:1")
        except ConfigError as error:
            raise CollectionError(str(error)) from None
        yield from self._items(case.case_id, case.tags, case.line, lambda: case, plans, judges)


class DatasetFile(Cases):
    """A file of questions or a dataset's descriptor, read in one pass; the rows are parsed again when they run."""

    def collect(self) -> Iterator[pytest.Item | pytest.Collector]:
        """The rows' items, and a failing node for each row that is none."""
        planner = self.config.stash[PLANNER]
        try:
            plans = self._plans()
            dataset = planner.open_dataset(self.path, plans, _metrics(planner))
            self._claim_name(dataset)
            judges = planner.metric_judges(plans, dataset.metrics, str(dataset.path))
            for row in planner.rows(dataset, plans):
                if isinstance(row, BadRow):
                    yield self._bad(row, row.message)
                    continue
                case = functools.partial(row_case, dataset, row)
                try:
                    self._claim_id(dataset, row)
                    asked = planner.own_judges(row, case, plans) or judges
                except ConfigError as error:
                    yield self._bad(row, str(error))
                else:
                    line = row.line if row.path is dataset.path else 1
                    yield from self._items(row.case_id, row.tags, line, case, plans, asked)
        except ConfigError as error:
            raise CollectionError(str(error)) from None

    def _claim_name(self, dataset: Dataset) -> None:
        """Case ids begin with it, so no other dataset may have it. Raises ConfigError."""
        planner = self.config.stash[PLANNER]
        own = self.path if dataset.recipe is None else dataset.recipe.path
        planner.claim_name(dataset.name, own, planner.root(self.path))

    def _claim_id(self, dataset: Dataset, row: Row) -> None:
        """The ids of rows begin with their dataset's name; those of tasks do not. Raises ConfigError."""
        if dataset.tasks is None:
            return
        planner = self.config.stash[PLANNER]
        first = planner.files(planner.root(self.path)).setdefault(row.case_id, self.path)
        if first != self.path:
            problem = f"task_id: Duplicate case_id {row.case_id!r}; {first} has it too"
            raise ConfigError(f"{self.path}:{row.line}:1: {problem}")

    def _bad(self, row: Row | BadRow, message: str) -> BadRowNode:
        place = f"line {row.line}" if row.path == self.path else f"{row.path.name} line {row.line}"
        return BadRowNode.from_parent(self, name=place, message=message)


class BadRowNode(pytest.Collector):
    """A row that cannot be a case: an error of its own, so that the others still run."""

    def __init__(self, message: str, **kw: Any) -> None:
        super().__init__(**kw)
        self.message = message

    def collect(self) -> list[pytest.Item]:
        """Raises what is wrong with the row."""
        raise CollectionError(self.message)


def _metrics(planner: Planner) -> tuple[MetricSpec, ...] | None:
    if planner.settings.metric is None:
        return None
    name, threshold = planner.settings.metric
    return (MetricSpec(name=name, threshold=threshold),)
