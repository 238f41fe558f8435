"""The case files of a folder, and the cases of a config root by id."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pytest_agentbench.config import DATA_SUFFIXES, ConfigRoot, SessionRoots, is_descriptor_name, is_reports_name, read
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.sources.dataset import is_dataset, open_dataset
from pytest_agentbench.sources.reports import ReportItem, is_reports, open_reports, read_all_reports
from pytest_agentbench.sources.rows import Row, read_rows
from pytest_agentbench.sources.test_yaml import CASE_FILES

_SKIPPED = frozenset({"__pycache__", "node_modules", "venv", "build", "dist", "workspace"})


class IndexedCase(NamedTuple):
    """Where a case is written and what a suite selects it by."""

    case_id: str
    tags: tuple[str, ...]
    path: Path
    line: int


def find_cases(folder: Path) -> Iterator[Path]:
    """Every `test.yaml`, reports.yaml and dataset below a folder, in the order of their names; of a dataset with a
    descriptor that.

    Data files below a case's folder are its attachments and fixtures; hidden folders, links to folders and agents'
    workspaces are left out. Raises ConfigError, after all others, for folders that cannot be read.
    """
    unreadable: list[str] = []
    yield from _walk(str(folder), folder, unreadable, in_case=False)
    if unreadable:
        raise ConfigError("\n".join(unreadable))


def has_cases(folder: Path) -> bool:
    """Return whether a folder holds a case that can be found."""
    return next(_walk(str(folder), folder, [], in_case=False), None) is not None


def index_cases(
    root: ConfigRoot, roots: SessionRoots | None = None, *, run_code: bool = False
) -> Iterator[IndexedCase]:
    """Every case below a config root, for suites. Nothing is validated, so what cannot be read takes no other down.

    Those of guests below it are read as theirs, so none of their code is run; `roots` says which these are. Without
    `run_code` a dataset that is read by code has no cases here.
    """
    for path in _walk(str(root.path), root.path, [], in_case=False):
        of = root if roots is None else roots.of(path)
        try:
            if path.name in CASE_FILES:
                yield from _declared_case(path)
            elif is_reports_name(path.name):
                found = read_all_reports(open_reports(path, of))
                items = (each for each in found if isinstance(each, ReportItem))
                yield from (IndexedCase(item.case_id, item.tags, path, 1) for item in items)
            else:
                dataset = open_dataset(path, of, run_code=run_code)
                rows = (row for row in read_rows(dataset) if isinstance(row, Row))
                yield from (IndexedCase(row.case_id, row.tags, path, row.line) for row in rows)
        except ConfigError:
            continue  # collecting the file reports it


def _declared_case(path: Path) -> Iterator[IndexedCase]:
    data: Any = read(path).data
    if isinstance(data, dict) and isinstance(data.get("case_id"), str):
        tags = data.get("tags")
        texts = tags if isinstance(tags, list) else []
        yield IndexedCase(data["case_id"], tuple(tag.strip() for tag in texts if isinstance(tag, str)), path, 1)


def _walk(folder: str, top: Path, unreadable: list[str], *, in_case: bool) -> Iterator[Path]:
    try:
        with os.scandir(folder) as entries:
            ordered = sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        unreadable.append(f"{folder}: cannot be read: {error.strerror or error}")
        return
    names = {entry.name for entry in ordered}
    in_case = in_case or not names.isdisjoint(CASE_FILES)
    for entry in ordered:
        if entry.is_dir(follow_symlinks=False):
            if not entry.name.startswith(".") and entry.name not in _SKIPPED:
                yield from _walk(entry.path, top, unreadable, in_case=in_case)
        elif entry.name in CASE_FILES or (not in_case and _holds_cases(Path(entry.path), top)):
            yield Path(entry.path)


def _holds_cases(path: Path, top: Path) -> bool:
    if path.name.endswith(DATA_SUFFIXES) or is_descriptor_name(path.name):
        return is_dataset(path, top)
    return is_reports(path)
