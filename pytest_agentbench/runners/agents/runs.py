"""Runs of programs, prepared: which program, where it runs, and what of that can change the run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pytest_agentbench.config.profiles import pinning_problem
from pytest_agentbench.errors import AgentbenchError, ConfigError, UnavailableError
from pytest_agentbench.runners.agents.adapter import Adapter, Program, find_adapter, make_agent, make_command
from pytest_agentbench.runners.agents.fields import AgentFields, CommandFields, no_turns, read_fields
from pytest_agentbench.runners.agents.turns import Prepared as ProgramRun
from pytest_agentbench.runners.kinds import Prepared, RunnerSession, RunRequest
from pytest_agentbench.workspaces.sandboxes.base import Mount, SandboxSpec

if TYPE_CHECKING:
    from pytest_agentbench.config.profiles import RunProfile
    from pytest_agentbench.config.roots import ConfigRoot
    from pytest_agentbench.records.case import Case, SandboxSettings
    from pytest_agentbench.workspaces.sandboxes.choice import Sandboxes


class ProgramRuns(RunnerSession):
    """Parts that runs of programs share in a session: the ids of images, looked up once."""

    def __init__(self, sandboxes: Sandboxes) -> None:
        self.sandboxes = sandboxes
        self._image_ids: dict[str, str | None] = {}

    def prepare(self, request: RunRequest) -> Prepared:
        """Return the run's program, and what of it and of its sandbox can change the run: as `prepare_case`."""
        return self.prepare_case(request.case, request.root, request.profile)

    def prepare_case(self, case: Case, root: ConfigRoot, profile: RunProfile) -> Prepared:
        """Return what is the same in all runs of a case.

        Raises ConfigError for an agent that is not there, or wrong, or cannot hold the case's turns, UnavailableError
        for a program that is not there.
        """
        settings = profile.sandbox_settings
        if case.runner.type == "agent":
            return self._prepare_agent(case, root, settings)
        fields = read_fields(CommandFields, case.runner.overrides)
        program = make_command(fields, "the command")
        kind = fields.sandbox or settings.type
        spec = partial(self.sandboxes.spec, settings.model_copy(update={"type": kind}), case.sandbox)
        return _prepared(settings, program, fields, kind, spec, {})

    def _prepare_agent(self, case: Case, root: ConfigRoot, settings: SandboxSettings) -> Prepared:
        fields = read_fields(AgentFields, case.runner.overrides)
        try:
            adapter = find_adapter(fields.agent, root)
        except ConfigError as error:
            raise ConfigError(f"{case.path}:{case.line}:1: runner.agent: {error}") from None
        if len(case.turns) > 1 and adapter.program.resume_argv is None:
            raise ConfigError(f"{case.path}:{case.line}:1: input.turns: {no_turns(fields.agent, len(case.turns))}")
        image = fields.image or adapter.image
        identity = {"agent": adapter.identity()}
        if fields.sandbox == "docker":
            if problem := pinning_problem(image):
                raise ConfigError(f"{case.path}:{case.line}:1: runner.image: {problem}")
            identity["image"] = {"name": image, "id": self._find_image(image)}
            spec = partial(self._spec_of_image, settings, adapter, image)
        else:
            spec = partial(self.sandboxes.spec, settings.model_copy(update={"type": fields.sandbox}))
        return _prepared(settings, make_agent(fields, adapter), fields, fields.sandbox, spec, identity)

    def _spec_of_image(self, settings: SandboxSettings, adapter: Adapter, image: str) -> SandboxSpec:
        spec = self.sandboxes.container(image, settings)
        if self._find_image(image) is None and image == adapter.image:
            name = adapter.program.name
            raise UnavailableError(f"there is no image of {name} here; build it: agentbench agents image {name}")
        return spec

    def _find_image(self, name: str) -> str | None:
        """Return the id of an image, None where it is not to be had here."""
        if name not in self._image_ids:
            from contextlib import closing

            from pytest_agentbench.workspaces.containers.builder import image_builder

            try:
                with closing(image_builder("docker")) as builder:
                    found = builder.find(name)
            except AgentbenchError:
                found = None
            self._image_ids[name] = None if found is None else found.image_id
        return self._image_ids[name]


def _prepared(
    settings: SandboxSettings, program: Program, fields: Any, kind: str, spec: Any, identity: Mapping[str, Any]
) -> Prepared:
    shown: tuple[str, ...] = ()
    if kind != "docker":
        mounts, shown = show_programs(program) if kind == "bubblewrap" else ((), ())
        spec = partial(_with_mounts, spec, mounts)
    kept = settings.model_dump(exclude={"type", "image", "build_network"})
    return Prepared(
        identity={**identity, "sandbox": {**kept, "type": kind}},
        sandbox=spec,
        data=ProgramRun(program, fields, shown),
    )


def show_programs(program: Program) -> tuple[tuple[Mount, ...], tuple[str, ...]]:
    """Return what bubblewrap has to show of this machine for the program, and the folders of its PATH.

    What lies in the workspace is there anyway. Raises UnavailableError where the program is not installed.
    """
    from pytest_agentbench.workspaces.sandboxes.bubblewrap import show_program

    name = program.argv[0]
    if "{" in name or (os.sep in name and not os.path.isabs(name)):
        return (), ()
    try:
        shown = show_program(name, os.environ.get("PATH"))
    except LookupError as error:
        raise UnavailableError(f"{error}; install it, or name another sandbox") from error
    return shown.mounts, shown.path


def _with_mounts(spec: Any, mounts: tuple[Mount, ...]) -> SandboxSpec:
    made: SandboxSpec = spec()
    return replace(made, mounts=(*made.mounts, *mounts))
