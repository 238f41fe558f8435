"""What is wrong with configuration files, cases, datasets and verifiers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from pytest_agentbench.bounded.files import read_file
from pytest_agentbench.cli.additions import additions_below, additions_for, verified_names
from pytest_agentbench.cli.obstacles import Obstacles
from pytest_agentbench.cli.output import mark_as_warning
from pytest_agentbench.cli.places import enclosing_root
from pytest_agentbench.config.base import COMMANDS_FILE, DATA_SUFFIXES, ConfigFile, Known, load
from pytest_agentbench.config.case_file import TestCaseFile
from pytest_agentbench.config.commands_file import read_commands
from pytest_agentbench.config.dataset_file import DatasetDescriptor
from pytest_agentbench.config.documents import Loc, make_located_error
from pytest_agentbench.config.field_doubts import list_idle_judges, place_doubts
from pytest_agentbench.config.guests import GuestModels
from pytest_agentbench.config.kinds import find_commands, find_config_files, kind_of
from pytest_agentbench.config.profiles import EvaluationProfile, ModelsFile, RunProfile, SuiteFile
from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.config.sections import added_kinds
from pytest_agentbench.config.session_roots import SessionRoots
from pytest_agentbench.engine.job import OWN_AGENT
from pytest_agentbench.engine.services import build_registry
from pytest_agentbench.errors import CodeNotRun, ConfigError
from pytest_agentbench.metrics.gold_checks import GoldTest
from pytest_agentbench.metrics.registry import metric_problems
from pytest_agentbench.models.routes import find_unknown_overrides, resolve_model
from pytest_agentbench.models.scripts import Scripts
from pytest_agentbench.records.case import Case
from pytest_agentbench.records.run_checks import FileContains, FileExists, PathExists
from pytest_agentbench.sources.case_source import (
    BadRow,
    CaseSource,
    IndexedCase,
    OpenedSource,
    SourceCase,
    SourceRequest,
)
from pytest_agentbench.sources.dataset import open_dataset
from pytest_agentbench.sources.discovery import (
    find_cases,
    find_source,
    index_cases,
    named_source,
    suite_problems,
    unmatched_tags,
)
from pytest_agentbench.sources.names import describe_expected_rows, is_table
from pytest_agentbench.sources.rows import DATASETS, unregistered
from pytest_agentbench.sources.test_yaml import CASE_FILES, TEST_YAML
from pytest_agentbench.tools.mcp.launching import server_refusal

_IDS = {
    "suites": "suite_id",
    "run_profiles": "run_profile_id",
    "evaluation_profiles": "evaluation_profile_id",
}
_IN_CONTAINERS = RunProfile.default().model_copy(update={"sandbox": "docker"})
"""A profile under which a case may name any program: those of a container are its image's own."""


class Checker:
    """A check of paths, one after the other; `errors` and `warnings` are lines for people.

    `tested` are the good cases with hidden tests.

    Cases have to run under the profiles that are named, else under any that their root has. `strict`: answers that fail
    by their own metrics are errors.
    """

    def __init__(
        self,
        roots: SessionRoots,
        run_profile: str | None = None,
        evaluation: str | None = None,
        *,
        strict: bool = False,
    ) -> None:
        self._roots, self._profiles, self._strict = roots, (run_profile, evaluation), strict
        self.errors: list[str] = []
        self.warnings: list[str] = []
        self.files = 0
        self.cases = 0
        self.tested: list[Case] = []
        self._registry = build_registry()
        self._known = self._registry.known
        self._scripts = Scripts()
        self._first: dict[tuple[Path, str], Path] = {}
        self._indexes: dict[Path, dict[str, IndexedCase]] = {}
        self._obstacles: dict[ConfigRoot, Obstacles] = {}

    def check(self, given: Path) -> None:
        """Check everything below a folder, or one file."""
        before, near_misses = self.files, list[str]()
        try:
            for path, kind in self._list_files(given, near_misses):
                self.files += 1
                self._check_file(path, kind, self._roots.of(path))
            if self.files > before:
                self.warnings += map(mark_as_warning, near_misses)
            elif near_misses:  # a session has nothing to run
                self.errors += near_misses
            elif given.is_dir():
                self.errors.append(
                    f"{given}:1:1: found nothing to check, expected cases (test.yaml, questions in .jsonl or .json, "
                    "dataset.yaml) or configuration files (suites/, run_profiles/, models.yaml, ...)"
                )
        except ConfigError as error:  # of folders that cannot be read
            self.errors += str(error).splitlines()

    def _check_file(self, path: Path, kind: type[ConfigFile] | None, root: ConfigRoot) -> None:
        try:
            if path.name == COMMANDS_FILE:
                declared = read_commands(path)
                self.errors += declared.refused.values()
                self.warnings += map(mark_as_warning, declared.notes)
            elif kind is TestCaseFile:
                if path.name not in CASE_FILES:
                    raise ConfigError(
                        f"{path}:1:1: found a test case in a file that pytest does not collect, expected the name "
                        "test.yaml in a folder of its own; rename it"
                    )
                self._check_source(TEST_YAML, path, root)
            elif kind is None or kind is DatasetDescriptor:
                self._check_source(named_source(path, root) or DATASETS, path, root)
            else:
                self._check_config_file(path, root, kind)
        except ConfigError as error:
            self.errors += str(error).splitlines()

    def _list_files(self, given: Path, near_misses: list[str]) -> Iterator[tuple[Path, type[ConfigFile] | None]]:
        """Yield files with their kinds; None is a file of questions or tasks, or a commands.json.

        `near_misses` takes what is to be said of files that nobody asks.
        """
        if given.is_dir():
            yield from find_config_files(given)
            yield from ((path, None) for path in find_commands(given))
            # Files that are cases and of a kind too, such as test.yaml, were yielded above.
            yield from ((path, None) for path in find_cases(given, near_misses) if kind_of(path) is None)
        elif given.name == COMMANDS_FILE and find_source(given) is None:
            yield given, None
        elif (kind := kind_of(given)) is not None or find_source(given) is not None or _is_described(given):
            yield given, kind
        elif is_table(given.name):
            self.errors.append(describe_expected_rows(str(given)))
        else:
            self.errors.append(
                f"{given}:1:1: found no kind of file that is known, expected one by its place (suites/, run_profiles/, "
                "...), its name (test.yaml, models.yaml, servers.yaml), its id (case_id, suite_id, ...), or a dataset"
            )

    def _check_source(self, source: CaseSource, path: Path, root: ConfigRoot) -> None:
        added = additions_for(path.parent)
        opened = source.open(path, SourceRequest(root, verified_names(self._known, added)))
        if problems := metric_problems(opened.metrics, None, self._registry.metrics):
            self.errors.append(f"{opened.path}:1:1: {'; '.join(text for _, text in problems)}")
        doubts = [*opened.doubts(self._known), *opened.field_doubts()]
        self.warnings += [mark_as_warning(placed) for placed, _ in doubts]
        # Nothing is downloaded to check it.
        if opened.is_remote:
            return
        # What is doubtful about the whole file is not said again for each of its rows.
        told = {text for _, text in doubts}
        try:
            self.warnings += opened.row_doubts(self._check_rows(opened, root, told, added))
        except CodeNotRun as reason:
            self.warnings.append(mark_as_warning(f"{reason}; its rows were not checked"))

    def _check_rows(
        self, opened: OpenedSource, root: ConfigRoot, told: set[str], added: frozenset[str]
    ) -> Iterator[SourceCase]:
        """Yield the good rows, each checked as a case. `told` are doubts that were raised about the file."""
        alike: dict[str, list[str]] = {}
        golds = GoldTest(self._registry.metrics)
        for row in chain(opened.problems(), opened.rows()):
            if isinstance(row, BadRow):
                self.errors += row.message.splitlines()
                continue
            try:
                self._check_case(case := row.make(), root, told)
                found = list(self._obstacles_of(root).find(case, opened, row))
            except ConfigError as error:
                self.errors += str(error).splitlines()
            else:
                for message, unless in found:
                    if unless & added:
                        self.warnings.append(mark_as_warning(f"{message}; {_ADDED}"))
                    else:
                        alike.setdefault(_without_place(message), []).append(message)
                golds.add(case)
            yield row
        if self._strict:
            self.errors += golds.problems()
        else:
            self.warnings += map(mark_as_warning, golds.problems())
        for first, *others in alike.values():
            self.errors.append(f"{first} (and {count_things(len(others), 'more row')})" if others else first)

    def _obstacles_of(self, root: ConfigRoot) -> Obstacles:
        if root not in self._obstacles:
            self._obstacles[root] = Obstacles(root, self._registry, *self._profiles)
        return self._obstacles[root]

    def _check_case(self, case: Case, root: ConfigRoot, told: set[str]) -> None:
        """Check a case, and note each doubt that is not `told` yet."""
        self.cases += 1
        # By root: two projects may have equal ids, one may not.
        first = self._first.setdefault((root.path, case.case_id), case.path)
        if first != case.path:
            message = f"Duplicate case_id {case.case_id!r}; {first} has it too"
            if case.dataset is not None:
                raise ConfigError(f"{case.path}:{case.line}:1: {message}")
            raise make_located_error(case.path, [(("case_id",), message)])
        for name, server in case.mcp_servers.items():
            if server is not None and (problem := server_refusal(name, server, root, _IN_CONTAINERS)):
                raise ConfigError(f"{case.path}:{case.line}:1: MCP server {name!r}: {problem}")
        new = [text for text in _list_doubts(case, self._known) if text not in told]
        told.update(new)
        self.warnings += [f"{case.path}:{case.line}:1: warning: {text}" for text in new]
        if any(verifier.pytest is not None for verifier in case.verify):
            self.tested.append(case)
        # Raises where the script beside it is wrong.
        self._scripts.load_beside(case)

    def _check_config_file(self, path: Path, root: ConfigRoot, kind: type[ConfigFile]) -> None:
        names = verified_names(self._known, additions_below(root.path))
        file = load(path, kind, names).read_by(root.origin(path))
        self._refuse_guests(file, path, root)
        self.warnings += map(mark_as_warning, [*place_doubts(file), *self._list_idle(file, root)])
        problems = [*self._find_wrong_references(file, root), *_find_shared_id(file, path, root)]
        problems += [each for added in added_kinds() if added.model is kind for each in added.problems(path)]
        if problems:
            raise make_located_error(path, problems)

    def _refuse_guests(self, file: ConfigFile, path: Path, root: ConfigRoot) -> None:
        """Raise ConfigError for a guest's file that says more than it may; what nobody has asked for yet is a doubt."""
        if isinstance(file, RunProfile | EvaluationProfile | SuiteFile):
            root.refuse_loosening(path, file, file.default())
        elif isinstance(file, ModelsFile) and isinstance(held := root.models(), GuestModels):
            self.warnings += [mark_as_warning(str(held.refusal(name))) for name in held.theirs]

    def _find_wrong_references(self, file: ConfigFile, root: ConfigRoot) -> Iterator[tuple[Loc, str]]:
        """Yield what a file says of others that is not so."""
        if isinstance(file, RunProfile | EvaluationProfile):
            for section, value in file.sections():
                yield from (((section.name, *at), text) for at, text in section.references(value, root, {}))
        if isinstance(file, RunProfile) and file.origin is not None:
            root.run_profile(str(file.origin.path))  # raises where it names a program of elsewhere
            yield from find_unknown_overrides(file, root, {OWN_AGENT})
            for name, server in file.mcp_servers.items():
                if problem := server_refusal(name, server, root, file):
                    yield ("mcp_servers", name), problem
        # Only the user's own: of a guest's models it is told above that they are not used.
        if isinstance(file, ModelsFile) and file.origin is not None and file.origin.is_users:
            _refuse_keys(file)
        if not isinstance(file, SuiteFile):
            return
        cases = self._index_cases(root)
        yield from suite_problems(file, [(case.case_id, case.tags) for case in cases.values()], root)

    def _list_idle(self, file: ConfigFile, root: ConfigRoot) -> list[str]:
        """Return the doubts about what a file says and no session heeds."""
        if isinstance(file, EvaluationProfile) and not any(file.sections()):  # a pack's section may ask the judges
            return list_idle_judges(file)
        if not isinstance(file, SuiteFile) or file.origin is None or file.origin.path is None:
            return []
        cases = [(case.case_id, case.tags) for case in self._index_cases(root).values()]
        if suite_problems(file, cases, root) or not (doubts := unmatched_tags(file.case_selection, cases)):
            return []
        return str(make_located_error(file.origin.path, doubts)).splitlines()

    def _index_cases(self, root: ConfigRoot) -> dict[str, IndexedCase]:
        # Once for each root: it reads every case file below.
        if root.path not in self._indexes:
            self._indexes[root.path] = {case.case_id: case for case in index_cases(root, self._roots)}
        return self._indexes[root.path]


def _find_shared_id(file: ConfigFile, path: Path, root: ConfigRoot) -> Iterator[tuple[Loc, str]]:
    """Yield the problem where another file answers to this one's id too."""
    ids = {root.path / folder: key for folder, key in _IDS.items() if path.parent.name == folder}
    ids |= {root.path / kind.folder: kind.id_field for kind in added_kinds() if isinstance(file, kind.model)}
    place = next((folder for folder in (path.parent, path.parent.parent) if folder in ids), None)
    if place is None:
        return
    key = ids[place]
    # Looked up as a session does it: what it finds twice, no session could name.
    try:
        root.find(place.name, getattr(file, key))
    except ConfigError as error:
        yield (key,), str(error)


def _refuse_keys(file: ModelsFile) -> None:
    """Raise ConfigError for an entry whose key would go where it does not belong."""
    for entry in file.models:
        resolve_model(entry.model_id, models=file)


def _is_described(path: Path) -> bool:
    """Return whether a descriptor lists the file."""
    if path.suffix not in DATA_SUFFIXES:
        return False
    try:
        return open_dataset(path, enclosing_root(path)).recipe is not None
    except ConfigError:
        return True  # checking it says the same


_ADDED = "unless a conftest.py or plugin brings what can, which is not loaded here"
_PLACE = re.compile(r"^.*?:\d+:\d+: ")


def _without_place(problem: str) -> str:
    return _PLACE.sub("", problem, count=1)


def _list_doubts(case: Case, known: Known) -> Iterator[str]:
    """Yield what may be meant so: names that only a plugin can know, and file checks that nothing needs to be done
    for.
    """
    stored = any(part.is_answered for part in case.case_parts)
    yield from unregistered("runner", [] if stored else [case.runner.type], known.runners)
    yield from unregistered("tool", case.tools, known.tools)
    yield from unregistered("metric", [metric.name for metric in case.metrics], known.metrics)
    declared = [check.kind for check in case.checks if check.declarative is not None]
    yield from unregistered("check kind", declared, known.checks)
    for check in case.checks:
        spec = check.declarative
        if isinstance(spec, FileExists | PathExists | FileContains) and _is_satisfied(spec, case.path.parent):
            yield f"check {check.check_id!r}: {spec.path} in the case's folder satisfies it before any agent has run"


def _is_satisfied(spec: FileExists | PathExists | FileContains, folder: Path) -> bool:
    path = folder / spec.path
    if isinstance(spec, PathExists):
        return path.exists()
    if not path.is_file():
        return False
    if isinstance(spec, FileExists):
        return True
    return spec.text.encode() in read_file(path)


def take_place(problem: str) -> tuple[str, int, int, str]:
    """Return file, line and column, for problems in the order in which a reader meets them."""
    # The shortest path that fits: messages name places of other files too.
    match = re.match(r"(.*?):(\d+):(\d+): ", problem)
    return (match[1], int(match[2]), int(match[3]), problem) if match else (problem, 0, 0, problem)


def count_things(number: int, what: str) -> str:
    """Return a number of things in words: `1 case`, `2,000 files`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"
