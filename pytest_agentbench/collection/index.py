"""All cases of a config root, for suites and for tests that name a case by its id."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field

from pytest_agentbench.config import ConfigRoot, Known
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.records import Case
from pytest_agentbench.sources import CASE_FILES, Dataset, Row, dataset_name, find_cases, load_case, read_rows, row_case


@dataclass
class CaseIndex:
    """Cases by id: their tags, and how to build them. What cannot be read is left out: collection complains of it."""

    tags: dict[str, tuple[str, ...]] = field(default_factory=dict)
    makers: dict[str, Callable[[], Case]] = field(default_factory=dict)


def case_index(root: ConfigRoot, known: Known) -> CaseIndex:
    """The cases of every file below the root, read once per process."""
    return _index(root, known)


@functools.lru_cache(maxsize=16)
def _index(root: ConfigRoot, known: Known) -> CaseIndex:
    index = CaseIndex()
    for path in find_cases(root.path):
        try:
            if path.name in CASE_FILES:
                case = load_case(path, root, known)
                index.tags[case.case_id] = case.tags
                index.makers[case.case_id] = constant(case)
            else:
                _add_rows(index, Dataset(path, dataset_name(path, root.path), known=known))
        except ConfigError:
            continue
    return index


def _add_rows(index: CaseIndex, dataset: Dataset) -> None:
    for row in read_rows(dataset):
        if isinstance(row, Row):
            index.tags[row.case_id] = row.tags
            index.makers[row.case_id] = functools.partial(row_case, dataset, row)


def constant(case: Case) -> Callable[[], Case]:
    """A job's `case` for one that is at hand."""
    return lambda: case
