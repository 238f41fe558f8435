"""Prepare runs of the runner `openclaw`: the agent of a case, its identity, container and workspace."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_agentbench.cli.doctor_needs import PackNeeds
from pytest_agentbench.config.profiles import RunProfile
from pytest_agentbench.config.roots import ConfigRoot
from pytest_agentbench.config.sections import RunnerSettings
from pytest_agentbench.errors import SandboxError, UnavailableError
from pytest_agentbench.packs.openclaw.config import (
    ASSIGNMENTS,
    OPENCLAW,
    AgentFile,
    find_agent_file,
    find_assigned_agent,
)
from pytest_agentbench.packs.openclaw.container import OpenClawAgent, complete_workspace, merge_model_parameters
from pytest_agentbench.packs.openclaw.program import Examined, Examiner
from pytest_agentbench.records.case import Case
from pytest_agentbench.runners.base import RunContext
from pytest_agentbench.runners.kinds import Prepared, RunnerSession, RunRequest, SessionParts
from pytest_agentbench.workspaces.sandboxes.base import SandboxSpec
from pytest_agentbench.workspaces.template import changed_meanwhile, fill_workspace, template_digest
from pytest_agentbench.workspaces.workspace import Workspace

if TYPE_CHECKING:
    from pytest_agentbench.workspaces.sandboxes.choice import Sandboxes

_SECTION_EXAMPLE = "`openclaw: {agent_id: ..., image: name:tag, timeout_seconds: ...}`"


@dataclass(slots=True)
class _SharedFolder:
    """A template of workspaces, and the number of runs that use it."""

    workspace: Workspace
    users: int = 0


@dataclass(frozen=True, slots=True)
class OpenClawRun:
    """Preparation of a run: its agent, and the findings about its image, None before the examination."""

    agent: OpenClawAgent
    examined: Examined | None = None


class OpenClawRuns(RunnerSession):
    """Parts that the runs of a session share: loaded agents, examined images, and templates of workspaces.

    `_lending` guards `_folders`, which runs on several threads use. The event loop owns `_agents` and the examiner.
    """

    def __init__(self, parts: SessionParts) -> None:
        self.parts = parts
        self._examiner = Examiner(parts.sandboxes)
        # By the objects' ids: two roots may have equal profiles, and each an agent of the same name. The value keeps
        # the root alive, so that its id stays unique.
        self._agents: dict[tuple[int, int, str], tuple[ConfigRoot, OpenClawAgent]] = {}
        self._folders: dict[tuple[Path, Path | None, str | None], _SharedFolder] = {}
        self._lending = threading.Lock()

    async def close(self) -> None:
        """Cancel unfinished examinations."""
        await self._examiner.close()

    def prepare(self, request: RunRequest) -> Prepared:
        """Return the run's agent, the identity of it and of its container, and its workspace.

        Raises UnavailableError if the run profile has no section for OpenClaw, ConfigError for a missing or invalid
        agent, and for a workspace that cannot be copied.
        """
        agent = self.agent(request)
        return Prepared(
            identity={"openclaw": self._identity(request, agent)},
            sandbox=partial(make_openclaw_spec, self.parts.sandboxes, request.profile),
            template=partial(self._template, request, agent),
            data=OpenClawRun(agent),
        )

    def agent(self, request: RunRequest) -> OpenClawAgent:
        """Return the agent that the suite assigns to the case, else the run profile's. Raises as `prepare` does."""
        block, root = request.profile.section(OPENCLAW), request.root
        if block is None:
            raise _make_no_block_error(request.profile)
        assigned = None
        if request.suite is not None:
            assigned = find_assigned_agent(request.suite.section(ASSIGNMENTS), request.case.case_id, request.case.tags)
        name = assigned or block.agent_id
        key = (id(root), id(block), name)
        if key not in self._agents:
            path = find_agent_file(root, name)
            agent = OpenClawAgent(root.load(path, AgentFile), path, path.parent / "workspace", block)
            self._agents[key] = root, agent
        return self._agents[key][1]

    def _identity(self, request: RunRequest, agent: OpenClawAgent) -> dict[str, Any]:
        """Return the agent's part of the run's fingerprint. The time limit counts if the case expects time-outs."""
        settings = request.profile.sandbox_settings
        # Without agent.yaml's `identity`, which is written nowhere, and the sandbox's type, which is a container.
        identity: dict[str, Any] = {
            "id": agent.openclaw_id,
            "fragments": agent.file.openclaw.model_dump(exclude={"identity"}),
            "workspace": self.parts.template_digest(agent.workspace),
            # By its name: an image that was rebuilt under the same tag is not noticed (docs/openclaw.md).
            "image": agent.profile.image,
            "sandbox": settings.model_dump(exclude={"type", "image", "build_network"}),
        }
        # For other cases a completed run is the same under any limit.
        if "timed_out" in request.case.expects_status:
            identity["timeout_seconds"] = agent.profile.timeout_seconds
        return identity

    @asynccontextmanager
    async def _template(self, request: RunRequest, agent: OpenClawAgent, context: RunContext) -> AsyncIterator[Path]:
        """Lend the folder from which the run's workspace is copied. The image is examined first, for its requirements.

        Raises ConfigError if OpenClaw in that image refuses the agent's configuration, UnavailableError for an image
        without OpenClaw, SandboxError.
        """
        parameters = merge_model_parameters(agent, request.model, RunnerSettings.model_validate(dict(request.settings)))
        examined = await self._examiner.examined(context.needs_sandbox(), agent, request.model, parameters)
        context.prepared = OpenClawRun(agent, examined)
        folder = self.folder(agent, request.case.workspace, examined.prompt_file)
        # Entered and left by hand, because both copy files and must run on threads.
        lent = await self.parts.in_thread(folder.__enter__)
        try:
            yield lent
        finally:
            await self.parts.in_thread(partial(folder.__exit__, None, None, None))

    @contextmanager
    def folder(self, agent: OpenClawAgent, over: Path | None, prompt_file: bool) -> Iterator[Path]:
        """Lend a template of workspaces: the agent's files, the case's files `over` them, and missing standard files.

        An agent's template lives until the session ends, one with a case's files until no run uses it. Entering and
        leaving are slow: call them on threads.

        Raises ConfigError for files that cannot be copied or differ from those in runs' fingerprints, SandboxError.
        """
        key = (agent.workspace, over, agent.prompt if prompt_file else None)
        # Held while a folder is made: a second run waits for the copy instead of making another.
        with self._lending:
            if key not in self._folders:
                self._folders[key] = _SharedFolder(self._make_folder(agent, over, prompt_file))
            lent = self._folders[key]
            lent.users += 1
        try:
            yield lent.workspace.path
        finally:
            with self._lending:
                lent.users -= 1
                if over is not None and not lent.users:
                    self.parts.sandboxes.workspaces.remove(self._folders.pop(key).workspace)

    def _make_folder(self, agent: OpenClawAgent, over: Path | None, prompt_file: bool) -> Workspace:
        workspace = self.parts.sandboxes.workspaces.create(agent.file.agent_id)
        try:
            for template in (agent.workspace, over):
                if template is not None:
                    fill_workspace(workspace, template)
                    # Files edited after the fingerprint was computed would run under the wrong fingerprint.
                    if template_digest(template) != self.parts.template_digest(template):
                        raise changed_meanwhile(template)
            complete_workspace(workspace, agent, prompt_file)
        except BaseException as error:
            self.parts.sandboxes.workspaces.remove(workspace)
            if isinstance(error, OSError):
                raise SandboxError(f"no room for a copy of {agent.workspace}: {error}; set TMPDIR") from error
            raise
        return workspace


def make_openclaw_spec(sandboxes: Sandboxes, profile: RunProfile) -> SandboxSpec:
    """Return the container of a run: the image of the profile's `openclaw` block, with the network and the limits of
    its `sandbox` of any type.

    Raises UnavailableError without such a block, or without a container engine.
    """
    block = profile.section(OPENCLAW)
    if block is None:
        raise _make_no_block_error(profile)
    return sandboxes.container(block.image, profile.sandbox_settings, block.docker_cli)


def _make_no_block_error(profile: RunProfile) -> UnavailableError:
    return UnavailableError(
        f"the runner 'openclaw' needs an agent and an image, but the run profile {profile.run_profile_id!r} has "
        f"neither; add {_SECTION_EXAMPLE} to it, or name a run profile with them by --agentbench-run-profile"
    )


def _list_containers(case: Case, profile: RunProfile, sandboxes: Sandboxes) -> Iterator[SandboxSpec]:
    if case.runner.type == "openclaw":
        yield make_openclaw_spec(sandboxes, profile)


def _list_engines(profile: RunProfile) -> Iterator[str]:
    block = profile.section(OPENCLAW)
    if block is not None:
        yield block.docker_cli


NEEDS = PackNeeds(_list_containers, _list_engines)
"""Requirements that `agentbench doctor` checks."""
