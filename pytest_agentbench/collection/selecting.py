"""Which collected items stay: suites, and cases that run only when they are named."""

from __future__ import annotations

import re
from collections.abc import Collection

import pytest

from pytest_agentbench.collection.items import CaseItem
from pytest_agentbench.collection.planning import Planner
from pytest_agentbench.config import ConfigRoot, located
from pytest_agentbench.engine import JOB, Job
from pytest_agentbench.sources import agent_problems, select, suite_problems

MANUAL = "manual"


def deselect(config: pytest.Config, items: list[pytest.Item], planner: Planner, *, cases_only: bool = False) -> None:
    """Removes what the suite does not select, and cases tagged `manual` that nobody named. Raises ConfigError.

    A hand-written test's mark names its case.
    """
    suites = _Suites(planner)
    kept: list[pytest.Item] = []
    gone: list[pytest.Item] = []
    for item in items:
        job = item.stash.get(JOB, None)
        if job is None:
            stays = not cases_only
        else:
            stays = suites.select(job) if planner.settings.suite else not _unnamed(item, job)
        (kept if stays else gone).append(item)
    if gone:
        config.hook.pytest_deselected(items=gone)
        items[:] = kept


class _Suites:
    """The case ids that the suite selects, worked out once per config root over all of its cases."""

    def __init__(self, planner: Planner) -> None:
        self.planner = planner
        self.selected: dict[ConfigRoot, Collection[str]] = {}

    def select(self, job: Job) -> bool:
        root = job.plan.root
        if root not in self.selected:
            self.selected[root] = self._selected(root)
        return job.case_id in self.selected[root]

    def _selected(self, root: ConfigRoot) -> Collection[str]:
        name = self.planner.settings.suite or ""
        suite = root.suite(name)
        cases = [(case.case_id, case.tags) for case in self.planner.cases(root).values()]
        problems = [*suite_problems(suite, cases), *agent_problems(suite, root)]
        if problems and not root.is_guest:  # whose cases are not those that the session's suite names
            raise located(root.find("suites", name), problems)
        return select(suite.case_selection, cases)


def _unnamed(item: pytest.Item, job: Job) -> bool:
    """A manual case is named by its id on the command line, or by its id or a tag of its own in -k or -m."""
    if MANUAL not in job.tags or not isinstance(item, CaseItem):
        return False
    config = item.config
    if any("::" in argument and job.case_id in argument for argument in config.args):
        return False
    words = set(re.findall(r"[\w.+-]+", f"{config.getoption('keyword')} {config.getoption('markexpr')}"))
    return not words & {MANUAL, job.case_id}
