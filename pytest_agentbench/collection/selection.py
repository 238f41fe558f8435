"""Which files are collected, and which items stay: suites, and cases that run only when they are named."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

import pytest

from pytest_agentbench.collection.items import PLANNER, BadRowNode, CaseFile, CaseItem, Cases, DatasetFile
from pytest_agentbench.collection.planning import Planner
from pytest_agentbench.config.loader import located
from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.engine.driver import FILE_ID, JOB
from pytest_agentbench.engine.job import Job
from pytest_agentbench.packs.research.cases import is_reports
from pytest_agentbench.packs.research.items import ReportsNode
from pytest_agentbench.packs.research.reports_file import is_reports_name
from pytest_agentbench.reports.assertion import collection_problems
from pytest_agentbench.sources.dataset import in_case_folder, is_dataset
from pytest_agentbench.sources.discovery import select, suite_problems
from pytest_agentbench.sources.test_yaml import CASE_FILES
from pytest_agentbench.terminal_text import visible, visible_line

_CASE_COLLECTORS = (CaseFile, DatasetFile, ReportsNode, BadRowNode)


def collect_file(path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """The collector of a file that holds cases, None for any other. A `test.yaml` is known to look like a case.

    A file that was named on the command line is taken at its word: what is wrong with it is an error.
    """
    named = parent.session.isinitpath(path)
    if path.name in CASE_FILES:
        return _collector(CaseFile, parent, path)
    top, reports = parent.config.rootpath, is_reports_name(path.name)
    holds_cases = is_reports(path) if reports else is_dataset(path, top)
    if not named and (not holds_cases or in_case_folder(path.parent, top)):
        return None
    return _collector(ReportsNode if reports else DatasetFile, parent, path)


def _collector(kind: type[Cases], parent: pytest.Collector, path: Path) -> Cases:
    """Make the collector of a file. A path that steers terminals, or is no text of XML, has escapes in its node id."""
    node: Cases = kind.from_parent(parent, path=path)
    true = str(node.nodeid)
    if (shown := visible_line(true.replace("\t", "\\t"))) != true:
        node = kind.from_parent(parent, path=path, nodeid=shown)
        node.stash[FILE_ID] = true
    return node


def tell_apart(collector: pytest.Collector, report: pytest.CollectReport) -> None:
    """Marks the report of a collector of ours that failed, with what is wrong, for the session: the rest still runs.

    What pytest prints of it steers neither a terminal nor a CI.
    """
    if not isinstance(collector, _CASE_COLLECTORS):
        return
    config, text = collector.config, report.longreprtext
    problems = collection_problems(report.nodeid, text, config.rootpath)
    told = {
        "agentbench_case_file": True,
        "agentbench_uncollected": config.stash[PLANNER].store.redactor.value(problems),
    }
    vars(report).update(told)
    if (shown := visible(text)) != text:
        report.longrepr = shown


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
        problems = suite_problems(suite, cases, root)
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
