"""Graders of a plugin's evals as cases carry them, and their results as evaluations store them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, StrictInt, field_validator, model_validator

from pytest_agentbench.bounded.patterns import compile_pattern
from pytest_agentbench.config.base import Problems, suggest
from pytest_agentbench.packs.plugin_evals.javascript import translate_pattern
from pytest_agentbench.records.base import CasePart, Record, Text
from pytest_agentbench.records.case import InsidePath

PART = "plugin_eval"
"""Name of the part of a case, of its grader, of the evaluation's part and of the section in reports."""
SKILL_TOOL = "Skill"
"""Claude Code's tool that loads a skill. Other programs have other tools: the run's facts on skills count."""


def _check_pattern(pattern: str | None) -> str | None:
    if pattern is not None:
        compile_pattern(translate_pattern(pattern))
    return pattern


class FileTarget(Record):
    """The content of one file of the workspace."""

    source: Literal["file"]
    path: InsidePath
    """The file, relative to the workspace."""


TargetName = Literal["last_message", "trace", "files", "mock_calls"]
Target = TargetName | FileTarget
"""The text that a grader looks at: the answer, all messages as JSON lines, the paths of created files, the calls of
mocked tools as JSON lines, or a file."""


class _Grader(Record):
    name: Text = ""
    """Its name in reports; default: the name of its file, else its type and number."""
    weight: Annotated[float, Field(ge=0)] = 1.0
    """Its share among the graders; 0 only reports it."""
    arm: Literal["with-only", "both"] | None = None
    """with-only: it does not count if runs without and with a skill are compared. both: it counts in both."""


class RegexGrader(_Grader):
    """A JavaScript pattern is found in the target."""

    type: Literal["regex"]
    pattern: Text
    """A regular expression of JavaScript's."""
    flags: str = ""
    """Flags of JavaScript's: i, m and s; g and u change nothing here."""
    match: str = "contains"
    """contains, not_contains, or count:N for exactly N matches."""
    target: Target = "last_message"

    @field_validator("flags")
    @classmethod
    def _check_flags(cls, flags: str) -> str:
        if unknown := sorted(set(flags) - set("gimsu")):
            raise ValueError(f"found the flag {unknown[0]!r}, expected g, i, m, s and u")
        return flags

    @field_validator("match")
    @classmethod
    def _check_match(cls, match: str) -> str:
        if not re.fullmatch(r"contains|not_contains|count:[0-9]{1,9}", match):
            raise ValueError(f"found {match[:80]!r}, expected contains, not_contains or count:N")
        return match

    @field_validator("pattern")
    @classmethod
    def _check_pattern(cls, pattern: str) -> str:
        _check_pattern(pattern)
        return pattern

    @property
    def python_pattern(self) -> str:
        """Return the pattern in Python's syntax with its flags."""
        flags = "".join(flag for flag in "ims" if flag in self.flags)
        prefix = f"(?{flags})" if flags else ""
        return prefix + translate_pattern(self.pattern)


class ToolCalls(Record):
    """Calls of a tool, by its name in Claude Code."""

    tool: Text
    """The tool; portable tools (Bash, Read, Write, Edit) mean another program's own ones too."""
    input_match: Text | None = None
    """A regular expression of JavaScript's that is found in the call's input as JSON."""

    @field_validator("input_match")
    @classmethod
    def _check_pattern(cls, pattern: str | None) -> str | None:
        return _check_pattern(pattern)


class ToolUsedGrader(_Grader, ToolCalls):
    """The number of calls of a tool is in a range."""

    type: Literal["tool_used"]
    min: Annotated[StrictInt, Field(ge=0)] = 1
    """Minimum calls."""
    max: Annotated[StrictInt, Field(ge=0)] | None = None
    """Maximum calls; null: any number."""

    @model_validator(mode="after")
    def _check_range(self) -> Self:
        if self.max is not None and self.max < self.min:
            raise ValueError(f"found max {self.max} below min {self.min}, expected at least that")
        return self


class ToolOrderGrader(_Grader):
    """Two tools are called, and the first call of one precedes the first call of the other."""

    type: Literal["tool_order"]
    before: Text | ToolCalls
    after: Text | ToolCalls


class FileExistsGrader(_Grader):
    """A file that the run created matches a pattern of paths."""

    type: Literal["file_exists"]
    path: Text
    """A path relative to the workspace, with `*`, `**` and `?`."""
    exists: bool = True
    """false: no created file matches."""


class LlmGrader(_Grader):
    """A judge finds in two of three votes that the criteria are met."""

    type: Literal["llm"]
    criteria: Text
    """The criteria: the text below the front matter of a grader's file."""
    focus: Target = "last_message"


class BaselineGrader(_Grader):
    """A comparison with a stored transcript, which is left out."""

    type: Literal["baseline"]
    baseline_file: Text | None = None
    criteria: str | None = None


_TYPES = ("regex", "tool_used", "tool_order", "file_exists", "llm", "baseline")


def _check_type(value: Any) -> Any:
    if isinstance(value, dict) and value.get("type") not in _TYPES:
        text = f"found {value.get('type')!r:.60}, expected a type of grader{suggest(str(value.get('type')), _TYPES)}"
        raise Problems([(("type",), text)])
    return value


GraderSpec = Annotated[
    Annotated[
        RegexGrader | ToolUsedGrader | ToolOrderGrader | FileExistsGrader | LlmGrader | BaselineGrader,
        Field(discriminator="type"),
    ],
    BeforeValidator(_check_type),
]


def _looks_at_files(grader: GraderSpec) -> bool:
    if isinstance(grader, RegexGrader):
        return grader.target == "files" or isinstance(grader.target, FileTarget)
    if isinstance(grader, LlmGrader):
        return grader.focus == "files" or isinstance(grader.focus, FileTarget)
    if isinstance(grader, ToolUsedGrader):
        return grader.tool in ("Read", "Write")
    return isinstance(grader, FileExistsGrader)


class PluginEval(CasePart):
    """The graders of a case, without baselines."""

    has_own_id: ClassVar[bool] = True

    graders: tuple[GraderSpec, ...] = ()
    mock_tools: tuple[str, ...] = ()
    """The case's mocked tools, as `mcp__SERVER__TOOL`."""

    def identity(self, folder: Path) -> Mapping[str, Any]:
        """Return nothing: graders decide the verdict and change no run."""
        return {}

    @property
    def looks_at_files(self) -> bool:
        """Return whether a grader looks at files of the workspace, or at tools that make them."""
        return any(_looks_at_files(grader) for grader in self.graders)

    @property
    def asks_judge(self) -> bool:
        """Return whether a judge is asked."""
        return any(isinstance(grader, LlmGrader) for grader in self.graders)


class GraderResult(Record):
    """The result of one grader. `skipped` ones do not count; `message` is a sentence."""

    name: str
    type: str
    weight: float
    outcome: Literal["passed", "failed", "skipped"]
    message: str


class PluginEvalGrades(Record):
    """The results of a case's graders."""

    graders: tuple[GraderResult, ...]

    @property
    def failures(self) -> tuple[str, ...]:
        """Return a line for each failed grader that counts."""
        failed = (each for each in self.graders if each.outcome == "failed" and each.weight > 0)
        return tuple(f"grader {each.name}: {each.message}" for each in failed)


def weigh(results: Sequence[GraderResult]) -> float | None:
    """Return the weighted share of passed graders among those that are not skipped; None if none of them counts."""
    counted = [result for result in results if result.outcome != "skipped"]
    total = sum(result.weight for result in counted)
    if total == 0:
        return None
    return sum(result.weight for result in counted if result.outcome == "passed") / total
