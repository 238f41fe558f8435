"""Declare what other plugins and conftest files may add.

`pytest_agentbench_packs` returns all additions at once, as an installed pack declares them. Each of the other hooks
returns a mapping from names in YAML to objects, or to references `"module:OBJECT"`.

A name that is already taken is a usage error, so that no plugin replaces anything silently. Additions last as long as
the session. The hooks from case parts downwards are not called in a guest's conftest (docs/security.md), because it
could loosen limits.

The entry point of a Pack makes its additions known to commands without a session too: `agentbench validate`, `schema`,
`doctor`, formats and commands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pytest_agentbench.checks.base import CheckKind
    from pytest_agentbench.config.sections import FileKind, ProfileSection
    from pytest_agentbench.engine.conversations import Driver
    from pytest_agentbench.engine.grading import Grader
    from pytest_agentbench.judging.asking import JudgeBackend
    from pytest_agentbench.metrics.registry import Metric
    from pytest_agentbench.models.client import Provider
    from pytest_agentbench.pack import Pack
    from pytest_agentbench.records.base import CasePart, Record
    from pytest_agentbench.reports.sections import ReportSection
    from pytest_agentbench.runners.base import Runner
    from pytest_agentbench.seams import SourceFiles
    from pytest_agentbench.tools.base import Search, Tool
    from pytest_agentbench.workspaces.sandboxes.base import SandboxProvider


@pytest.hookspec
def pytest_agentbench_packs() -> Sequence[Pack]:
    """Return packs, each with all things that belong together.

    A guest's conftest cannot add some of the things of a pack (docs/security.md); these are ignored with a warning.

    Example::

        def pytest_agentbench_packs():
            return [Pack("letters", runners={"echo": echo}, checks={"line_count": line_count})]
    """


@pytest.hookspec
def pytest_agentbench_runners() -> Mapping[str, Runner]:
    """Return ways to run a case: `{type: async (case, context) -> str | RunOutput | None}`.

    A RunnerKind in place of the function declares more, for example tools of its own.

    Example::

        def pytest_agentbench_runners():
            return {"my_agent": run_my_agent}  # a case then has `runner: {type: my_agent}`
    """


@pytest.hookspec
def pytest_agentbench_tools() -> Mapping[str, Tool]:
    """Return tools that cases may name in `input.context.llm_probe.tools`: `{name: Tool}`.

    Example::

        def pytest_agentbench_tools():
            return {"clock": Tool("clock", "Returns the time.", {"type": "object"}, tell_time)}
    """


@pytest.hookspec
def pytest_agentbench_checks() -> Mapping[str, CheckKind]:
    """Return kinds of deterministic checks: `{kind: (spec, context) -> Verdict}`; the spec carries the YAML fields.

    A subclass of CheckSpec instead of the function has typed fields, which are validated when a case is loaded.

    Example::

        def pytest_agentbench_checks():
            return {"is_haiku": is_haiku}  # declarative: {kind: is_haiku, lines: 3}
    """


@pytest.hookspec
def pytest_agentbench_metrics() -> Mapping[str, Metric]:
    """Return metrics: `{name: (ground_truth, prediction, **kwargs) -> float in [0, 1]}`.

    Example::

        def pytest_agentbench_metrics():
            return {"has_code": lambda ground_truth, prediction: float("def " in prediction)}
    """


@pytest.hookspec
def pytest_agentbench_judges() -> Mapping[str, JudgeBackend]:
    """Return kinds of judges in addition to `llm_probe`: `{type: async (messages, judge, case) -> JudgeReply}`.

    The reply's text must follow the same contract as a model's; an invalid reply is asked for again.

    Example::

        def pytest_agentbench_judges():
            return {"panel": ask_the_panel}  # an evaluation profile then has `type: panel`
    """


@pytest.hookspec
def pytest_agentbench_graders() -> Mapping[str, Grader]:
    """Return graders, which decide runs in addition to checks, metrics and judges: `{name: Grader}`, for every case.

    Example::

        def pytest_agentbench_graders():
            return {"budget": BudgetGrader()}  # a subclass of pytest_agentbench.Grader
    """


@pytest.hookspec
def pytest_agentbench_drivers() -> Mapping[str, Driver]:
    """Return drivers, which decide the user's messages: `{part: async (conversation, case, context) -> None}`.

    A driver is for the cases that have the part of its name.

    Example::

        def pytest_agentbench_drivers():
            return {"interview": hold_interview}  # test.yaml: `interview: {...}`, a part from the hook of case parts
    """


@pytest.hookspec
def pytest_agentbench_model_providers() -> Mapping[str, Provider]:
    """Return ways to reach models that are not OpenAI-compatible: `{provider: (model) -> client}`.

    The client has `ChatClient`'s attribute `model` and method `complete`; a process makes one for each model.

    Example::

        def pytest_agentbench_model_providers():
            return {"in_house": InHouseClient}  # an entry of models.yaml then has `provider: in_house`
    """


@pytest.hookspec
def pytest_agentbench_case_sources() -> Mapping[str, SourceFiles]:
    """Return kinds of files that hold cases: `{name: SourceFiles(source, patterns, words)}`.

    The patterns are of file names; a data file is opened if its first 64 KB contain one of the words.

    Example::

        def pytest_agentbench_case_sources():
            return {"notes": SourceFiles(NotesSource(), ["*.notes.yaml"], ["schema_version"])}
    """


@pytest.hookspec
def pytest_agentbench_case_parts() -> Mapping[str, type[CasePart]]:
    """Return models of parts that cases have in addition to their own fields: `{name: subclass of CasePart}`.

    With `is_section = True` a test.yaml may have it under its name; otherwise a case source makes it.

    Example::

        def pytest_agentbench_case_parts():
            return {"budget": Budget}  # test.yaml: `budget: {words: 50}`; then: case.part(Budget).words
    """


@pytest.hookspec
def pytest_agentbench_evaluation_parts() -> Mapping[str, type[Record]]:
    """Return models of graders' parts of a verdict: `{part_name: subclass of Record}`.

    Commands of `agentbench` ask no conftest: they read such verdicts if an installed pack has the model.

    Example::

        def pytest_agentbench_evaluation_parts():
            return {"brevity": Brevity}  # of a grader with part_name = "brevity"
    """


@pytest.hookspec
def pytest_agentbench_profile_sections() -> Mapping[str, ProfileSection[Any]]:
    """Return sections of run profiles, evaluation profiles or suites: `{name: ProfileSection}`.

    Example::

        PACE = ProfileSection("pace", "run_profile", Pace, "How fast.", default=Pace)


        def pytest_agentbench_profile_sections():
            return {"pace": PACE}  # a run profile then has `pace: {steps: 3}`, a runner asks profile.section(PACE)
    """


@pytest.hookspec
def pytest_agentbench_file_kinds() -> Mapping[str, FileKind]:
    """Return kinds of configuration files: `{folder: FileKind}`, found by id in that folder of a config root.

    Example::

        def pytest_agentbench_file_kinds():
            return {"personas": FileKind("persona", "personas", "persona_id", Persona)}
    """


@pytest.hookspec
def pytest_agentbench_sandboxes() -> Mapping[str, SandboxProvider]:
    """Return kinds of sandboxes: `{name: SandboxProvider}`; a session opens each kind that it needs.

    Example::

        def pytest_agentbench_sandboxes():
            return {"farm": Farm()}  # a run profile then has `sandbox: farm`
    """


@pytest.hookspec
def pytest_agentbench_report_sections() -> Mapping[str, ReportSection]:
    """Return sections of reports: `{name: ReportSection}`, for cases and verdicts with a part of that name.

    Commands of `agentbench` ask no conftest: they read such a report.json if an installed pack has the section.

    Example::

        def pytest_agentbench_report_sections():
            return {"brevity": BrevitySection()}  # rows and models of report.json then have `brevity`
    """


@pytest.hookspec(firstresult=True)
def pytest_agentbench_web_search() -> Search | None:
    """Return a backend of the tool web_search: `async (query) -> [SearchResult]`, None for "not mine".

    Without one: SearXNG at AGENTBENCH_SEARXNG_URL, Brave with BRAVE_API_KEY, Tavily with TAVILY_API_KEY.
    """
