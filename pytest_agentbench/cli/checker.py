"""The checker of configuration files, cases and datasets, for `agentbench validate` and `agentbench trust`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path

from pytest_agentbench.bounded.files import read_file
from pytest_agentbench.cli.additions import add_declared, additions_below, additions_for, verified_names
from pytest_agentbench.cli.findings import Finding, find_problems
from pytest_agentbench.cli.obstacles import Obstacles
from pytest_agentbench.cli.places import enclosing_root
from pytest_agentbench.config.base import COMMANDS_FILE, DATA_SUFFIXES, ConfigFile, Known, load
from pytest_agentbench.config.case_file import TestCaseFile
from pytest_agentbench.config.commands_file import read_commands
from pytest_agentbench.config.dataset_file import DatasetDescriptor
from pytest_agentbench.config.documents import Loc, make_located_error
from pytest_agentbench.config.field_doubts import list_idle_judges, place_doubts
from pytest_agentbench.config.guests import GuestModels
from pytest_agentbench.config.kinds import find_config_files, find_named, kind_of
from pytest_agentbench.config.profiles import OWN_KINDS, EvaluationProfile, ModelsFile, RunProfile, SuiteFile
from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.config.sections import added_kinds
from pytest_agentbench.config.session_roots import SessionRoots
from pytest_agentbench.config.skills import find_skill_doubts, read_skill
from pytest_agentbench.engine.case_rules import CaseRules
from pytest_agentbench.engine.job import OWN_AGENT
from pytest_agentbench.engine.services import build_registry
from pytest_agentbench.errors import CodeNotRun, ConfigError
from pytest_agentbench.extensions import CONTAINERS
from pytest_agentbench.metrics.gold_checks import GoldTest
from pytest_agentbench.models.routes import find_unknown_overrides, resolve_model
from pytest_agentbench.models.scripts import Scripts
from pytest_agentbench.records.case import Case
from pytest_agentbench.records.run_checks import FileContains, FileExists, PathExists
from pytest_agentbench.records.skills import SKILL_FILE
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
from pytest_agentbench.terminal_text import count_text
from pytest_agentbench.tools.mcp.launching import server_refusal

_NAMED = (COMMANDS_FILE, SKILL_FILE)
"""Files of other formats that are checked by their names."""
_IN_CONTAINERS = RunProfile.default().model_copy(update={"sandbox": CONTAINERS})
"""A profile under which a case may name any program, because programs of a container belong to its image."""


class Checker:
    """Checks paths one after the other and collects `findings`, with the numbers of `files` and good `cases`.

    `verified` are the good cases with verifiers. A case is an error if no session could run it: under the named
    profiles, else under any profile of its root. `strict`: answers that fail by their own metrics are errors.
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
        self.findings: list[Finding] = []
        self.files = 0
        self.cases = 0
        self.verified: list[Case] = []
        self._registry = build_registry()
        self._known = self._registry.known
        self._rules = CaseRules(self._registry.metrics)
        self._scripts = Scripts()
        self._indexes: dict[Path, dict[str, IndexedCase]] = {}
        self._obstacles: dict[ConfigRoot, Obstacles] = {}

    def check(self, path: Path) -> None:
        """Check everything below a folder, or one file."""
        before, near_misses = self.files, list[str]()
        try:
            for file, kind in self._list_files(path, near_misses):
                self.files += 1
                self._check_file(file, kind, self._roots.of(file))
        except ConfigError as error:  # of folders that cannot be read
            self._refuse(error)
            return
        if self.files > before:
            self._warn(*near_misses)
        elif near_misses:  # a session has nothing to run
            self._refuse(*near_misses)
        elif path.is_dir():
            self._refuse(
                f"{path}:1:1: found nothing to check, expected cases (test.yaml, questions in .jsonl or .json, "
                "dataset.yaml) or configuration files (suites/, run_profiles/, models.yaml, ...)"
            )

    def _refuse(self, *problems: str | ConfigError) -> None:
        """Add errors: texts of one or more lines, each with its place."""
        for problem in problems:
            self.findings += find_problems(str(problem))

    def _warn(self, *problems: str) -> None:
        """Add warnings: lines with their places."""
        for problem in problems:
            self.findings += find_problems(problem, is_error=False)

    def _check_file(self, path: Path, kind: type[ConfigFile] | None, root: ConfigRoot) -> None:
        try:
            if path.name == COMMANDS_FILE:
                commands = read_commands(path)
                self._refuse(*commands.refused.values())
                self._warn(*commands.notes)
            elif path.name == SKILL_FILE:
                self._warn(*find_skill_doubts(read_skill(path.parent)))
            elif kind is TestCaseFile:
                if path.name not in CASE_FILES:
                    raise ConfigError(
                        f"{path}:1:1: found a test case in a file that pytest does not collect, expected the name "
                        "test.yaml in a separate folder; rename it"
                    )
                self._check_source(TEST_YAML, path, root)
            elif kind is None or kind is DatasetDescriptor:
                self._check_source(named_source(path, root) or DATASETS, path, root)
            else:
                self._check_config_file(path, root, kind)
        except ConfigError as error:
            self._refuse(error)

    def _list_files(self, path: Path, near_misses: list[str]) -> Iterator[tuple[Path, type[ConfigFile] | None]]:
        """Yield files with their kinds: None for a file of questions or tasks, a commands.json and a SKILL.md.

        Add a sentence to `near_misses` for each file that is almost a dataset.
        """
        if path.is_dir():
            yield from find_config_files(path)
            yield from ((file, None) for file in find_named(path, _NAMED))
            # Files that are cases and have a kind too, such as test.yaml, were yielded above.
            yield from ((file, None) for file in find_cases(path, near_misses) if kind_of(file) is None)
        elif path.name in _NAMED and find_source(path) is None:
            yield path, None
        elif (kind := kind_of(path)) is not None or find_source(path) is not None or _is_described(path):
            yield path, kind
        elif {"case_sources", "file_kinds"} & additions_for(path.parent):
            self._warn(f"{path}:1:1: not checked: no kind of file that is known here; only a session loads conftest.py")
        elif is_table(path.name):
            self._refuse(describe_expected_rows(str(path)))
        else:
            self._refuse(
                f"{path}:1:1: found no kind of file that is known, expected one by its place (suites/, run_profiles/, "
                "...), its name (test.yaml, models.yaml, servers.yaml), its id (case_id, suite_id, ...), or a dataset"
            )

    def _check_source(self, source: CaseSource, path: Path, root: ConfigRoot) -> None:
        additions = additions_for(path.parent)
        opened = source.open(path, SourceRequest(root, verified_names(self._known, additions)))
        self._rules.claim_name(opened, root)
        try:
            for obstacle in self._obstacles_of(root).find_in_file(opened):
                self._refuse(obstacle.message)  # its rows are checked all the same
        except ConfigError as error:
            self._refuse(error)
        doubts = [*opened.doubts(add_declared(self._known, path.parent)), *opened.field_doubts()]
        self._warn(*(placed for placed, _ in doubts))
        if opened.is_remote:  # nothing is downloaded to check it
            return
        file_doubts = {text for _, text in doubts}
        # One pass: `row_doubts` pulls the rows that `_check_rows` yields, so a dataset is never held in memory.
        try:
            self._warn(*opened.row_doubts(self._check_rows(opened, root, file_doubts, additions)))
            self._warn(*opened.row_notes())
        except CodeNotRun as reason:
            self._warn(f"{reason}; its rows were not checked")

    def _check_rows(
        self, opened: OpenedSource, root: ConfigRoot, file_doubts: set[str], additions: frozenset[str]
    ) -> Iterator[SourceCase]:
        """Check each row as a case and yield the good ones. Doubts of the whole file are not repeated for its rows."""
        # Obstacles by their text: a dataset of 10,000 rows without answers is one error with a count.
        alike: dict[str, list[Finding]] = {}
        golds = GoldTest(self._registry.metrics)
        for row in chain(opened.problems(), opened.rows()):
            if isinstance(row, BadRow):
                self._refuse(row.message)
                continue
            try:
                self._check_case(case := row.make(), opened, row, root, file_doubts)
                obstacles = list(self._obstacles_of(root).find(case, opened, row))
            except ConfigError as error:
                self._refuse(error)
            else:
                for obstacle in obstacles:
                    if obstacle.unless & additions:
                        self._warn(f"{obstacle.message}; {_ADDED}")
                        continue
                    for finding in find_problems(obstacle.message):
                        alike.setdefault(finding.text, []).append(finding)
                golds.add(case)
            yield row
        for problem in golds.problems():
            self.findings += find_problems(problem, is_error=self._strict)
        for first, *others in alike.values():
            if others:
                first = replace(first, text=f"{first.text} (and {count_text(len(others), 'more row')})")
            self.findings.append(first)

    def _obstacles_of(self, root: ConfigRoot) -> Obstacles:
        if root not in self._obstacles:
            self._obstacles[root] = Obstacles(root, self._registry, self._rules, *self._profiles)
        return self._obstacles[root]

    def _check_case(
        self, case: Case, opened: OpenedSource, row: SourceCase, root: ConfigRoot, known_doubts: set[str]
    ) -> None:
        """Check a case. Warn of each doubt that is not in `known_doubts`, and add it there. Raises ConfigError."""
        self.cases += 1
        self._rules.claim_id(opened, row, root)
        for name, server in case.mcp_servers.items():
            if server is not None and (problem := server_refusal(name, server, root, _IN_CONTAINERS)):
                raise ConfigError(f"{case.path}:{case.line}:1: MCP server {name!r}: {problem}")
        known = add_declared(self._known, case.path.parent)
        new = [text for text in _list_doubts(case, known) if text not in known_doubts]
        known_doubts.update(new)
        self._warn(*(f"{case.path}:{case.line}:1: {text}" for text in new))
        if case.verify:
            self.verified.append(case)
        self._scripts.load_beside(case)  # raises if the script next to the case is wrong

    def _check_config_file(self, path: Path, root: ConfigRoot, kind: type[ConfigFile]) -> None:
        names = verified_names(self._known, additions_below(root.path))
        file = load(path, kind, names).read_by(root.origin(path))
        self._refuse_guests(file, path, root)
        self._warn(*place_doubts(file), *self._list_idle(file, root))
        problems = [*self._find_wrong_references(file, root), *_find_shared_id(file, path, root)]
        problems += [problem for added in added_kinds() if added.model is kind for problem in added.problems(path)]
        if problems:
            raise make_located_error(path, problems)

    def _refuse_guests(self, file: ConfigFile, path: Path, root: ConfigRoot) -> None:
        """Raise ConfigError if a guest's file loosens a limit. Warn of models that a session would refuse if asked."""
        if isinstance(file, RunProfile | EvaluationProfile | SuiteFile):
            root.refuse_loosening(path, file, file.default())
        elif isinstance(file, ModelsFile) and isinstance(models := root.models(), GuestModels):
            self._warn(*(str(models.refusal(name)) for name in models.theirs))

    def _find_wrong_references(self, file: ConfigFile, root: ConfigRoot) -> Iterator[tuple[Loc, str]]:
        """Yield references to other files that are wrong."""
        if isinstance(file, RunProfile | EvaluationProfile):
            for section, value in file.sections():
                yield from (((section.name, *at), text) for at, text in section.references(value, root, {}))
        if isinstance(file, RunProfile) and file.origin is not None:
            root.run_profile(str(file.origin.path))  # raises if it names a program outside of the root
            yield from find_unknown_overrides(file, root, {OWN_AGENT})
            for name, server in file.mcp_servers.items():
                if problem := server_refusal(name, server, root, file):
                    yield ("mcp_servers", name), problem
        # The user's own alone: a guest's models are not used, and were warned of above.
        if isinstance(file, ModelsFile) and file.origin is not None and file.origin.is_users:
            _refuse_keys(file)
        if not isinstance(file, SuiteFile):
            return
        cases = self._index_cases(root)
        yield from suite_problems(file, [(case.case_id, case.tags) for case in cases.values()], root)

    def _list_idle(self, file: ConfigFile, root: ConfigRoot) -> list[str]:
        """Return the doubts about fields of a file that no session uses."""
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
    """Yield the problem if another file has the id of this one too."""
    for kind in (*OWN_KINDS.values(), *added_kinds()):
        folder = path.parent if kind.stem is None else path.parent.parent
        if not isinstance(file, kind.model) or folder != root.path / kind.folder:
            continue
        # The look-up of a session raises for an id that two files have.
        try:
            root.find(kind.folder, getattr(file, kind.id_field))
        except ConfigError as error:
            yield (kind.id_field,), str(error)


def _refuse_keys(file: ModelsFile) -> None:
    """Raise ConfigError for an entry whose API key would be sent to a foreign endpoint."""
    for entry in file.models:
        resolve_model(entry.model_id, models=file)


def _is_described(path: Path) -> bool:
    """Return whether a descriptor lists the file."""
    if path.suffix not in DATA_SUFFIXES:
        return False
    try:
        return open_dataset(path, enclosing_root(path)).recipe is not None
    except ConfigError:
        return True  # checking the file reports the error


_ADDED = "unless a conftest.py or plugin, which are not loaded here, adds it"


def _list_doubts(case: Case, known: Known) -> Iterator[str]:
    """Yield doubts about a case: names that only a plugin can know, and file checks that pass before any run."""
    if not any(part.is_answered for part in case.case_parts):
        yield from unregistered("runner", [case.runner.type], known.runners)
    yield from unregistered("tool", case.tools, known.tools)
    yield from unregistered("metric", [metric.name for metric in case.metrics], known.metrics)
    leaves = (leaf for check in case.checks for _, leaf in check.leaves if leaf.declarative is not None)
    yield from unregistered("check kind", [leaf.kind for leaf in leaves], known.checks)
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
