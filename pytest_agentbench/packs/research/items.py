"""Research reports as pytest items: a reports.yaml is as many cases as its files, or its queries, have rows."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_agentbench.collection.items import PLANNER, BadRowNode, Cases, CollectionError
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.packs.research.cases import BadReport, lost_partners, read_reports, report_case

if TYPE_CHECKING:
    from pytest_agentbench.engine.job import Plan
    from pytest_agentbench.packs.research.cases import Reports


class ReportsNode(Cases):
    """A reports.yaml. Stored reports are items of the models that wrote them, others of the session's models."""

    def collect(self) -> Iterator[pytest.Item | pytest.Collector]:
        """The reports' items, and a failing node for each row that cannot be scored."""
        planner = self.config.stash[PLANNER]
        try:
            reports = planner.open_reports(self.path)
            planner.claim_name(reports.name, self.path, planner.root(self.path))
            subjects = self._subjects(reports)
            if subjects:
                yield from map(self._bad, lost_partners(reports))
            for stored, plans in subjects:
                yield from self._reports(reports, stored, plans)
        except ConfigError as error:
            raise CollectionError(str(error)) from None

    def _subjects(self, reports: Reports) -> list[tuple[Path | None, list[Plan]]]:
        """Each file of stored reports with its plan, else the session's plans for those that are to be written."""
        planner = self.config.stash[PLANNER]
        if reports.stored:
            return [(plan.stored, [plan]) for plan in planner.stored_plans(reports)]
        plans = self._plans()
        return [(None, plans)] if plans else []

    def _reports(self, reports: Reports, stored: Path | None, plans: list[Plan]) -> Iterator[pytest.Item | BadRowNode]:
        planner = self.config.stash[PLANNER]
        judges = planner.research_judges(reports, plans)
        for item in read_reports(reports, stored):
            if isinstance(item, BadReport):
                yield self._bad(item)
                continue
            if planner.predicted is not None:
                planner.predicted.case(item.case_id, self.path)
            case = functools.partial(report_case, reports, item)
            yield from self._items(item.case_id, item.tags, 1, case, plans, judges)

    def _bad(self, row: BadReport) -> BadRowNode:
        return BadRowNode.from_parent(self, name=row.name, message=row.message)
