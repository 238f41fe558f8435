"""`test.yaml`: one evaluation scenario, with its hidden files and its verifiers."""

import os
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    StrictBool,
    Tag,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    field_validator,
    model_validator,
)

from pytest_agentbench.config.base import (
    Known,
    LocalFile,
    LocalFolder,
    Problems,
    complain,
    find_duplicates,
    find_unregistered,
    known_of,
    require_folder,
    resolve_path,
    scope_of,
    validate_together,
)
from pytest_agentbench.config.case_context import CaseContext
from pytest_agentbench.config.case_messages import MessageSpec, Turns, find_inline_call_problems
from pytest_agentbench.config.check_list import (
    find_check_turns,
    find_expectation_turns,
    find_turn_problems,
    list_check_problems,
    place_problems,
)
from pytest_agentbench.config.documents import Loc
from pytest_agentbench.config.sections import (
    RUN_SETTINGS,
    CaseServers,
    ProfileSection,
    SectionedFile,
    find_settings_problems,
    part_section,
)
from pytest_agentbench.config.short_forms import RUNNER_NAME, ExpectationsField, RubricField, read_input
from pytest_agentbench.config.variant_files import CasesWithVariants
from pytest_agentbench.extensions import extension_names, load_extensions
from pytest_agentbench.records.base import Later, Record, Seconds, Slug, Tags, Text
from pytest_agentbench.records.case import (
    Expectations,
    Expected,
    InsidePath,
    MetricSpec,
    PytestTests,
    RunnerSpec,
    SandboxSettings,
    Thresholds,
)
from pytest_agentbench.records.check_specs import Check

if TYPE_CHECKING:
    import pytest_agentbench.records.conversations
    import pytest_agentbench.records.skills


def _kind(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "list"
    return "one"


def _existing(source: str, info: ValidationInfo) -> str:
    scope = scope_of(info)
    if scope is not None and not os.path.exists(real := resolve_path(source, scope)):
        raise ValueError(f"found {source!r}, expected an existing file or folder; there is no {real}")
    return source


def _some(values: tuple[Any, ...]) -> tuple[Any, ...]:
    if not values:
        raise ValueError("found an empty list, expected at least one element")
    return values


HiddenFiles = dict[InsidePath, Annotated[Text, AfterValidator(_existing)]]
"""Paths in the workspace, each with the file or folder that is copied there, relative to test.yaml."""

Command = Annotated[
    Annotated[Text, Tag("one")] | Annotated[tuple[Text, ...], AfterValidator(_some), Tag("list")], Discriminator(_kind)
]
"""A program with its arguments; or one text, for `/bin/sh -c`."""


class CaseHook(Record):
    """A command in the run's workspace and sandbox, without the agent."""

    command: Command
    """The command: a program with its arguments, or lines for /bin/sh, of which the first that fails is the end."""
    timeout_seconds: Seconds = 60.0
    """How long it may run."""


def _read_hook(value: Any) -> Any:
    if isinstance(value, str):
        return {"command": value}
    return value


HookField = Annotated[CaseHook, BeforeValidator(_read_hook, json_schema_input_type=CaseHook | Text)]
"""A command with its time limit, or lines for /bin/sh alone."""


class CaseVerifier(Record):
    """Decides the case by the state of the workspace. It runs in a separate sandbox, on a copy of the workspace."""

    check_id: Slug | None = None
    """Its name in reports; default: verify, or verify_2, verify_3 ... from the second on."""
    files: HiddenFiles = Field(default_factory=dict)
    """Files and folders that the agent never sees: target in the workspace, and source relative to test.yaml."""
    command: Command | None = None
    """The command to run in the workspace: a program with its arguments, or a text for /bin/sh."""
    expected: Later[Expected] | None = None
    """The expected result of the command; default: exit code 0."""
    pytest: Later[PytestTests] | None = None
    """Tests that pytest runs instead of a command."""
    keep: tuple[InsidePath, ...] = ()
    """Files of the agent's that stay although their names steer Python or pytest, such as pyproject.toml."""
    apart: StrictBool = False
    """The verifier sees only the hidden files, and sends requests to the solution, which runs in another sandbox."""
    canary: Annotated[Text, AfterValidator(require_folder)] | None = None
    """A folder with a solution that is known to be wrong, relative to test.yaml, for `agentbench validate --canary`;
    default: the case's workspace as it is in the beginning."""
    answer_file: InsidePath | None = None
    """The file of the workspace that gets the agent's final answer: its first fenced block of code, else all of it."""
    timeout_seconds: Seconds = 300.0
    """How long it may run."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.command is None) == (self.pytest is None):
            found = "neither" if self.command is None else "both"
            raise ValueError(f"found {found} of 'command' and 'pytest', expected exactly one")
        if self.pytest is not None and self.expected is not None:
            raise Problems([(("expected",), "belongs to 'command'; 'pytest' itself names the tests that have to pass")])
        if self.apart and self.keep:
            raise Problems([(("keep",), "keeps files of the agent, which a verifier with `apart` does not see")])
        return self


Verify = Annotated[
    Annotated[Later[CaseVerifier], Tag("one")]
    | Annotated[tuple[Later[CaseVerifier], ...], AfterValidator(_some), Tag("list")],
    Discriminator(_kind),
]
"""One verifier, or a list of them."""


def named_verifiers(verify: Verify | None) -> tuple[CaseVerifier, ...]:
    """Return all of them, each with its check_id."""
    verifiers = (verify,) if isinstance(verify, CaseVerifier) else verify or ()
    names = ("verify", *(f"verify_{number}" for number in range(2, len(verifiers) + 1)))
    return tuple(
        each.model_copy(update={"check_id": each.check_id or name})
        for each, name in zip(verifiers, names, strict=False)
    )


def verify_problems(verify: Verify | None, taken: Collection[str]) -> list[tuple[Loc, str]]:
    """Return a problem for each verifier whose check_id another one has, or a check of the case (`taken`)."""
    seen = set(taken)
    problems: list[tuple[Loc, str]] = []
    for index, verifier in enumerate(named_verifiers(verify)):
        if verifier.check_id in seen:
            at: Loc = () if isinstance(verify, CaseVerifier) else (index,)
            problems.append(((*at, "check_id"), f"Duplicate check_id {verifier.check_id!r}; each must be unique"))
        seen.add(verifier.check_id or "")
    return problems


def _check_runner(runner: RunnerSpec, info: ValidationInfo) -> RunnerSpec:
    scope = scope_of(info)
    complaints = find_unregistered([(("type",), runner.type)], known_of(info).runners, "runner")
    own = known_of(info).runner_says(runner.type, "own_fields") or ()
    complaints += find_settings_problems({name: value for name, value in runner.overrides.items() if name not in own})
    if (problems := known_of(info).runner_says(runner.type, "settings_problems")) is not None:
        complaints += problems(runner.overrides, scope)
    if known_of(info).runner_says(runner.type, "sends_requests") is False:
        complaints += [((name,), refuse_request_field(runner.type)) for name in runner.overrides.keys() - RUN_SETTINGS]
    complain(complaints)
    return runner


def refuse_request_field(runner: str) -> str:
    """Return the message about a request field of a runner that sends no requests."""
    return f"is a request field, and the runner {runner} sends no requests; leave it out"


def tools_problems(runner: RunnerSpec | None, context: Mapping[str, Any], known: Known) -> list[tuple[Loc, str]]:
    """Return the tools that a case offers to a runner that cannot take them, by their place in the context."""
    probe = context.get("llm_probe") or {}
    message = f"{_own_tools(runner)}; leave these out, or take the runner llm_probe"
    if _refuses_tools(runner, known):
        return [(("llm_probe", name), message) for name in ("tools", "functions") if probe.get(name)]
    if runner is not None and known.runner_says(runner.type, "own_tools") and probe.get("functions"):
        # Functions have no code to run
        return [(("llm_probe", "functions"), message)]
    return []


def _check_servers(servers: CaseServers, info: ValidationInfo) -> CaseServers:
    runner = info.data.get("runner")
    if not _refuses_tools(runner, known_of(info)) or not servers:
        return servers
    others = sorted(name for name, each in load_extensions("runner").items() if not refuses_tools(each))
    take = " or ".join(["llm_probe", *others])
    raise Problems([((), f"{_own_tools(runner)}; leave these out, or take the runner {take}")])


OfferedServers = Annotated[CaseServers, AfterValidator(_check_servers)]
"""MCP servers that a case offers to its runner, which has no built-in tools."""


def refuses_tools(runner: Any) -> bool:
    """Return whether a registered runner has its own tools, and cannot take those of a case."""
    return bool(getattr(runner, "own_tools", False)) and not getattr(runner, "takes_tools", False)


def _refuses_tools(runner: RunnerSpec | None, known: Known) -> bool:
    return runner is not None and refuses_tools(known.find_runner(runner.type))


def _own_tools(runner: RunnerSpec | None) -> str:
    return f"the runner {runner.type if runner else ''} has its own tools and cannot get others"


_PROBE = "llm_probe"
"""The built-in runner, which the table of runners would have to import."""


def find_conversation_problem(name: str, runner: Any, driver: str | None = None) -> str | None:
    """Return why a runner cannot hold a case's conversation, or None if it can.

    The conversation consists of fixed turns, or is held by the `driver`. `runner` is None for the built-in runner.
    """
    needed = "has_turns" if driver is None else "converse"
    if name == _PROBE or getattr(runner, needed, None):
        return None
    having = [name for name, kind in load_extensions("runner").items() if getattr(kind, needed, None)]
    others = f"unlike {' and '.join(map(repr, (*having, _PROBE)))}"
    if driver is None:
        return f"the runner {name!r} has no turns, {others}; use messages"
    return (
        f"the runner {name!r} holds no conversation with a driver, {others}; take one of these, or leave {driver} out"
    )


def _refuse_conversation(name: str, known: Known, place: Loc, driver: str | None = None) -> None:
    runner = known.find_runner(name)
    if runner is None and known.runners is None:  # `agentbench validate` loads no conftest, which may add the runner
        return
    if (problem := find_conversation_problem(name, runner, driver)) is not None:
        raise Problems([(place, problem)])


KnownRunner = Annotated[
    RunnerSpec,
    RUNNER_NAME,
    AfterValidator(_check_runner),
]
"""A registered runner with sound settings, or the name of an installed one."""


class CaseSandbox(Record):
    """Needs of the agent's commands around them; all of it is docker's."""

    image: Text | None = None
    """Image of the container, pinned by tag or digest; wins over the run profile's."""
    dockerfile: LocalFile | None = None
    """A Dockerfile to build the image from, in its own folder; relative to test.yaml."""
    compose: LocalFile | None = None
    """A compose file with services for the container; relative to test.yaml."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_kind(cls, given: Any) -> Any:
        theirs = SandboxSettings.model_fields.keys() - cls.model_fields.keys()
        if isinstance(given, str) or (isinstance(given, dict) and theirs & given.keys()):
            raise ValueError(
                f"found {given!r}, expected image, dockerfile or compose, which all mean docker; the kind of sandbox, "
                "its network and limits are set in the run profile's `sandbox`"
            )
        return given

    @field_validator("image", "dockerfile", "compose")
    @classmethod
    def _require_trust(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None and (scope := scope_of(info)) is not None:
            scope.refuse_program(repr(value))
        return value

    @model_validator(mode="after")
    def _one_image(self) -> Self:
        if self.image is not None and self.dockerfile is not None:
            raise ValueError("Specify only one of 'image' and 'dockerfile'")
        return self


class CaseInput(Record):
    """Input of the agent."""

    messages: Annotated[tuple[MessageSpec, ...], validate_together(find_inline_call_problems)] = ()
    """The messages sent to the model, in order; with turns, the context that comes with the first."""
    turns: Turns = ()
    """User messages sent one after the other in one session, to runners that hold one."""
    attachments: tuple[LocalFile, ...] = ()
    """Files shown to the agent just before its first user message; relative to test.yaml."""
    context: CaseContext = Field(default_factory=dict)
    """Settings of runners: `llm_probe: {tools: [...]}`, or a section of another runner."""

    @property
    def turn_count(self) -> int | None:
        """Return the number of turns, or None if files hold some of them, which are read later."""
        if any(turn.source is not None for turn in self.turns):
            return None
        return len(self.turns)


def _case_check_problems(checks: tuple[Check, ...], info: ValidationInfo) -> list[tuple[Loc, str]]:
    problems = list_check_problems(checks, info)
    case_input: CaseInput | None = info.data.get("input")
    if case_input is None:
        return problems
    ids_of_turns = {check.check_id for turn in case_input.turns for check in turn.checks}
    problems += (
        ((index, "check_id"), f"Duplicate check_id {check.check_id!r}, which a turn has; each must be unique")
        for index, check in enumerate(checks)
        if check.check_id in ids_of_turns
    )
    if case_input.turn_count:
        problems += find_check_turns(checks, case_input.turn_count)
    return problems


def _check_expectation_turns(written: Any, read: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Expectations:
    expectations: Expectations = read(written)
    case_input: CaseInput | None = info.data.get("input")
    if case_input is not None and case_input.turn_count:
        complain(place_problems(written, find_expectation_turns(expectations, case_input.turn_count)))
    return expectations


def _metric_problems(metrics: tuple[MetricSpec, ...], info: ValidationInfo) -> list[tuple[Loc, str]]:
    """Return metrics that are named twice or not registered, each at its place."""
    named: list[tuple[Loc, str]] = [((index, "name"), metric.name) for index, metric in enumerate(metrics)]
    return find_duplicates(metrics, "name") + find_unregistered(named, known_of(info).metrics, "metric")


Metrics = Annotated[tuple[Later[MetricSpec], ...], validate_together(_metric_problems)]
"""Registered metrics, each at most once."""


class TestCaseFile(CasesWithVariants, SectionedFile):
    """A test case: one scenario that runs against any model."""

    __test__: ClassVar[bool] = False
    seam: ClassVar[str] = "case_part"

    case_id: Slug
    """Unique under the config root."""
    title: Text
    """For people."""
    runner: KnownRunner
    """The runner's type and settings that win over the run profile's; or its type alone."""
    input: Annotated[CaseInput, BeforeValidator(read_input, json_schema_input_type=CaseInput | Text)]
    """Messages, attachments and context; or the text of one user message."""
    workspace: LocalFolder | None = None
    """A folder that each run's workspace starts as a copy of; relative to test.yaml."""
    sandbox: Later[CaseSandbox] | None = None
    """Requirements of the agent's commands."""
    skills: tuple[LocalFolder, ...] = ()
    """Folders of skills that the agent may load, or folders of such folders; relative to test.yaml."""
    plugins: tuple[LocalFolder, ...] = ()
    """Folders of plugins, whose skills and MCP servers the agent has in addition; relative to test.yaml."""
    conversation: Later["pytest_agentbench.records.conversations.ConversationLimits"] | None = None
    """Limits of a run with several turns; they take precedence over the run profile's."""
    skill: Later["pytest_agentbench.records.skills.SkillTrigger"] | None = None
    """Whether the agent should use a skill for this case, for the skill's trigger rate."""
    expectations: Annotated[ExpectationsField, WrapValidator(_check_expectation_turns)] = Field(
        default_factory=Expectations
    )
    """Statements in plain language that the judge weighs; or a list of hard ones."""
    rubric: RubricField | None = None
    """How the judge is to score; or the scoring instructions alone."""
    deterministic_checks: Annotated[tuple[Later[Check], ...], validate_together(_case_check_problems)] = ()
    """Checks without a model; each that fails fails the case."""
    metrics: Metrics = ()
    """Registered metrics of the final output against the reference; below its threshold a metric fails the case."""
    reference: str | None = None
    """The expected answer that metrics compare with."""
    mcp_servers: OfferedServers = Field(default_factory=dict)
    """MCP servers whose tools the agent may call: declared by name, or names of declared ones."""
    verify: Verify | None = None
    """Hidden files, and the command or tests that decide the case after the agent has stopped; or a list of these."""
    setup: HookField | None = None
    """A command in the run's workspace before the agent starts, or lines for /bin/sh; if it fails, the item errors."""
    teardown: HookField | None = None
    """A command in the run's workspace after the verdict, or lines for /bin/sh; if it fails, the session warns."""
    must_pass: StrictBool = False
    """A failure fails the session at any pass rate."""
    report_only: StrictBool = False
    """Nothing needs to decide the case: it is run and reported."""
    require_hard: StrictBool = False
    """A hard expectation that the judge finds unmet fails the case."""
    thresholds: Later[Thresholds] | None = None
    """Thresholds over all repetitions."""
    tags: Tags = ()
    """For selection: `-k`, `-m` and suites."""

    @classmethod
    def find_section(cls, name: str) -> ProfileSection[Any] | None:
        """Return the section that is the case's part of this name."""
        return part_section(name)

    @field_validator("verify")
    @classmethod
    def _check_unique_ids(cls, value: Verify | None, info: ValidationInfo) -> Verify | None:
        lists = [info.data.get("deterministic_checks", ())]
        if (case_input := info.data.get("input")) is not None:
            lists += [turn.checks for turn in case_input.turns]
        complain(verify_problems(value, [check.check_id for checks in lists for check in checks]))
        return value

    @field_validator("input")
    @classmethod
    def _check_input(cls, value: CaseInput, info: ValidationInfo) -> CaseInput:
        runner = info.data.get("runner")
        known = known_of(info)
        if value.turns and runner is not None:
            _refuse_conversation(runner.type, known, ("turns",))
        complain((("context", *at), text) for at, text in tools_problems(runner, value.context, known))
        return value

    @model_validator(mode="after")
    def _check_file(self, info: ValidationInfo) -> Self:
        if (problems := known_of(info).runner_says(self.runner.type, "file_problems")) is not None:
            complain(problems(self))
        for section, _ in self.sections():
            if section.name in extension_names("driver"):
                _refuse_conversation(self.runner.type, known_of(info), (section.name,), section.name)
        # A part of a pack may hold a conversation without fixed turns
        if not self.input.turns and not any(self.sections()):
            complain(self._find_turn_fields())
        return self

    def _find_turn_fields(self) -> Iterator[tuple[Loc, str]]:
        """Yield the fields that are about turns, which the case has none of."""
        if self.conversation is not None:
            yield ("conversation",), "limits turns, and the case has none; leave it out, or write `input.turns`"
        yield from find_turn_problems(self.deterministic_checks, self.expectations, 0)
