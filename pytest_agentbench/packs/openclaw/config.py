"""Settings of OpenClaw: `agents/<id>/agent.yaml` with a folder `workspace/`, sections of run profiles and of suites.

A session whose run profile has the section imports only this module: its values are validated and are part of the
profile's fingerprint for any case. So it must not import the runner or anything about containers.
"""

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, Field, ValidationInfo, field_validator

from pytest_agentbench.config.base import YAML_SUFFIXES, ConfigFile, Guest, complain, is_path, scope_of
from pytest_agentbench.config.documents import Loc, make_located_error
from pytest_agentbench.config.keys import find_program_problem
from pytest_agentbench.config.profiles import CaseSelection, pinning_problem
from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.config.sections import Cases, Excess, FileKind, Found, ProfileSection, find_settings_problems
from pytest_agentbench.errors import ConfigError
from pytest_agentbench.extensions import CONTAINERS
from pytest_agentbench.records.base import AtLeastOne, Record, Slug, Tags, Text
from pytest_agentbench.sources.discovery import unknown_ids

_FALLBACKS = frozenset({"fallbacks", "fallback"})
_ENDPOINTS = frozenset({"apiKey", "api_key", "baseUrl", "base_url", "providers"})
_MODEL = re.compile(r"models?|mediaModels|[a-z]\w*Model")
_OPENCLAW_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


def _agent_name(name: str, info: ValidationInfo) -> str:
    """Return an id unchanged, and a path as the path of the agent's folder."""
    if not is_path(name):
        if not _OPENCLAW_ID.fullmatch(name):
            raise ValueError(f"found {name!r}, expected a slug, the id of a folder of agents/, or the path of one")
        return name
    path = os.path.expanduser(name)
    scope = scope_of(info)
    if scope is not None:
        path = os.path.realpath(os.path.join(scope.folder, path))
    if path.endswith(YAML_SUFFIXES):
        return os.path.dirname(path)
    return path


AgentName = Annotated[Text, AfterValidator(_agent_name)]
"""A folder of `agents/`, or the path of one relative to the file that names it."""


class ModelDefaults(Record):
    """Appearance of the agent's model in openclaw.json. Other fields pass through."""

    model_config = ConfigDict(frozen=True, extra="allow", protected_namespaces=())

    aliases: dict[str, str] = Field(default_factory=dict)
    """Aliases of the primary model."""


class OpenClawFragments(Record):
    """Parts of the generated openclaw.json."""

    identity: dict[str, Any] = Field(default_factory=dict)
    """Never written; keep the persona in workspace files."""
    agents_defaults: dict[str, Any] = Field(default_factory=dict)
    """Merged into `agents.defaults`."""
    agent: dict[str, Any] = Field(default_factory=dict)
    """`agents.list[0]`: id, and prompt as `systemPromptOverride`."""
    model_defaults: ModelDefaults = Field(default_factory=ModelDefaults)
    """The model's aliases and parameters; the suite names the model."""


class AgentFile(ConfigFile):
    """An OpenClaw agent: fragments of its configuration. Its workspace is the folder next to the file."""

    agent_id: Slug
    """The name of its folder."""
    title: Text
    """For people."""
    description: str | None = None
    """Purpose of the agent, for people."""
    tags: Tags = ()
    """Free tags."""
    openclaw: OpenClawFragments = Field(default_factory=OpenClawFragments)
    """Parts of openclaw.json."""

    @field_validator("agent_id")
    @classmethod
    def _has_its_folder(cls, agent_id: str, info: ValidationInfo) -> str:
        scope = scope_of(info)
        if scope is not None:
            folder = os.path.basename(os.path.realpath(scope.folder))
            if agent_id != folder:
                raise ValueError(f"found {agent_id!r}, which must match directory name {folder!r}")
            workspace = os.path.join(scope.folder, "workspace")
            if not os.path.isdir(workspace):
                raise ValueError("missing workspace directory next to agent.yaml; create workspace/")
            if os.path.islink(workspace):
                raise ValueError("found a link in place of workspace/, expected the folder itself; copy it there")
        return agent_id

    @field_validator("openclaw")
    @classmethod
    def _one_model(cls, value: OpenClawFragments) -> OpenClawFragments:
        extras = value.model_defaults.model_extra or {}
        complain(
            [
                *find_model_fields(extras, ("model_defaults",)),
                *find_model_fields(value.agents_defaults, ("agents_defaults",)),
                *find_model_fields(value.agent, ("agent",)),
                *_find_parameter_problems(extras.get("primary_params"), ("model_defaults", "primary_params")),
                *_find_id_problems(value.agent),
                *_find_workspace_problems(value),
            ]
        )
        return value


def find_model_fields(fragment: object, loc: Loc) -> Iterator[tuple[Loc, str]]:
    """Yield the path and the problem of each field, at any depth, that would select another model than the run's."""
    below: Iterable[tuple[int | str, object]] = ()
    if isinstance(fragment, dict):
        below = fragment.items()
    elif isinstance(fragment, list):
        below = enumerate(fragment)
    for name, value in below:
        at = (*loc, name)
        if (problem := _explain_model_field(str(name), value)) is not None:
            yield at, problem
        else:
            yield from find_model_fields(value, at)


def _explain_model_field(name: str, value: object) -> str | None:
    """Return why a field selects a model, which only the suite or --model may do; None if it does not."""
    if value is None:
        return None
    if name in _FALLBACKS and value != "none":
        return f"{name} is not supported: a run executes against exactly one model"
    if name in _ENDPOINTS:
        return "an agent has no endpoint and no key; declare the run's model in models.yaml"
    # A mapping with fallbacks is searched instead, so that the error is at the fallbacks.
    if _MODEL.fullmatch(name) and not (isinstance(value, dict) and _FALLBACKS & value.keys()):
        return "an agent cannot set the model; the suite or --model does"
    return None


def _find_parameter_problems(parameters: object, loc: Loc) -> Iterator[tuple[Loc, str]]:
    if isinstance(parameters, dict):
        yield from (((*loc, *at), text) for at, text in find_settings_problems(parameters))
    elif parameters is not None:
        yield loc, f"found {parameters!r}, expected a mapping of request parameters"


def _find_id_problems(agent: dict[str, Any]) -> Iterator[tuple[Loc, str]]:
    own_id, prompt = agent.get("id"), agent.get("prompt")
    if own_id is not None and not (isinstance(own_id, str) and _OPENCLAW_ID.fullmatch(own_id)):
        yield ("agent", "id"), f"found {own_id!r}, expected at most 64 lower-case letters, digits, '_' and '-'"
    if prompt is not None and not (isinstance(prompt, str) and prompt.strip()):
        yield ("agent", "prompt"), f"found {prompt!r}, expected a text"


def _find_workspace_problems(fragments: OpenClawFragments) -> Iterator[tuple[Loc, str]]:
    message = "an agent works in the run's own folder; put its files into workspace/ next to agent.yaml"
    for name in ("agents_defaults", "agent"):
        if "workspace" in getattr(fragments, name):
            yield (name, "workspace"), message


def find_agent_file(root: ConfigRoot, name: str) -> Path:
    """Return the path of the agent with this id or path. Raises ConfigError as `ConfigRoot.run_profile` does."""
    return root.find(AGENT_KIND.folder, str(root.path / name) if is_path(name) else name)


def _find_copy_problems(path: Path) -> Iterator[tuple[Loc, str]]:
    """Yield the problem of a workspace that cannot be copied."""
    # Imported here, because only `validate` calls this: sessions of other cases load no templates.
    from pytest_agentbench.workspaces.template import template_digest

    try:
        template_digest(path.parent / "workspace")
    except ConfigError as error:
        yield (), str(error)


AGENT_KIND = FileKind("agent", "agents", "agent_id", AgentFile, stem="agent", problems=_find_copy_problems)


class OpenClawRunProfile(Record):
    """The OpenClaw runtime."""

    agent_id: AgentName
    """A folder of `agents/`, or its path."""
    image: Text
    """OCI image of the openclaw command, pinned by tag or digest."""
    timeout_seconds: AtLeastOne
    """Wall-clock limit of the container."""
    docker_cli: Text = CONTAINERS
    """OCI runtime command, such as podman: a program on PATH, or the path of one below the session's root; or a kind
    of sandbox that takes images."""


def _selects_something(selection: CaseSelection) -> CaseSelection:
    if not selection.include_case_ids and not selection.include_tags:
        raise ValueError("an assignment needs include_case_ids or include_tags")
    return selection


class AgentAssignment(Record):
    """Assignment of an agent to cases."""

    agent_id: AgentName
    """A folder of `agents/`, or its path."""
    case_selection: Annotated[CaseSelection, AfterValidator(_selects_something)]
    """Its cases; here excludes beat includes."""


class SuiteOpenClaw(Record):
    """The suite's OpenClaw settings."""

    agent_assignments: tuple[AgentAssignment, ...] = ()
    """Agents of cases. Other cases run with the run profile's agent."""


def find_assigned_agent(settings: SuiteOpenClaw, case_id: str, tags: Collection[str]) -> str | None:
    """Return the agent that the suite assigns to a case, or None."""
    for assignment in reversed(settings.agent_assignments):
        if _list_assigned(assignment.case_selection, {case_id: tags}):
            return assignment.agent_id
    return None


def _list_assigned(selection: CaseSelection, cases: Cases) -> list[str]:
    included_ids, included_tags = set(selection.include_case_ids), set(selection.include_tags)
    excluded_ids, excluded_tags = set(selection.exclude_case_ids), set(selection.exclude_tags)
    return [
        case_id
        for case_id, tags in cases.items()
        if (case_id in included_ids or not included_tags.isdisjoint(tags))
        and case_id not in excluded_ids
        and excluded_tags.isdisjoint(tags)
    ]


def _find_floating_image(block: OpenClawRunProfile | None, profile: Mapping[str, Any]) -> Found:
    if block is None or profile.get("allow_floating_image") is True:
        return
    if (problem := pinning_problem(block.image)) is not None:
        yield ("image",), problem


def _find_other_block(block: OpenClawRunProfile | None, most: OpenClawRunProfile | None, guest: Guest) -> Excess:
    # It names an image and a program of this machine: a guest may only repeat the user's block.
    if block is not None and block != most:
        return [((), block, most)]
    return []


def _resolve_program(block: OpenClawRunProfile | None, path: Path, programs: str | None) -> OpenClawRunProfile | None:
    """Return the block with the full path of its program if it is a path. Raises ConfigError if it is not allowed."""
    if block is None or os.sep not in block.docker_cli:
        return block
    program = os.path.expanduser(block.docker_cli)
    if problem := find_program_problem(program, str(path.parent), programs):
        raise make_located_error(path, [(("openclaw", "docker_cli"), problem)])
    # Relative to the profile's file, because sessions in other folders read it too.
    return block.model_copy(update={"docker_cli": os.path.normpath(path.parent / program)})


def _find_agent_problems(block: OpenClawRunProfile | None, root: ConfigRoot, cases: Cases) -> Found:
    if block is None:
        return []
    return _find_missing_agent(block.agent_id, root, ("agent_id",))


def _find_missing_agent(name: str, root: ConfigRoot, loc: Loc) -> Iterator[tuple[Loc, str]]:
    try:
        find_agent_file(root, name)
    except ConfigError as error:
        yield loc, str(error)


def _find_agents_elsewhere(settings: SuiteOpenClaw, most: SuiteOpenClaw, guest: Guest) -> Excess:
    for at, assignment in enumerate(settings.agent_assignments):
        agent = Path(assignment.agent_id)
        # An id is not a path: it names a folder of the guest's own root.
        if agent.is_absolute() and not agent.is_relative_to(guest.folder.resolve()):
            yield ("agent_assignments", at, "agent_id"), assignment.agent_id, f"an agent below {guest.folder}"


def _find_assignment_problems(settings: SuiteOpenClaw, root: ConfigRoot, cases: Cases) -> Found:
    """Yield unknown ids of cases, cases with more than one assignment, and missing agents."""
    yield from _find_clashes(settings.agent_assignments, cases)
    for at, assignment in enumerate(settings.agent_assignments):
        yield from _find_missing_agent(assignment.agent_id, root, ("agent_assignments", at, "agent_id"))


def _find_clashes(assignments: Sequence[AgentAssignment], cases: Cases) -> Iterable[tuple[Loc, str]]:
    taken: dict[str, str] = {}
    for at, assignment in enumerate(assignments):
        place: Loc = ("agent_assignments", at, "case_selection")
        for loc, message in unknown_ids(assignment.case_selection, cases):
            yield (*place, *loc), message
        for case_id in _list_assigned(assignment.case_selection, cases):
            if case_id in taken:
                message = (
                    f"case {case_id!r} is assigned to {taken[case_id]!r} already; a case has at most one assignment"
                )
                yield place, message
            taken[case_id] = assignment.agent_id


def leads_inside(path: str) -> bool:
    """Return whether a path is inside of the workspace, by its text."""
    # There is no workspace yet; links in it are checked when the file is opened (`workspaces/confined.py`).
    parts = PurePosixPath(path)
    return not parts.is_absolute() and ".." not in parts.parts and "\0" not in path


OPENCLAW: ProfileSection[OpenClawRunProfile | None] = ProfileSection(
    "openclaw",
    "run_profile",
    OpenClawRunProfile | None,
    "The OpenClaw runtime.",
    default=lambda: None,
    # Each run's own fingerprint covers the rest.
    fingerprint=lambda block: block and {"agent": os.path.basename(block.agent_id), "image": block.image},
    problems=_find_floating_image,
    excess=_find_other_block,
    place=_resolve_program,
    references=_find_agent_problems,
)
ASSIGNMENTS: ProfileSection[SuiteOpenClaw] = ProfileSection(
    "openclaw",
    "suite",
    SuiteOpenClaw | None,
    "Agents for some cases.",
    default=SuiteOpenClaw,
    excess=_find_agents_elsewhere,
    references=_find_assignment_problems,
)
