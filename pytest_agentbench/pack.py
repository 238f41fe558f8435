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
    from typing import Any

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

_NONE: Mapping[str, Any] = MappingProxyType({})


class Pack(Registration):
    """All additions of one pack, by the names that files use.

    Example::

        PACK = Pack(
            "quiz",
            case_sources={"quiz": SourceFiles("my_package.quiz:QUIZ", ["*.quiz"])},
            checks={"is_short": "my_package.checks:is_short"},
        )

    A value is an object, or a reference `package.module:OBJECT` that is imported when its name is first used. Commands
    and sessions import the module with the Pack even if no file uses the pack. Keep that module small, and refer to
    objects in other modules. A grader decides the cases with the part of its name. A command of a group has two words:
    `{"mcp report": ...}`.
    """

    def __init__(
        self,
        name: str,
        *,
        runners: Mapping[str, Runner | str] = _NONE,
        tools: Mapping[str, Tool | str] = _NONE,
        checks: Mapping[str, CheckKind | str] = _NONE,
        metrics: Mapping[str, Metric | str] = _NONE,
        judges: Mapping[str, JudgeBackend | str] = _NONE,
        graders: Mapping[str, Grader | str] = _NONE,
        drivers: Mapping[str, Driver | str] = _NONE,
        model_providers: Mapping[str, Provider | str] = _NONE,
        case_sources: Mapping[str, SourceFiles | str] = _NONE,
        case_parts: Mapping[str, type[CasePart] | str] = _NONE,
        evaluation_parts: Mapping[str, type[Record] | str] = _NONE,
        run_profile_sections: Mapping[str, ProfileSection[Any] | str] = _NONE,
        evaluation_profile_sections: Mapping[str, ProfileSection[Any] | str] = _NONE,
        suite_sections: Mapping[str, ProfileSection[Any] | str] = _NONE,
        file_kinds: Mapping[str, FileKind | str] = _NONE,
        sandboxes: Mapping[str, SandboxProvider | str] = _NONE,
        report_sections: Mapping[str, ReportSection | str] = _NONE,
        report_formats: Mapping[str, ReportFormat | str] = _NONE,
        commands: Mapping[str, Command | str] = _NONE,
        doctor_needs: Mapping[str, PackNeeds | str] = _NONE,
        agents: Mapping[str, PathLike[str] | str] = _NONE,
        images: Mapping[str, Callable[[str], str] | str] = _NONE,
        schemas: Mapping[str, type[BaseModel] | str] = _NONE,
        scripts: Mapping[str, ScriptSections | str] = _NONE,
        scripted_verdicts: Mapping[str, Any] = _NONE,
    ) -> None:
        arguments = locals()
        super().__init__(name, {field: arguments[field] for field in FIELDS if arguments[field] is not _NONE})
