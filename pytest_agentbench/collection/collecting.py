"""Which collector a file gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_agentbench.collection.files import PLANNER, BadRowNode, CaseFile, Cases, DatasetFile
from pytest_agentbench.collection.reports import ReportsNode
from pytest_agentbench.config import is_reports_name
from pytest_agentbench.engine import FILE_ID
from pytest_agentbench.errors import visible
from pytest_agentbench.reports import collection_problems
from pytest_agentbench.sources import CASE_FILES, in_case_folder, is_dataset, is_reports
from pytest_agentbench.terminal_text import visible_line

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
