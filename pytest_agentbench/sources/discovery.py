"""The cases of a folder and of a config root, and which of them a suite runs with which agents."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pytest_agentbench.config.base import suggest
from pytest_agentbench.config.dataset_file import DATA_SUFFIXES, is_descriptor_name
from pytest_agentbench.config.documents import Loc, read
from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.config.session_roots import SessionRoots
from pytest_agentbench.config.suite import CaseSelection, SuiteFile
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.packs.research.cases import ReportItem, is_reports, open_reports, read_all_reports
from pytest_agentbench.packs.research.reports_file import is_reports_name
from pytest_agentbench.sources.dataset import is_dataset, open_dataset
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


Cases = Iterable[tuple[str, Collection[str]]]
"""Case ids with their tags."""


def select(selection: CaseSelection, cases: Cases) -> frozenset[str]:
    """The ids of the cases that a suite selects: include_case_ids > tag filters > exclude_case_ids.

    Ids named in include_case_ids are always in. Others enter by include_tags, or all of them where neither is given;
    exclude_tags and exclude_case_ids then hold for these others. `suite_problems` has what a selection can have wrong.
    """
    known = dict(cases)
    explicit = frozenset(selection.include_case_ids)
    everything = not explicit and not selection.include_tags
    wanted, unwanted = set(selection.include_tags), set(selection.exclude_tags)
    entered = {
        case_id
        for case_id, tags in known.items()
        if (everything or not wanted.isdisjoint(tags)) and unwanted.isdisjoint(tags)
    }
    return explicit | (entered - set(selection.exclude_case_ids))


def suite_problems(suite: SuiteFile, cases: Cases, root: ConfigRoot) -> list[tuple[Loc, str]]:
    """Return ids that no case has, and what sections of packs have wrong, each at its place in the suite's file."""
    known = dict(cases)
    found: list[tuple[Loc, str]] = [
        (("case_selection", *at), text) for at, text in unknown_ids(suite.case_selection, known)
    ]
    for section, value in suite.sections():
        found += [((section.name, *at), text) for at, text in section.references(value, root, known)]
    return found


def unknown_ids(selection: CaseSelection, known: Collection[str]) -> list[tuple[Loc, str]]:
    """A problem for each id that no case has, at its place in the selection."""
    return [
        ((field, index), f"references unknown case_id values: {case_id!r}{suggest(case_id, known)}")
        for field in ("include_case_ids", "exclude_case_ids")
        for index, case_id in enumerate(getattr(selection, field))
        if case_id not in known
    ]
