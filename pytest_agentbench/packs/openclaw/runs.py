"""Runs of the runner `openclaw`: the agent that a case gets, its identity, container and workspace."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_agentbench.config.profiles import OpenClawRunProfile, RunProfile
from pytest_agentbench.config.shared_sections import RunnerSettings
from pytest_agentbench.engine.identities import Identities
from pytest_agentbench.engine.job import Plan
from pytest_agentbench.errors import ConfigError, SandboxError, UnavailableError
from pytest_agentbench.packs.openclaw.container import OpenClawAgent, complete_workspace, model_parameters
from pytest_agentbench.packs.openclaw.program import Examined, Examiner
from pytest_agentbench.records.case import Case, Model
from pytest_agentbench.workspaces.sandboxes.base import SandboxSpec
from pytest_agentbench.workspaces.sandboxes.choice import Sandboxes
from pytest_agentbench.workspaces.template import fill_workspace, template_digest
from pytest_agentbench.workspaces.workspace import Workspace

OPENCLAW = "openclaw"
"""`runner.type` of the cases that it is for."""

_STOCK_CLI = "docker"  # reached through its daemon, not the program
_WHAT_TO_ADD = "`openclaw: {agent_id: ..., image: name:tag, timeout_seconds: ...}`"


@dataclass(slots=True)
class _Lent:
    """A folder that runs begin with a copy of, and how many have it."""

    workspace: Workspace
    users: int = 0


@dataclass
class OpenClawRuns:
    """What a session's runs of OpenClaw share: agents looked up, images examined and agents' folders made once."""

    sandboxes: Sandboxes
    identities: Identities
    _agents: dict[tuple[Plan, str], OpenClawAgent] = field(default_factory=dict)
    _folders: dict[tuple[Path, Path | None, str | None], _Lent] = field(default_factory=dict)
    _lending: threading.Lock = field(default_factory=threading.Lock)
    _examiner: Examiner = field(init=False)

    def __post_init__(self) -> None:
        self._examiner = Examiner(self.sandboxes)

    async def close(self) -> None:
        """Ends what is still being examined."""
        await self._examiner.close()

    def agent(self, plan: Plan, case_id: str) -> OpenClawAgent:
        """The agent that runs the case: the one that the suite assigns to it, else the run profile's.

        Raises UnavailableError where the run profile says nothing of OpenClaw, ConfigError for an agent that is not
        there, or wrong.
        """
        block = plan.run_profile.openclaw
        if block is None:
            raise _no_block(plan.run_profile)
        name = plan.agents.get(case_id) or block.agent_id
        if (plan, name) not in self._agents:
            path = plan.root.agent_file(name)
            self._agents[plan, name] = OpenClawAgent(plan.root.agent(name), path, path.parent / "workspace", block)
        return self._agents[plan, name]

    def identity(self, plan: Plan, case: Case, agent: OpenClawAgent) -> dict[str, Any]:
        """Part of the run's fingerprint: what of the agent and of its container can change the run.

        The time limit only where the case may expect it to be reached. Raises ConfigError for a workspace that no run
        can get a copy of.
        """
        settings = plan.run_profile.sandbox_settings
        identity: dict[str, Any] = {
            "id": agent.openclaw_id,
            "fragments": agent.file.openclaw.model_dump(exclude={"identity"}),
            "workspace": self.identities.template(agent.workspace),
            "image": agent.profile.image,
            "sandbox": settings.model_dump(exclude={"type", "image", "build_network"}),
        }
        if "timed_out" in case.expects_status:
            identity["timeout_seconds"] = agent.profile.timeout_seconds
        return identity

    async def examined(
        self, spec: SandboxSpec, agent: OpenClawAgent, model: Model, settings: Mapping[str, Any]
    ) -> Examined:
        """What OpenClaw in that image says of the configuration that the agent comes to with these runner settings.

        Raises ConfigError where it refuses that, UnavailableError for an image without OpenClaw.
        """
        parameters = model_parameters(agent, model, RunnerSettings.model_validate(dict(settings)))
        return await self._examiner.examined(spec, agent, model, parameters)

    @contextmanager
    def folder(self, agent: OpenClawAgent, over: Path | None, prompt_file: bool) -> Iterator[Path]:
        """The folder that workspaces are to start as a copy of: the agent's own, the case's `over` it, and then what
        is missing. An agent's goes with the session, one with a case's when no run has it any more. Entering and
        leaving take their time: for threads.

        Raises ConfigError for what cannot be copied, or is not what runs' fingerprints cover, SandboxError.
        """
        key = (agent.workspace, over, agent.prompt if prompt_file else None)
        with self._lending:
            if key not in self._folders:
                self._folders[key] = _Lent(self._make_folder(agent, over, prompt_file))
            lent = self._folders[key]
            lent.users += 1
        try:
            yield lent.workspace.path
        finally:
            with self._lending:
                lent.users -= 1
                if over is not None and not lent.users:
                    self.sandboxes.workspaces.remove(self._folders.pop(key).workspace)

    def _make_folder(self, agent: OpenClawAgent, over: Path | None, prompt_file: bool) -> Workspace:
        workspace = self.sandboxes.workspaces.create(agent.file.agent_id)
        try:
            for template in (agent.workspace, over):
                if template is not None:
                    fill_workspace(workspace, template)
                    if template_digest(template) != self.identities.template(template):
                        raise changed_meanwhile(template)
            complete_workspace(workspace, agent, prompt_file)
        except BaseException as error:
            self.sandboxes.workspaces.remove(workspace)
            if isinstance(error, OSError):
                raise SandboxError(f"no room for a copy of {agent.workspace}: {error}; set TMPDIR") from error
            raise
        return workspace


def changed_meanwhile(template: Path) -> ConfigError:
    """What to say of a workspace template that is not what the fingerprints of the session's runs cover."""
    return ConfigError(f"{template}: this workspace template was changed while the session ran; start it again")


def openclaw_spec(sandboxes: Sandboxes, profile: RunProfile) -> SandboxSpec:
    """The container of a run: the image of the profile's `openclaw` block, with the network and the limits of its
    `sandbox`, whatever type that is.

    Raises UnavailableError where there is no such block, or no engine for containers here.
    """
    block = profile.openclaw
    if block is None:
        raise _no_block(profile)
    return sandboxes.container(block.image, profile.sandbox_settings, engine_of(block))


def engine_of(block: OpenClawRunProfile) -> str | None:
    """The program that the containers are made by, None for docker's daemon."""
    return None if block.docker_cli == _STOCK_CLI else block.docker_cli


def _no_block(profile: RunProfile) -> UnavailableError:
    return UnavailableError(
        f"the runner 'openclaw' needs an agent and an image, and the run profile {profile.run_profile_id!r} names "
        f"none; add {_WHAT_TO_ADD} to it, or name one that has that with --agentbench-run-profile"
    )
