"""Which files are collected, and which items stay: suites, and cases that run only when they are named."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

import pytest

from pytest_agentbench.collection.items import PLANNER, BadRowNode, CaseFile, CaseItem
from pytest_agentbench.collection.planning import Planner
from pytest_agentbench.config.loader import make_located_error
from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.engine.driver import FILE_ID, JOB
from pytest_agentbench.engine.job import Job
from pytest_agentbench.reports.assertion import collection_problems
from pytest_agentbench.sources.case_source import CaseSource
from pytest_agentbench.sources.dataset import in_case_folder
from pytest_agentbench.sources.discovery import find_source, named_source, select, suite_problems
from pytest_agentbench.terminal_text import visible, visible_line

_CASE_COLLECTORS = (CaseFile, BadRowNode)


def collect_file(path: Path, parent: pytest.Collector) -> CaseFile | None:
    """Return the collector of a file that holds cases, None for any other.

    A file that was named on the command line is taken at its word: what is wrong with it is an error.
    """
    top = parent.config.rootpath
    if parent.session.isinitpath(path):
        source = named_source(path, parent.config.stash[PLANNER].root(path))
    else:
        source = find_source(path, top)
        if source is not None and not source.is_one_case and in_case_folder(path.parent, top):
            return None
    return None if source is None else _collector(source, parent, path)


def _collector(source: CaseSource, parent: pytest.Collector, path: Path) -> CaseFile:
    """Return the collector of a file. A path that steers terminals or is no text of XML has escapes in its node id."""
    node: CaseFile = CaseFile.from_parent(parent, path=path)
    true = str(node.nodeid)
    if (shown := visible_line(true.replace("\t", "\\t"))) != true:
        node = CaseFile.from_parent(parent, path=path, nodeid=shown)
        node.stash[FILE_ID] = true
    node.source = source
    return node


def tell_apart(collector: pytest.Collector, report: pytest.CollectReport) -> None:
    """Mark the report of a collector of ours that failed, with what is wrong, for the session: the rest still runs.

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
    """Remove what the suite does not select, and cases tagged `manual` that nobody named. Raises ConfigError.

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
            raise make_located_error(root.find("suites", name), problems)
        return select(suite.case_selection, cases)


def _unnamed(item: pytest.Item, job: Job) -> bool:
    """Return a manual case is named by its id on the command line, or by its id or a tag of its own in -k or -m."""
    if MANUAL not in job.tags or not isinstance(item, CaseItem):
        return False
    config = item.config
    if any("::" in argument and job.case_id in argument for argument in config.args):
        return False
    words = set(re.findall(r"[\w.+-]+", f"{config.getoption('keyword')} {config.getoption('markexpr')}"))
    return not words & {MANUAL, job.case_id}
