"""Find the cases of a folder and of a config root, and select the cases of a suite."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_agentbench.bounded.files import FileRefusedError, open_file
from pytest_agentbench.config.base import DATA_SUFFIXES, suggest
from pytest_agentbench.config.documents import Loc, read_bytes
from pytest_agentbench.config.folders import MAX_DEPTH, SKIPPED_FOLDERS, describe_depth
from pytest_agentbench.config.profiles import CaseSelection, SuiteFile
from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.config.session_roots import SessionRoots
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.sources.case_source import CaseSource, IndexedCase, OpenedSource, SourceRequest
from pytest_agentbench.sources.names import SourceName, describe_expected_rows, is_table, load_source, source_names

if TYPE_CHECKING:
    from pytest_agentbench.sources.dataset import Dataset

_RESULTS = ("runs", "evaluations")
"""Folders of results. They may contain many files, but no cases of the user."""
_HIDDEN_TESTS = "verify"
"""Name of the folder next to a case's file that contains files for verifiers. pytest collects none of them."""
_HEAD = 64 * 2**10
_FIRST_LINE = 64 * 2**20
_MOST_NAMED = 5
_QUESTION = "question"


def find_source(path: Path, top: Path | None = None) -> CaseSource | None:
    """Return the source that reads the cases of a file, or None if it has none.

    Also return None if a descriptor in the file's folder, or in a folder above it up to `top`, uses the file.
    """
    source = _find_holder(path, source_names(path.name))
    if source is None or path.suffix not in DATA_SUFFIXES:
        return source
    from pytest_agentbench.sources.dataset import is_claimed  # here, because sessions without datasets do not need it

    if is_claimed(path, top or path.parent):
        return None
    return source


def named_source(path: Path, root: ConfigRoot) -> CaseSource | None:
    """Return the source of a file that a user names, if it contains cases.

    A data file that a descriptor describes is read through the descriptor.
    """
    names = source_names(path.name)
    if not names:
        return None
    if len(names) > 1:
        from pytest_agentbench.sources.dataset import descriptors_listing

        if descriptors_listing(path, root.path):
            return load_source(names[-1])
    # The last source has the widest patterns. It reports why a file without the form of any source cannot be read.
    return _find_holder(path, names) or load_source(names[-1])


def open_source(path: Path, request: SourceRequest) -> OpenedSource:
    """Return the opened file of any source. Raises ConfigError with all its problems, or if no source reads it."""
    source = named_source(path, request.root)
    if source is None:
        if is_table(path.name):
            raise ConfigError(describe_expected_rows(str(path)))
        raise ConfigError(f"{path}:1:1: found a file of another kind, expected a file with cases")
    return source.open(path, request)


def open_questions(path: Path, root: ConfigRoot, *, run_code: bool = False) -> Dataset:
    """Return the dataset at `path`, for predictions without runs. Raises ConfigError for cases of another kind."""
    from pytest_agentbench.sources.dataset import open_dataset
    from pytest_agentbench.sources.rows import DATASETS

    source = named_source(path, root)
    if source is not None and source is not DATASETS:
        raise ConfigError(f"{path}:1:1: found {source.holds}, expected questions; pytest runs them")
    if is_table(path.name):
        raise ConfigError(describe_expected_rows(str(path)))
    return open_dataset(path, root, run_code=run_code)


def _find_holder(path: Path, names: Sequence[SourceName]) -> CaseSource | None:
    """Return the first of the sources that finds cases in the file, or None."""
    if not names:
        return None
    head = _read_head(path)
    if path.suffix in DATA_SUFFIXES and head is not None:
        # Scripts and attachments of cases are JSON too. Without this check each would import the readers of questions.
        begin = head.encode()
        names = [name for name in names if name.may_hold(begin)]
    return next((source for source in map(load_source, names) if source.holds_cases(path, head)), None)


def _read_head(path: Path) -> str | None:
    """Return the beginning of a data file with at least the first line of JSONL, or all of a YAML file.

    Return None if it cannot be read, "" if it is no regular file.
    """
    if path.suffix not in DATA_SUFFIXES:
        try:
            return read_bytes(path).replace(b"\0", b"").decode("utf-8", "replace")  # YAML may be UTF-16
        except ConfigError:
            return None
    from pytest_agentbench.bounded.json_files import UTF16_BOMS

    try:
        with open_file(path, limit=None) as file:
            head = file.read(_HEAD)
            # The first row alone may be longer than the head.
            if path.suffix == ".jsonl" and b"\n" not in head.lstrip():
                head += file.readline(_FIRST_LINE) + file.read(_HEAD)
    except FileRefusedError:
        return ""
    except OSError:
        return None
    encoding = "utf-16" if head[:2] in UTF16_BOMS else "utf-8-sig"
    return head.decode(encoding, "replace").strip()


def find_cases(folder: Path, near_misses: list[str] | None = None) -> Iterator[Path]:
    """Yield every file with cases below a folder, in order of names; for a dataset with a descriptor, the descriptor.

    Skips data files below a case's folder (attachments and fixtures), hidden folders, links to folders, agents'
    workspaces and recordings of sessions. `near_misses` receives the results of `describe_near_miss`. Raises
    ConfigError at the end if folders cannot be read or are nested too deeply.
    """
    unreadable: list[str] = []
    yield from (path for path, _ in _walk(str(folder), folder, unreadable, in_case=False, near_misses=near_misses))
    if unreadable:
        raise ConfigError("\n".join(unreadable))


def has_cases(path: Path, without: Path | None = None) -> bool:
    """Return whether a file or folder holds a case that can be found, in addition to those in the folder `without`."""
    if path.is_file():
        return find_source(path) is not None
    return next(_walk(str(path), path, [], in_case=False, skipped=str(without or "")), None) is not None


def index_cases(
    root: ConfigRoot, roots: SessionRoots | None = None, *, run_code: bool = False
) -> Iterator[IndexedCase]:
    """Yield every case below a config root, for suites. Unreadable files do not affect the others.

    Cases below the root of a guest are read with that root, which `roots` finds, so no code of a guest runs. Without
    `run_code` a dataset that code reads has no cases.
    """
    for path, source in _walk(str(root.path), root.path, [], in_case=False):
        own_root = root if roots is None else roots.of(path)
        try:
            yield from source.index(path, SourceRequest(own_root, run_code=run_code))
        except ConfigError:
            continue  # collecting the file reports it


def _walk(
    folder: str,
    top: Path,
    unreadable: list[str],
    depth: int = 0,
    *,
    in_case: bool,
    near_misses: list[str] | None = None,
    skipped: str = "",
) -> Iterator[tuple[Path, CaseSource]]:
    if depth > MAX_DEPTH:
        unreadable.append(describe_depth(folder))
        return
    try:
        with os.scandir(folder) as entries:
            ordered = sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        unreadable.append(f"{folder}: cannot be read: {error.strerror or error}")
        return
    owners = {entry.name: source for entry in ordered if (source := _owner(entry.name)) is not None}
    # Other data files in the folder of a case, and below it, are attachments and no datasets.
    in_case = in_case or bool(owners)
    for entry in ordered:
        path = Path(entry.path)
        if entry.is_dir(follow_symlinks=False):  # a link may lead back to a folder above it
            is_hidden = entry.name.startswith(".") or (owners and entry.name == _HIDDEN_TESTS)
            is_output = entry.path == skipped or (skipped and entry.name in _RESULTS)
            if not is_hidden and entry.name not in SKIPPED_FOLDERS and not is_output:
                yield from _walk(
                    entry.path, top, unreadable, depth + 1, in_case=in_case, near_misses=near_misses, skipped=skipped
                )
        elif entry.name in owners:
            yield path, owners[entry.name]
        elif in_case:
            continue
        elif (source := find_source(path, top)) is not None:
            yield path, source
        elif near_misses is not None and (text := describe_near_miss(path, top)) is not None:
            near_misses.append(text)


def _owner(name: str) -> CaseSource | None:
    """Return the source of a file with this name if the whole folder belongs to its case. Such files are YAML."""
    if not name.endswith((".yaml", ".yml")):  # before the look-up: a folder may have thousands of data files
        return None
    sources = map(load_source, source_names(name))
    return next((source for source in sources if source.is_one_case), None)


Cases = Iterable[tuple[str, Collection[str]]]
"""Case ids with their tags."""


def select(selection: CaseSelection, cases: Cases) -> frozenset[str]:
    """Return the ids of the cases that a suite selects: include_case_ids > tag filters > exclude_case_ids.

    Cases named in include_case_ids are always selected. Others are selected by include_tags, or all of them if neither
    is set, minus exclude_tags and exclude_case_ids. `suite_problems` checks a selection.
    """
    explicit = frozenset(selection.include_case_ids)
    select_all = not explicit and not selection.include_tags
    included, excluded = set(selection.include_tags), set(selection.exclude_tags)
    by_tags = {
        case_id
        for case_id, tags in dict(cases).items()
        if (select_all or not included.isdisjoint(tags)) and excluded.isdisjoint(tags)
    }
    return explicit | (by_tags - set(selection.exclude_case_ids))


def suite_problems(suite: SuiteFile, cases: Cases, root: ConfigRoot) -> list[tuple[Loc, str]]:
    """Return unknown case ids, problems of packs' sections, and the reason if no case is selected.

    Each has its place in the suite's file.
    """
    known = dict(cases)
    found: list[tuple[Loc, str]] = [
        (("case_selection", *at), text) for at, text in unknown_ids(suite.case_selection, known)
    ]
    for section, value in suite.sections():
        found += [((section.name, *at), text) for at, text in section.references(value, root, known)]
    if found or not known or select(suite.case_selection, known.items()):
        return found
    nothing: Loc = ("case_selection",)
    return unmatched_tags(suite.case_selection, known.items()) or [(nothing, "selects no case; change the tags or ids")]


def unknown_ids(selection: CaseSelection, known: Collection[str]) -> list[tuple[Loc, str]]:
    """Return one problem for each list with ids that no case has, at the first of them."""
    problems: list[tuple[Loc, str]] = []
    for field in ("include_case_ids", "exclude_case_ids"):
        missing = {index: name for index, name in enumerate(getattr(selection, field)) if name not in known}
        if not missing:
            continue
        (index, first), count = next(iter(missing.items())), len(missing)
        names = [repr(name) for name in missing.values()]
        if count > _MOST_NAMED:
            names[_MOST_NAMED:] = ["..."]
        text = f"no case has the id {first!r}" if count == 1 else f"{count} ids that no case has: {', '.join(names)}"
        problems.append(((field, index), text + suggest(first, known)))
    return problems


def unmatched_tags(selection: CaseSelection, cases: Cases) -> list[tuple[Loc, str]]:
    """Return a doubt for each tag of a selection that no case has, at its place; the first ones with a suggestion."""
    known = {tag for _, tags in cases for tag in tags}
    unknown = [
        (("case_selection", field, index), tag)
        for field in ("include_tags", "exclude_tags")
        for index, tag in enumerate(getattr(selection, field))
        if tag not in known
    ]
    # A suggestion compares the tag with all known ones, which takes 60 ms for 20,000 of them.
    return [
        (place, f"no case has the tag {tag!r}{suggest(tag, known) if at < _MOST_NAMED else ''}")
        for at, (place, tag) in enumerate(unknown)
    ]


def describe_near_miss(path: Path, top: Path) -> str | None:
    """Return the warning for a JSONL file without questions whose first row nearly is one.

    For a file that a descriptor uses, in its folder or above it up to `top`, that descriptor defines a question.
    """
    if path.suffix != ".jsonl":
        return None
    first = (_read_head(path) or "").partition("\n")[0]
    if not first:
        return None
    try:
        row = json.loads(first)
    except RecursionError:  # endless brackets are no misspelt question
        return None
    except ValueError as error:
        if _QUESTION not in first:
            return None
        from pytest_agentbench.bounded.json_files import explain_error

        offset, reason = explain_error(error)
        return f"{path}:1:{offset + 1}: the first row is {reason}; correct it, or no row of the file is asked"
    if not isinstance(row, dict) or _QUESTION in row:
        return None
    names = {name.lower(): name for name in row}
    near = get_close_matches(_QUESTION, names, n=1, cutoff=0.8)
    from pytest_agentbench.sources.dataset import is_claimed

    if not near or is_claimed(path, top):
        return None
    return (
        f"{path}:1:1: found the field {names[near[0]]!r} in the first row, expected {_QUESTION!r}; correct it, or no "
        "row of the file is asked"
    )
