"""Shared parts of the tests of the OpenClaw runner: agents, scripted models, and runs in a container."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from runners.runners_support import make_case
from support.docker_here import IMAGE, needs_docker
from support.openclaw_here import OPENCLAW_IMAGE, needs_openclaw
from support.stub_engine import installed
from support.stub_openclaw import install

from pytest_agentbench.config.sections import RunnerSettings
from pytest_agentbench.engine.conversations import TurnLimits, drive_turns, hold_conversation
from pytest_agentbench.errors import ProviderError
from pytest_agentbench.models.client import Endpoints
from pytest_agentbench.packs.openclaw.config import AgentFile, OpenClawRunProfile
from pytest_agentbench.packs.openclaw.container import OpenClawAgent, make_openclaw_config, merge_model_parameters
from pytest_agentbench.packs.openclaw.program import Examined
from pytest_agentbench.packs.openclaw.runner import RUNNER
from pytest_agentbench.packs.openclaw.runs import OpenClawRun
from pytest_agentbench.records.case import Case, Message, Model
from pytest_agentbench.records.run import RunnerEvent
from pytest_agentbench.runners.base import RunContext, RunEnd, RunOutput, conclude
from pytest_agentbench.workspaces.sandboxes.base import Mount, ResourceLimits, SandboxSpec
from pytest_agentbench.workspaces.sandboxes.choice import Sandboxes
from pytest_agentbench.workspaces.sessions import Workspaces

STUB = "stub-of-openclaw:1"


def make_agent(folder: Path, *, seconds: int = 60, **fragments: Any) -> OpenClawAgent:
    """Return the agent `helper`, with its files below the folder."""
    place = folder / "helper"
    (place / "workspace").mkdir(parents=True, exist_ok=True)
    file = AgentFile(schema_version=1, agent_id="helper", title="Helper", openclaw=fragments)
    (place / "agent.yaml").write_text(file.model_dump_json(), encoding="utf-8")
    profile = OpenClawRunProfile(agent_id="helper", image=IMAGE, timeout_seconds=seconds)
    return OpenClawAgent(file, place / "agent.yaml", place / "workspace", profile)


def stub_spec(folder: Path, *, takes_prompt: bool = False) -> SandboxSpec:
    """Return the stubs for `openclaw` and `node` on the stub of an engine."""
    programs = folder / "programs"
    programs.mkdir()
    install(programs, takes_prompt=takes_prompt)
    return SandboxSpec("docker", image=STUB, cli=installed(folder / "engine", {STUB: programs}))


def docker_spec(folder: Path, **limits: Any) -> SandboxSpec:
    """Return the same stubs in a real container of the small image."""
    programs = folder / "programs"
    programs.mkdir()
    folder.chmod(0o755)
    mounts = tuple(Mount(path, f"/usr/local/bin/{path.name}") for path in install(programs))
    return SandboxSpec("docker", image=IMAGE, mounts=mounts, limits=ResourceLimits(**limits))


def real_spec(folder: Path) -> SandboxSpec:
    """Return the real program in its image."""
    return SandboxSpec("docker", image=OPENCLAW_IMAGE)


MakeSpec = Callable[[Path], SandboxSpec]

IN_STUB = pytest.param(stub_spec, id="stub")
IN_DOCKER = pytest.param(docker_spec, id="docker", marks=[pytest.mark.slow, needs_docker])
IN_REAL = pytest.param(real_spec, id="real", marks=[pytest.mark.full, needs_openclaw])
"""Each makes the container of a test, given a folder."""


def turns(*texts: str, **fields: Any) -> Case:
    """Return a case with these turns and no messages before them."""
    return make_case(messages=(), turns=tuple(Message(role="user", content=text) for text in texts), **fields)


@dataclass(frozen=True)
class Ran:
    """The result of a run. `end` is None if it was cancelled, or the provider failed, with `error` as the reason.

    `files` are the names in the workspace at the end, `private` those in its private temporary folder.
    """

    context: RunContext
    end: RunEnd | None
    error: ProviderError | None
    files: Mapping[str, str]
    private: Sequence[str]
    seconds: float

    @property
    def status(self) -> tuple[str, str | None]:
        assert self.end is not None, self.error
        return self.end.status, self.end.error.code if self.end.error is not None else None

    @property
    def account(self) -> list[dict[str, Any]]:
        """Return the data of the runner events `turn`."""
        events = self.context.trace.events
        return [event.data for event in events if isinstance(event, RunnerEvent) and event.name == "turn"]


async def _run(case: Case, context: RunContext) -> RunOutput | RunEnd:
    if not case.turns:
        return await RUNNER(case, context)
    return await hold_conversation(RUNNER.converse, drive_turns, TurnLimits(), case, context)


def run_openclaw(
    case: Case,
    model: Model,
    agent: OpenClawAgent,
    spec: SandboxSpec,
    settings: Mapping[str, Any] | None = None,
    cut_off: threading.Event | None = None,
) -> Ran:
    """Run the case like the engine, but without an examination of the image. `cut_off` cancels the run."""

    async def run() -> Ran:
        endpoints, workspaces = Endpoints(), Workspaces()
        sandboxes = Sandboxes(workspaces)
        context = RunContext(
            case,
            lambda: sandboxes,
            model=model,
            client=endpoints.client(model),
            settings=settings or {},
            sandbox_spec=lambda: spec,
            prepared=OpenClawRun(agent, _taken(agent, model, settings or {})),
        )
        begun, end, error = time.monotonic(), None, None
        try:
            end = conclude(await _or_cut_off(_run(case, context), cut_off), context.trace)
        except ProviderError as failure:
            error = failure
        except asyncio.CancelledError:
            assert cut_off is not None
            assert cut_off.is_set()
        finally:
            await sandboxes.close()
            await endpoints.close()
        try:
            return Ran(context, end, error, *_left(context), time.monotonic() - begun)
        finally:
            workspaces.close()

    return asyncio.run(run())


async def _or_cut_off(run: Coroutine[Any, Any, RunOutput | RunEnd], cut_off: threading.Event | None) -> object:
    running = asyncio.ensure_future(run)
    if cut_off is not None:
        await asyncio.to_thread(cut_off.wait)
        running.cancel()
    return await running


def _taken(agent: OpenClawAgent, model: Model, settings: Mapping[str, Any]) -> Examined:
    """Return the findings about an image that accepts everything except a prompt."""
    parameters = merge_model_parameters(agent, model, RunnerSettings.model_validate(dict(settings)))
    config = make_openclaw_config(agent, model, parameters, prompt_override=False)
    return Examined("OpenClaw of a test", json.dumps(config).encode(), prompt_file=agent.prompt is not None)


def _left(context: RunContext) -> tuple[Mapping[str, str], Sequence[str]]:
    workspace = context.workspace
    kinds = {entry.name: entry.kind for entry in workspace.entries()}
    files = {name: workspace.read_text(name) if kind == "file" else kind for name, kind in kinds.items()}
    return files, [entry.name for entry in workspace.entries("/tmp")]
