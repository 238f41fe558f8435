"""Run an agent once with a scripted model, and record what it does: the trial of `agentbench agents doctor`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import yaml

from pytest_agentbench.config.agent_file import McpNames, McpPlace
from pytest_agentbench.config.profiles import RunProfile, merge_runner_settings
from pytest_agentbench.errors import AgentbenchError
from pytest_agentbench.models.client import Endpoints
from pytest_agentbench.models.scripts import CASE_SCRIPT, Scripts
from pytest_agentbench.records.case import Case, Message, Model, RunnerSpec
from pytest_agentbench.records.run import ToolCallEvent, ToolResultEvent, TraceEvent, Usage
from pytest_agentbench.runners.acp.runner import ACP
from pytest_agentbench.runners.agents.evidence import Evidence
from pytest_agentbench.runners.agents.runner import AGENT
from pytest_agentbench.runners.agents.runs import ProgramRuns
from pytest_agentbench.runners.agents.turns import list_turn_texts, open_program
from pytest_agentbench.runners.base import RunContext, RunEnd
from pytest_agentbench.runners.gateway.listener import Listener
from pytest_agentbench.runners.gateway.opening import listen_for
from pytest_agentbench.tools.mcp.servers import CallResult, Listing, RunServers, ServerTool
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
SERVER, TOOL = "doctor", "bird"
"""The MCP server of a trial, and its tool."""

Form = Literal["agent", "acp"]
"""How a trial runs the program, as the type of a runner: by its command, or by ACP."""

_SECONDS = 180
MODEL = Model(model_id="demo", requested_model="demo", scripted=True)


@dataclass(slots=True)
class Trial:
    """One run of a trial. `answers` are those of the turns, None for a turn without one.

    `mcp` is the place of MCP servers in the adapter, None without one, and `mcp_name` the name of the server's tool for
    the agent by that place.
    `problem` is the error that ended the run, for example of the adapter. `end` is how it ended otherwise. `hosts` are
    attempts to reach other hosts; None if they were not observed, and `unseen` is the reason.
    """

    form: Form
    mcp: McpPlace | McpNames | None
    mcp_name: str = ""
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


async def run_trial(adapter: Adapter, form: Form, root: ConfigRoot, sandbox: str, folder: Path) -> Trial:
    """Run the agent, with a second turn if it has sessions. `folder` is for the trial's script.

    If the agent takes MCP servers, it gets one, and the script calls its tool. Never raises AgentbenchError: it is the
    trial's `problem`.
    """
    trial = Trial(form, adapter.program.mcp if form == "agent" else adapter.program.acp_mcp)
    case = _write_case(adapter, trial, sandbox, folder)
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
                servers=None if trial.mcp is None else _make_servers(),
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
    from pytest_agentbench.workspaces.sandboxes.watched_network import WatchedNetwork

    try:
        network = WatchedNetwork.start()
    except OSError as error:
        trial.unseen = f"not observed: {error}"
        return None
    stack.callback(network.stop)
    return network


class _BirdServer:
    """The MCP server of a trial."""

    async def listing(self) -> Listing:
        return Listing(server_name=SERVER, server_version="1", tools=(_BIRD,))

    async def call(self, tool: str, arguments: Mapping[str, Any], seconds: float | None = None) -> CallResult:
        return CallResult("kingfisher")

    async def close(self) -> None:
        """Do nothing."""


_BIRD = ServerTool(
    server=SERVER, name=TOOL, description="Name a bird.", input_schema={"type": "object", "properties": {}}
)


def _make_servers() -> RunServers:
    server = _BirdServer()
    return RunServers({SERVER: server}, (_BIRD,), server.close)


def _write_case(adapter: Adapter, trial: Trial, sandbox: str, folder: Path) -> Case:
    script = yaml.safe_load(files("pytest_agentbench.runners.agents").joinpath("doctor_script.yaml").read_bytes())
    if trial.mcp is not None:
        steps = script["replies"][0]["steps"]
        # Not the first one: some agents ask before their servers have started
        steps.insert(2, {**steps[0], "tool_calls": [{"portable": {"mcp": f"{SERVER}:{TOOL}"}, "arguments": {}}]})
    (folder / CASE_SCRIPT).write_text(yaml.safe_dump(script), encoding="utf-8")
    turns = TURNS if trial.form == "acp" or adapter.program.resume_argv is not None else TURNS[:1]
    return Case(
        case_id="kingfisher",
        title="A trial",
        path=folder / "test.yaml",
        runner=RunnerSpec.model_validate(
            {"type": trial.form, "agent": adapter.program.name, "sandbox": sandbox, "timeout_seconds": _SECONDS}
        ),
        turns=tuple(Message(role="user", content=text) for text in turns),
    )


async def _converse(case: Case, context: RunContext, trial: Trial) -> None:
    texts = list_turn_texts(case, "the agent")
    runner = ACP if trial.form == "acp" else AGENT
    conversation = await open_program(case, context, texts, runner.form(context))
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
    trial.mcp_name = next(iter(trace.request.get("mcp", ())), "")
    trial.seconds = sum(turn.seconds for turn in trial.evidence.turns)
    if context.made_workspace is None:
        return
    trial.workspace = str(context.made_workspace.path)
    trial.changed = sorted(map("/".join, take_snapshot(trial.workspace).facts))
