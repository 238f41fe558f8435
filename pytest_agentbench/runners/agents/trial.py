"""Run an agent once with a scripted model, and record what it does: the trial of `agentbench agents doctor`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_agentbench.config.profiles import RunProfile, merge_runner_settings
from pytest_agentbench.errors import AgentbenchError
from pytest_agentbench.models.client import Endpoints
from pytest_agentbench.models.scripts import CASE_SCRIPT, Scripts
from pytest_agentbench.records.case import Case, Message, Model, RunnerSpec
from pytest_agentbench.records.run import ToolCallEvent, ToolResultEvent, TraceEvent, Usage
from pytest_agentbench.runners.agents.evidence import Evidence
from pytest_agentbench.runners.agents.runner import AGENT
from pytest_agentbench.runners.agents.runs import ProgramRuns
from pytest_agentbench.runners.agents.turns import list_turn_texts, open_program
from pytest_agentbench.runners.base import RunContext, RunEnd
from pytest_agentbench.runners.gateway.listener import Listener
from pytest_agentbench.runners.gateway.opening import listen_for
from pytest_agentbench.workspaces.changes import take_snapshot
from pytest_agentbench.workspaces.sandboxes.base import SandboxSpec, provider_of
from pytest_agentbench.workspaces.sandboxes.choice import Sandboxes
from pytest_agentbench.workspaces.sessions import Workspaces

if TYPE_CHECKING:
    from pytest_agentbench.config.roots import ConfigRoot
    from pytest_agentbench.runners.agents.adapter import Adapter
    from pytest_agentbench.workspaces.sandboxes.watched_network import WatchedNetwork

TURNS = ("Write the word kingfisher into bird.txt, and read it.", "Say goodbye.")
ANSWERS = ("It says kingfisher.", "Goodbye.")
"""The model's last texts in the turns, by `doctor_script.yaml`."""

FILE = "bird.txt"
_SECONDS = 180
MODEL = Model(model_id="demo", requested_model="demo", scripted=True)


@dataclass(slots=True)
class Trial:
    """One run of a trial. `answers` are those of the turns, None for a turn without one.

    `problem` is the error that ended the run, for example of the adapter. `end` is how it ended otherwise. `hosts` are
    attempts to reach other hosts; None if they were not observed, and `unseen` is the reason.
    """

    evidence: Evidence = field(default_factory=Evidence)
    answers: list[str | None] = field(default_factory=list)
    problem: str | None = None
    end: RunEnd | None = None
    events: tuple[TraceEvent, ...] = ()
    usage: Usage = field(default_factory=Usage)
    warnings: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    hosts: list[str] | None = None
    unseen: str = ""
    seconds: float = 0.0
    workspace: str = ""

    @property
    def calls(self) -> list[tuple[ToolCallEvent, ToolResultEvent | None]]:
        """Return the tool calls with their results."""
        results = {event.call_id: event for event in self.events if isinstance(event, ToolResultEvent)}
        return [(event, results.get(event.call_id)) for event in self.events if isinstance(event, ToolCallEvent)]

    def find_event(self, name: str) -> Mapping[str, Any] | None:
        """Return the data of the runner event of that name, or None."""
        found = (event.data for event in self.events if event.type == "runner" and event.name == name)
        return next(found, None)


async def run_trial(adapter: Adapter, root: ConfigRoot, sandbox: str, folder: Path) -> Trial:
    """Run the agent, with a second turn if it has sessions. `folder` is for the trial's script.

    Never raises AgentbenchError: it is the trial's `problem`.
    """
    trial = Trial()
    case = _write_case(adapter, sandbox, folder)
    with ExitStack() as stack:
        network = _watch(sandbox, trial, stack)
        workspaces, loop = Workspaces(), asyncio.get_running_loop()
        sandboxes, scripts, listener = Sandboxes(workspaces), Scripts(), Listener(loop)
        scripts.load_beside(case)
        endpoints = Endpoints(scripts=scripts)
        try:
            profile = RunProfile.default()
            prepared = ProgramRuns(sandboxes).prepare_case(case, root, profile)
            assert prepared.sandbox is not None
            context = RunContext(
                case=case,
                open_sandboxes=lambda: sandboxes,
                model=MODEL,
                settings=merge_runner_settings(profile, MODEL.model_id, case.runner.overrides, {}),
                client=endpoints.client(MODEL),
                sandbox_spec=partial(_join, prepared.sandbox, network),
                prepared=replace(prepared.data, evidence=trial.evidence),
                listen_for=partial(listen_for, model=MODEL, listener=listener),
            )
            try:
                await _converse(case, context, trial)
            finally:
                _collect(context, trial)
        except AgentbenchError as error:
            trial.problem = str(error)
        finally:
            await endpoints.close()
            await listener.close()
            await sandboxes.close()
            workspaces.close()
        if network is not None:
            trial.hosts = network.attempts
    return trial


def _join(make: Callable[[], SandboxSpec], network: WatchedNetwork | None) -> SandboxSpec:
    """Return the spec of the trial's sandbox, in the watched network if there is one."""
    if network is None:
        return make()
    return replace(make(), joins=network.joins)


def _watch(sandbox: str, trial: Trial, stack: ExitStack) -> WatchedNetwork | None:
    """Return the watched network of the trial's sandbox until the stack ends, None if there is none."""
    if not provider_of(sandbox).joins_networks:
        trial.unseen = f"not observed in {sandbox}; run --sandbox bubblewrap"
        return None
    from pytest_agentbench.workspaces.sandboxes.watched_network import watch_network

    try:
        return stack.enter_context(watch_network())
    except OSError as error:
        trial.unseen = f"not observed: {error}"
        return None


def _write_case(adapter: Adapter, sandbox: str, folder: Path) -> Case:
    script = files("pytest_agentbench.runners.agents").joinpath("doctor_script.yaml").read_bytes()
    (folder / CASE_SCRIPT).write_bytes(script)
    turns = TURNS if adapter.program.resume_argv is not None else TURNS[:1]
    return Case(
        case_id="kingfisher",
        title="A trial",
        path=folder / "test.yaml",
        runner=RunnerSpec.model_validate(
            {"type": "agent", "agent": adapter.program.name, "sandbox": sandbox, "timeout_seconds": _SECONDS}
        ),
        turns=tuple(Message(role="user", content=text) for text in turns),
    )


async def _converse(case: Case, context: RunContext, trial: Trial) -> None:
    texts = list_turn_texts(case, "the agent")
    conversation = await open_program(case, context, texts, AGENT.form(context))
    try:
        for number, message in enumerate(case.turns, start=1):
            context.trace.begin_turn(number)
            output = await conversation.reply(message, number)
            trial.answers.append(output.text)
            if output.end.status != "success":
                trial.end = output.end
                return
        await conversation.finish()
    finally:
        await conversation.close()


def _collect(context: RunContext, trial: Trial) -> None:
    trace = context.trace
    trial.events, trial.usage, trial.warnings = trace.events, trace.usage, list(trace.warnings)
    trial.seconds = sum(turn.seconds for turn in trial.evidence.turns)
    if context.made_workspace is None:
        return
    trial.workspace = str(context.made_workspace.path)
    trial.changed = sorted(map("/".join, take_snapshot(trial.workspace).facts))
