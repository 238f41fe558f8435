"""What `agentbench validate` checks."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from pytest_agentbench.cli.places import project_of
from pytest_agentbench.config import (
    ConfigFile,
    ConfigRoot,
    Known,
    Loc,
    RunProfile,
    SuiteFile,
    TestCaseFile,
    find_config_files,
    find_root,
    kind_of,
    load,
    located,
)
from pytest_agentbench.engine import build_registry
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.models import Scripts
from pytest_agentbench.records import Case, FileContains, FileExists, PathExists
from pytest_agentbench.sources import (
    BadRow,
    IndexedCase,
    find_cases,
    index_cases,
    is_dataset,
    load_case,
    open_dataset,
    read_rows,
    row_case,
    suite_problems,
)

_IDS = {"suites": "suite_id", "run_profiles": "run_profile_id", "evaluation_profiles": "evaluation_profile_id"}


class Checker:
    """Checks paths one after the other; `errors` and `warnings` are lines for people."""

    def __init__(self) -> None:
        self.errors: list[str] = []
        self.warnings: list[str] = []
        self.files = 0
        self.cases = 0
        self._known = build_registry().known
        self._scripts = Scripts()
        self._first: dict[tuple[Path, str], Path] = {}
        self._indexes: dict[Path, dict[str, IndexedCase]] = {}

    def check(self, given: Path) -> None:
        """Everything below a folder, or one file."""
        project = project_of(given)
        for path, kind in self._files(given):
            self.files += 1
            root = find_root(path, project, None)
            if kind is None:
                check = partial(self._dataset, path, root)
            elif kind is TestCaseFile:
                check = partial(self._case_file, path, root)
            else:
                check = partial(self._config_file, path, root, kind)
            try:
                check()
            except ConfigError as error:
                self.errors += str(error).splitlines()

    def _files(self, given: Path) -> Iterator[tuple[Path, type[ConfigFile] | None]]:
        """Files with their kinds; None is a dataset."""
        if given.is_dir():
            yield from find_config_files(given)
            yield from ((path, None) for path in find_cases(given) if path.suffix in (".json", ".jsonl"))
        elif (kind := kind_of(given)) is not None or is_dataset(given):
            yield given, kind
        else:
            self.errors.append(
                f"{given}:1:1: found no kind of file that is known, expected one by its place (suites/, run_profiles/, "
                "...), its name (test.yaml, models.yaml), its id (case_id, suite_id, ...), or a dataset"
            )

    def _case_file(self, path: Path, root: ConfigRoot) -> None:
        self._case(load_case(path, root), root)

    def _dataset(self, path: Path, root: ConfigRoot) -> None:
        dataset = open_dataset(path, root.path)
        for row in read_rows(dataset):
            if isinstance(row, BadRow):
                self.errors.append(row.message)
            else:
                self._case(row_case(dataset, row), root)

    def _case(self, case: Case, root: ConfigRoot) -> None:
        self.cases += 1
        first = self._first.setdefault((root.path, case.case_id), case.path)
        if first != case.path:
            message = f"Duplicate case_id {case.case_id!r}; {first} has it too"
            if case.dataset is not None:
                raise ConfigError(f"{case.path}:{case.line}:1: {message}")
            raise located(case.path, [(("case_id",), message)])
        self.warnings += [f"{case.path}:{case.line}:1: warning: {text}" for text in _doubts(case, self._known)]
        self._scripts.load_beside(case)

    def _config_file(self, path: Path, root: ConfigRoot, kind: type[ConfigFile]) -> None:
        file = load(path, kind)
        problems = [*self._references(file, root), *_shared_id(file, path, root)]
        if problems:
            raise located(path, problems)

    def _references(self, file: ConfigFile, root: ConfigRoot) -> Iterator[tuple[Loc, str]]:
        """What a file says of others that is not so."""
        if isinstance(file, RunProfile) and file.openclaw is not None:
            yield from _no_agent(file.openclaw.agent_id, ("openclaw", "agent_id"), root)
        if not isinstance(file, SuiteFile):
            return
        cases = self._index(root)
        yield from suite_problems(file, [(case.case_id, case.tags) for case in cases.values()])
        for index, assignment in enumerate(file.openclaw.agent_assignments if file.openclaw is not None else ()):
            yield from _no_agent(assignment.agent_id, ("openclaw", "agent_assignments", index, "agent_id"), root)

    def _index(self, root: ConfigRoot) -> dict[str, IndexedCase]:
        if root.path not in self._indexes:
            self._indexes[root.path] = {case.case_id: case for case in index_cases(root)}
        return self._indexes[root.path]


def _shared_id(file: ConfigFile, path: Path, root: ConfigRoot) -> Iterator[tuple[Loc, str]]:
    """Looking a file up by its own id tells whether another one answers to it too."""
    key = next((key for folder, key in _IDS.items() if path.parent == root.path / folder), None)
    if key is None:
        return
    try:
        root.find(path.parent.name, getattr(file, key))
    except ConfigError as error:
        yield (key,), str(error)


def _no_agent(agent_id: str, loc: Loc, root: ConfigRoot) -> Iterator[tuple[Loc, str]]:
    try:
        root.find("agents", agent_id)
    except ConfigError as error:
        yield loc, str(error)


def _doubts(case: Case, known: Known) -> Iterator[str]:
    """What may be meant so: names that only a plugin can know, and file checks that nothing needs to be done for."""
    names = [("runner", case.runner.type, known.runners)]
    names += [("tool", tool, known.tools) for tool in case.tools]
    names += [("metric", metric.name, known.metrics) for metric in case.metrics]
    names += [("check kind", check.kind, known.checks) for check in case.checks if check.declarative is not None]
    for what, name, registered in names:
        if registered is not None and name not in registered:
            yield f"the {what} {name!r} is not built in; a plugin or conftest.py must register it"
    for check in case.checks:
        spec = check.declarative
        if isinstance(spec, FileExists | PathExists | FileContains) and _satisfied(spec, case.path.parent):
            yield f"check {check.check_id!r}: {spec.path} in the case's folder satisfies it before any agent has run"


def _satisfied(spec: FileExists | PathExists | FileContains, folder: Path) -> bool:
    path = folder / spec.path
    if isinstance(spec, PathExists):
        return path.exists()
    if not path.is_file():
        return False
    if isinstance(spec, FileExists):
        return True
    return spec.text.encode() in path.read_bytes()
