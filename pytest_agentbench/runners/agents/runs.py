"""Preparation of programs' runs: the program, its sandbox, and their identity."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pytest_agentbench.config.functions import canned_tools_of
from pytest_agentbench.config.profiles import pinning_problem
from pytest_agentbench.errors import AgentbenchError, ConfigError, ToolsRefusedError, UnavailableError
from pytest_agentbench.extensions import CONTAINERS
from pytest_agentbench.records.base import SandboxKind
from pytest_agentbench.records.case import SandboxNeeds, SandboxSettings, change_type
from pytest_agentbench.runners.acp.fields import AcpFields, no_acp
from pytest_agentbench.runners.agents.adapter import Adapter, Program, find_adapter, make_acp, make_agent, make_command
from pytest_agentbench.runners.agents.fields import (
    AgentFields,
    CommandFields,
    F,
    find_field_problems,
    no_turns,
    read_fields,
    refuse_tools,
    takes_images,
)
from pytest_agentbench.runners.agents.programs import list_root_mounts, require_program, show_programs
from pytest_agentbench.runners.agents.turns import PreparedProgram
from pytest_agentbench.runners.kinds import Prepared, RunnerSession, RunRequest
from pytest_agentbench.workspaces.sandboxes.base import Mount, SandboxSpec, programs_of, provider_of
from pytest_agentbench.workspaces.sandboxes.images import engine_option

if TYPE_CHECKING:
    from pytest_agentbench.config.profiles import RunProfile
    from pytest_agentbench.config.roots import ConfigRoot
    from pytest_agentbench.records.base import SandboxKind
    from pytest_agentbench.records.case import Case
    from pytest_agentbench.workspaces.sandboxes.choice import Sandboxes


class ProgramRuns(RunnerSession):
    """Parts that runs of programs share in a session: the ids of images, looked up once."""

    def __init__(self, sandboxes: Sandboxes) -> None:
        self.sandboxes = sandboxes
        self._image_ids: dict[tuple[SandboxKind, str], str | None] = {}

    def prepare(self, request: RunRequest) -> Prepared:
        """Return the preparation of a run, as `prepare_case`."""
        return self.prepare_case(request.case, request.root, request.profile)

    def prepare_case(self, case: Case, root: ConfigRoot, profile: RunProfile) -> Prepared:
        """Return the preparation that all runs of a case share.

        Raises ConfigError if the agent is missing or wrong or cannot continue after a turn, UnavailableError if the
        program is missing.
        """
        settings = profile.sandbox_settings
        if case.runner.type == "acp":
            return self._prepare_acp(case, root, profile, _read_fields(AcpFields, case))
        if case.runner.type == "agent":
            return self._prepare_agent(case, root, profile)
        fields = _read_fields(CommandFields, case)
        program = make_command(fields, "the command", str(root.path))
        kind = fields.sandbox or settings.type
        spec = partial(self.sandboxes.spec, change_type(settings, kind), case.sandbox)
        return _prepared(settings, program, fields, kind, spec, {})

    def _prepare_agent(self, case: Case, root: ConfigRoot, profile: RunProfile) -> Prepared:
        fields = _read_fields(AgentFields, case)
        adapter = _find_adapter(fields.agent, case, root)
        if not adapter.program.argv:
            return self._prepare_acp(case, root, profile, AcpFields.model_validate(fields.model_dump()))
        if len(case.turns) > 1 and adapter.program.resume_argv is None:
            raise ConfigError(f"{case.path}:{case.line}:1: input.turns: {no_turns(fields.agent, len(case.turns))}")
        program = make_agent(fields, adapter)
        return self._prepare_adapter(case, profile, program, fields, fields.sandbox, adapter.identity())

    def _prepare_acp(self, case: Case, root: ConfigRoot, profile: RunProfile, fields: AcpFields) -> Prepared:
        settings = profile.sandbox_settings
        if fields.agent is None:
            program = make_acp(fields, None, str(root.path))
            kind = fields.sandbox or settings.type
            spec = partial(self.sandboxes.spec, change_type(settings, kind), case.sandbox)
            return _prepared(settings, program, fields, kind, spec, {})
        adapter = _find_adapter(fields.agent, case, root)
        if (form := adapter.program.acp) is None:
            raise ConfigError(f"{case.path}:{case.line}:1: runner.agent: {no_acp(fields.agent)}")
        own = {"mode": fields.mode or form.mode, "auth": fields.auth or form.auth}
        program, kind = make_acp(fields, adapter, str(root.path)), fields.sandbox or CONTAINERS
        fields = fields.model_copy(update=own)
        return self._prepare_adapter(case, profile, program, fields, kind, adapter.identity(acp=True))

    def _prepare_adapter(
        self,
        case: Case,
        profile: RunProfile,
        program: Program,
        fields: AgentFields | AcpFields,
        kind: SandboxKind,
        hashes: Mapping[str, Any],
    ) -> Prepared:
        settings, adapter = profile.sandbox_settings, program.adapter
        assert adapter is not None
        image = fields.image or adapter.image
        identity: dict[str, Any] = {"agent": hashes}
        if field := _name_tools_field(case, profile):
            if program.mcp is None:
                raise ToolsRefusedError(f"{case.path}:{case.line}:1: {refuse_tools(program.name, field)}")
            identity["mcp"] = program.mcp.model_dump(mode="json")
        if case.skills:
            if adapter.program.skills is None:
                raise UnavailableError(f"the agent {fields.agent} has no skills: its agent.yaml has no `skills`")
            identity["skills_place"] = adapter.program.skills.model_dump()
        needs = None
        if takes_images(kind):
            if problem := pinning_problem(image):
                raise ConfigError(f"{case.path}:{case.line}:1: runner.image: {problem}")
            needs = SandboxNeeds(image=image)
            identity["image"] = {"name": image}
            if provider_of(kind).images() is not None:  # the id, too, because a rebuilt image keeps its name
                identity["image"]["id"] = self._find_image(kind, image)
        spec = partial(self._make_spec, change_type(settings, kind), needs, adapter)
        return _prepared(settings, program, fields, kind, spec, identity)

    def _make_spec(self, settings: SandboxSettings, needs: SandboxNeeds | None, adapter: Adapter) -> SandboxSpec:
        spec = self.sandboxes.spec(settings, needs)
        is_built_here = spec.image == adapter.image and provider_of(spec.kind).images() is not None
        if is_built_here and self._find_image(spec.kind, adapter.image) is None:
            name = adapter.program.name
            command = f"agentbench agents image {name}{engine_option(spec.kind)}"
            raise UnavailableError(f"there is no image of {name} here; build it: {command}")
        return spec

    def _find_image(self, kind: SandboxKind, name: str) -> str | None:
        """Return the id of an image for sandboxes of that kind, or None if it is unavailable."""
        if (kind, name) not in self._image_ids:
            from pytest_agentbench.workspaces.sandboxes.choice import open_images

            try:
                with closing(open_images(kind)) as images:
                    image = images.find(name)
            except AgentbenchError:
                image = None
            self._image_ids[kind, name] = None if image is None else image.image_id
        return self._image_ids[kind, name]


def _name_tools_field(case: Case, profile: RunProfile) -> str | None:
    """Return the field that gives the run tools or MCP servers, None without any. A fixture's servers are unknown."""
    if case.mcp_servers or profile.mcp_servers:
        return "mcp_servers"
    if case.tools or canned_tools_of(case.context):
        return "tools"
    return None


def _find_adapter(name: str, case: Case, root: ConfigRoot) -> Adapter:
    try:
        return find_adapter(name, root)
    except ConfigError as error:
        raise ConfigError(f"{case.path}:{case.line}:1: runner.agent: {error}") from None


def _read_fields(model: type[F], case: Case) -> F:
    """Return the fields of the case's runner. Raises ConfigError: a source may have made the case, not a file."""
    settings = case.runner.overrides
    for loc, text in find_field_problems(model, settings, None):
        raise ConfigError(f"{case.path}:{case.line}:1: {'.'.join(map(str, ('runner', *loc)))}: {text}")
    return read_fields(model, settings)


def _prepared(
    settings: SandboxSettings, program: Program, fields: Any, kind: str, spec: Any, identity: Mapping[str, Any]
) -> Prepared:
    path: tuple[str, ...] = ()
    mounts: tuple[Mount, ...] = ()
    asks = isinstance(fields, AcpFields) and fields.permissions != "allow"
    if programs_of(kind) == "mounted":
        mounts, path = show_programs(program)
    elif programs_of(kind) == "machine":
        require_program(program)
    if programs_of(kind) != "machine" and (named := list_root_mounts(program)):
        if not provider_of(kind).shares_files:
            raise UnavailableError(f"{{root}} names files of this machine, and {kind} is on another; use an image")
        mounts += named
    if mounts:
        spec = partial(_with_mounts, spec, mounts)
    of_settings = settings.model_dump(exclude={"type", "image", "build_network"})
    return Prepared(
        identity={**identity, "sandbox": {**of_settings, "type": kind}},
        sandbox=spec,
        data=PreparedProgram(program, fields, path, permission="ask" if asks else "allow"),
    )


def _with_mounts(spec: Any, mounts: tuple[Mount, ...]) -> SandboxSpec:
    base: SandboxSpec = spec()
    return replace(base, mounts=(*base.mounts, *mounts))
