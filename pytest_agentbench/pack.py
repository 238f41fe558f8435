"""A pack: everything that one distribution, or one conftest.py, adds to this package, declared in one place."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from pytest_agentbench.extensions import Registration
from pytest_agentbench.seams import FIELDS

TYPE_CHECKING = False  # not from typing: see extensions.py
if TYPE_CHECKING:
    from collections.abc import Callable
    from os import PathLike
    from typing import Any, TypeVar

    from pydantic import BaseModel

    from pytest_agentbench.checks.base import CheckKind
    from pytest_agentbench.cli.doctor_needs import PackNeeds
    from pytest_agentbench.config.sections import FileKind, ProfileSection
    from pytest_agentbench.engine.conversations import Driver
    from pytest_agentbench.engine.grading import Grader
    from pytest_agentbench.judging.asking import JudgeBackend
    from pytest_agentbench.metrics.registry import Metric
    from pytest_agentbench.models.client import Provider
    from pytest_agentbench.records.base import CasePart, Record
    from pytest_agentbench.reports.sections import ReportFormat, ReportSection
    from pytest_agentbench.runners.base import Runner
    from pytest_agentbench.seams import Command, ScriptSections, SourceFiles
    from pytest_agentbench.tools.base import Tool
    from pytest_agentbench.workspaces.sandboxes.base import SandboxProvider

    T = TypeVar("T")
    Things = Mapping[str, T | str]

_NONE: Mapping[str, Any] = MappingProxyType({})


class Pack(Registration):
    """What one pack adds, by the names that files use::

        PACK = Pack(
            "quiz",
            case_sources={"quiz": SourceFiles("my_package.quiz:QUIZ", ["*.quiz"])},
            checks={"is_short": "my_package.checks:is_short"},
        )

    A value is an object, or a reference `package.module:OBJECT` that is imported when its name is first used. A command
    or session imports the module with the Pack even if no file uses the pack: keep that module small, and refer to
    objects in other modules. The field `graders` has graders of case parts: each decides the cases with the part of its
    name. A command of a group has two words: `{"mcp report": ...}`.
    """

    def __init__(
        self,
        name: str,
        *,
        runners: Things[Runner] = _NONE,
        tools: Things[Tool] = _NONE,
        checks: Things[CheckKind] = _NONE,
        metrics: Things[Metric] = _NONE,
        judges: Things[JudgeBackend] = _NONE,
        graders: Things[Grader] = _NONE,
        drivers: Things[Driver] = _NONE,
        model_providers: Things[Provider] = _NONE,
        case_sources: Things[SourceFiles] = _NONE,
        case_parts: Things[type[CasePart]] = _NONE,
        evaluation_parts: Things[type[Record]] = _NONE,
        run_profile_sections: Things[ProfileSection[Any]] = _NONE,
        evaluation_profile_sections: Things[ProfileSection[Any]] = _NONE,
        suite_sections: Things[ProfileSection[Any]] = _NONE,
        file_kinds: Things[FileKind] = _NONE,
        sandboxes: Things[SandboxProvider] = _NONE,
        report_sections: Things[ReportSection] = _NONE,
        report_formats: Things[ReportFormat] = _NONE,
        commands: Things[Command] = _NONE,
        doctor_needs: Things[PackNeeds] = _NONE,
        agents: Things[PathLike[str]] = _NONE,
        images: Things[Callable[[str], str]] = _NONE,
        schemas: Things[type[BaseModel]] = _NONE,
        scripts: Things[ScriptSections] = _NONE,
        scripted_verdicts: Mapping[str, Any] = _NONE,
    ) -> None:
        arguments = locals()
        super().__init__(name, {field: arguments[field] for field in FIELDS if arguments[field] is not _NONE})
