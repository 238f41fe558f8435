"""Cases of evals files: each entry runs with its skill, and its expectations are the judge's."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

from pytest_agentbench.config.base import Known, Scope
from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.config.skills import read_skill
from pytest_agentbench.config.variant_files import FileWithVariants
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.packs.skill_evals.entries import (
    Assertion,
    EvalEntry,
    EvalsFile,
    SkillEval,
    read_evals,
    shows_evals,
)
from pytest_agentbench.records.case import (
    Case,
    Criterion,
    Expectation,
    Expectations,
    Message,
    Rubric,
    RunnerSpec,
    legal_id,
)
from pytest_agentbench.records.check_specs import Check
from pytest_agentbench.records.skills import SKILL_FILE, Skill, SkillTrigger
from pytest_agentbench.sources.case_source import (
    BadRow,
    CaseSource,
    OpenedSource,
    SourceCase,
    SourceRequest,
    StoredAnswers,
    limit_bad,
)
from pytest_agentbench.sources.dataset import dataset_name
from pytest_agentbench.sources.rows import short_title
from pytest_agentbench.sources.triggers import add_trigger_check, count_repetitions
from pytest_agentbench.terminal_text import visible

_FILES = "evals/files/"
_WITH: dict[str, Any] = {"with": {}}
"""Variants of an evals file that only shows whether its skill is used."""
_ARMS = {"without": {"skills": []}, **_WITH}
"""Variants by which an evals file shows whether its skill helps; the first one is the reference."""
_COMPARISONS = {
    "contains": ("contains", "text"),
    "icontains": ("icontains", "text"),
    "not-contains": ("not_contains", "text"),
    "starts-with": ("starts_with", "text"),
    "equals": ("equals", "text"),
}
"""Types of assertions with an equal check: its kind, and the field of its text."""
PART = "skill_eval"
"""Name of the part of these cases."""
PROBE = "llm_probe"
_FILE_TOOLS = ("read_file", "write_file", "list_files")
_MOST_FILE = 50 * 2**20
"""Maximum bytes of an entry's file."""


class OpenedEvals(OpenedSource):
    """An opened evals file. Case ids are `SKILL__ID`.

    By default its cases run without and with the skill. Cases that only decide its use run with it.
    """

    own_ids = True

    def __init__(self, path: Path, request: SourceRequest) -> None:
        super().__init__(path)
        self.file_evals: EvalsFile = read_evals(path)
        self._entries = list(self.file_evals.read())
        self.folder = find_skill_folder(path, request.root)
        self.skill: Skill | None = None if self.folder is None else read_skill(self.folder)
        self.name = dataset_name(path, request.root)
        self.metrics = request.metrics or ()
        defaults = {} if request.run_profile is None else request.run_profile.runner_defaults
        self.runner = RunnerSpec(type=str(defaults.get("type") or PROBE))
        if self.skill is not None:
            file = {"schema_version": 1, "variants": _ARMS if self._has_outputs() else _WITH}
            self.default_variants = (
                FileWithVariants.model_validate(file)
                .read_named_files(Scope(str(path.parent)))
                .read_by(request.root.origin(path))
            )

    def _has_outputs(self) -> bool:
        entries = [placed.entry for placed in self._entries if placed.entry is not None]
        return bool(self.metrics) or any(entry.has_output for entry in entries)

    @property
    def skill_name(self) -> str:
        """Return the name of the skill: the file's, else that of the folder above."""
        if self.file_evals.skill_name is not None:
            return self.file_evals.skill_name
        return self.path.parent.name if self.skill is None else self.skill.name

    def rows(self, subject: StoredAnswers | None = None) -> Iterator[SourceCase | BadRow]:
        """Yield the cases; after 100 bad ones the rest are only counted."""
        return limit_bad(self._rows(), lambda last, more: self._bad(last.line, f"{more} more entries are bad"))

    def _rows(self) -> Iterator[SourceCase | BadRow]:
        if not self._entries:
            yield self._bad(1, "found no entry, expected at least one with a prompt or a query")
        for placed in self._entries:
            if placed.entry is None:
                yield BadRow(placed.line, placed.error, self.path)
                continue
            try:
                case = self._case(placed.entry, placed.number, placed.line)
            except ConfigError as error:
                yield self._bad(placed.line, str(error))
                continue
            yield SourceCase(
                *(case.case_id, (), self.path, placed.line),
                make=lambda case=case: case,  # type: ignore[misc]
                repetitions=count_repetitions(case),
            )

    def _case(self, entry: EvalEntry, number: int, line: int) -> Case:
        """Return the case of an entry. Raises ConfigError for a file that cannot be used."""
        name = f"eval_{number}" if entry.id is None else str(entry.id)
        checks, statements, left_out = _read_assertions((*entry.expectations, *entry.assertions))
        statements += [text for text in entry.expected_behavior if text.strip()]
        trigger = None
        if entry.should_trigger is not None:
            trigger = SkillTrigger(name=self.skill_name, should_trigger=entry.should_trigger)
        rubric = None
        if entry.expected_output:
            criterion = Criterion(name="expected_output", what_good_looks_like=entry.expected_output)
            rubric = Rubric(criteria=(criterion,))
        metadata: dict[str, Any] = {**(entry.model_extra or {})}
        if left_out:
            metadata["left_out"] = left_out
        case = Case(
            case_id=legal_id(f"{self.skill_name}__{name}"),
            title=short_title(entry.name or entry.text),
            path=self.path,
            line=line,
            dataset=self.name,
            runner=self.runner,
            messages=(Message(role="user", content=entry.text),),
            expectations=Expectations(hard_expectations=tuple(Expectation(text=text) for text in statements)),
            require_hard=bool(statements),
            rubric=rubric,
            checks=checks,
            metrics=self.metrics,
            workspace=self._workspace(entry),
            metadata=metadata,
            **self._tools(entry),
            parts={PART: SkillEval()},
            skill=trigger,
            skills=() if self.skill is None else (self.skill,),
            report_only=not (checks or statements or rubric or trigger or self.metrics),
        )
        return add_trigger_check(case)

    def _tools(self, entry: EvalEntry) -> dict[str, Any]:
        """Return the tools by which `llm_probe` reaches the entry's files; agents have their own."""
        if not entry.files or self.runner.type != PROBE:
            return {}
        return {"context": {PROBE: {"tools": [*_FILE_TOOLS]}}, "tools": _FILE_TOOLS}

    def _workspace(self, entry: EvalEntry) -> Path | None:
        """Return a folder with the entry's files, None without files. Raises ConfigError."""
        if not entry.files:
            return None
        top = (self.folder or self.path.parent).resolve()
        sources: dict[str, tuple[str, int, int]] = {}
        for name in entry.files:
            source = (top / name).resolve()
            if not source.is_relative_to(top) or not source.is_file():
                raise ConfigError(f"files: found {name!r}, expected a file below {top}")
            status = source.stat()
            if status.st_size > _MOST_FILE:
                raise ConfigError(
                    f"files: found {name!r} with {status.st_size:,} bytes, expected at most {_MOST_FILE:,}"
                )
            target = _name_in_workspace(name)
            if target in sources:
                raise ConfigError(f"files: found two files for {target!r} in the workspace, expected different names")
            sources[target] = (str(source), status.st_mtime_ns, status.st_size)
        return _make_tree(tuple(sorted((target, *source) for target, source in sources.items())))

    def doubts(self, known: Known) -> Iterator[tuple[str, str]]:
        """Yield a doubt about another name than the skill's own."""
        named = self.file_evals.skill_name
        if self.skill is not None and named not in (None, self.skill.name):
            text = f"skill_name: found {named!r}, and {SKILL_FILE} has the name {self.skill.name!r}"
            yield f"{self.path}:1:1: {text}", text

    def _bad(self, line: int, reason: str) -> BadRow:
        return BadRow(line, visible(f"{self.path}:{line}:1: {reason}"), self.path)


def _name_in_workspace(name: str) -> str:
    """Return the path in the workspace of an entry's file, which is relative for `evals/files//etc/passwd` too."""
    path = PurePosixPath(name)
    return str(path).partition(_FILES)[2] or path.name


def find_skill_folder(path: Path, root: ConfigRoot) -> Path | None:
    """Return the folder of the skill whose `evals` folder contains the file, or that contains the file itself.

    A guest's evals belong to a skill in the guest's folder.
    """
    within = None if root.guest is None else root.guest.folder.resolve()
    for folder in (path.parent.parent, path.parent):
        if (folder / SKILL_FILE).is_file() and (within is None or folder.resolve().is_relative_to(within)):
            return folder
    return None


def _read_assertions(assertions: tuple[Assertion, ...]) -> tuple[tuple[Check, ...], list[str], list[str]]:
    """Return checks for comparisons, statements for the judge, and the assertions without a counterpart."""
    checks: list[Check] = []
    statements: list[str] = []
    left_out: list[str] = []
    for assertion in assertions:
        if assertion.type is None:
            statements.append(assertion.text or assertion.name or "")
        elif assertion.type in _COMPARISONS and isinstance(assertion.value, str) and assertion.value:
            kind, field = _COMPARISONS[assertion.type]
            check_id = f"{kind}_{len(checks) + 1}"
            checks.append(
                Check.model_validate({"check_id": check_id, "declarative": {"kind": kind, field: assertion.value}})
            )
        else:
            left_out.append(f"assertion of type {assertion.type!r} has no counterpart")
    return tuple(checks), statements, left_out


_trees: list[tempfile.TemporaryDirectory[str]] = []
"""The folder of all trees of this process, which is removed at its exit."""


@cache
def _make_tree(files: tuple[tuple[str, str, int, int], ...]) -> Path:
    """Return a folder with copies of files: target, source, and time and size, by which a changed file is another."""
    if not _trees:
        _trees.append(tempfile.TemporaryDirectory(prefix="agentbench-evals-"))
    folder = Path(tempfile.mkdtemp(dir=_trees[0].name))
    for target, source, _, _ in files:
        (folder / target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, folder / target)
        (folder / target).chmod(0o644)
    return folder


class EvalsFiles(CaseSource):
    """Evals files of skills."""

    holds = "evals of a skill"

    def holds_cases(self, path: Path, head: str | None) -> bool:
        """Return whether the head shows evals."""
        return head is not None and shows_evals(path.name, head)

    def open(self, path: Path, request: SourceRequest) -> OpenedEvals:
        """Return the parsed file. Raises ConfigError if it or its skill cannot be read."""
        return OpenedEvals(path, request)


EVALS = EvalsFiles()
