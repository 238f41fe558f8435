"""Hold a conversation with the real OpenClaw, in the run's container."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_agentbench.bounded.folders import slug
from pytest_agentbench.config.sections import RunnerSettings
from pytest_agentbench.errors import SandboxError, UnavailableError
from pytest_agentbench.packs.openclaw.container import (
    CONFIG_NAME,
    CONTROL,
    ENVIRONMENT,
    HOME,
    RELAY_PORT,
    STATE,
    OpenClawAgent,
    adapt_parameters,
    make_mount,
    merge_model_parameters,
)
from pytest_agentbench.packs.openclaw.policy import make_policy
from pytest_agentbench.packs.openclaw.program import Examined, Reply, find_reply, select_last_lines
from pytest_agentbench.packs.openclaw.runs import OpenClawRun
from pytest_agentbench.records.case import Case, Message, Model
from pytest_agentbench.runners.agents import turns as program_turns
from pytest_agentbench.runners.agents.places import control_folder, write_readable
from pytest_agentbench.runners.agents.timing import LONGEST_STAND, TurnTime
from pytest_agentbench.runners.base import RunContext, RunEnd, clean, make_end
from pytest_agentbench.runners.chat import Requests
from pytest_agentbench.runners.conversation import AgentConversation, TurnOutput, name_turn
from pytest_agentbench.workspaces.confined import PathRefusedError
from pytest_agentbench.workspaces.sandboxes.base import ExecResult, Sandbox

if TYPE_CHECKING:
    from pytest_agentbench.runners.gateway.gateway import Gateway

_HINT = "Expected artifact in the workspace: {}"


def list_turn_texts(case: Case) -> list[str]:
    """Return the text of each turn as for any program, the first with the hint at the expected artifact.

    Raises ConfigError for an empty turn, or if the messages cannot be rendered.
    """
    texts = program_turns.list_turn_texts(case, "OpenClaw")
    texts[0] = _add_hint(texts[0], case)
    return texts


def _add_hint(text: str, case: Case) -> str:
    if case.expected_artifact is None:
        return text
    return f"{text}\n\n{_HINT.format(case.expected_artifact)}"


def judge_turn(done: ExecResult, reply: Reply | None, gateway: Gateway, *, limit: float, turn: str) -> RunEnd | None:
    """Return how the run ended with this turn, or None if the turn succeeded.

    `limit` is the time of all turns together, in seconds. Raises ProviderError if the turn failed because of the
    model's provider.
    """
    # First, because a killed turn did not end, regardless of its output.
    if done.killed == "time-out" and gateway.outage is not None:
        raise gateway.outage
    if done.killed == "time-out":
        return make_end(
            "timed_out", "run_timeout", f"no answer within openclaw.timeout_seconds ({limit:g} s), in {turn}"
        )
    if done.killed is not None:
        return make_end("failed", "sandbox_limit", f"{turn} went over the sandbox's limit of {done.killed}")
    if reply is not None and reply.error is None and done.exit_code == 0:
        return None
    # Before OpenClaw's own message, which describes an outage as a failure of the agent.
    return gateway.find_end(answered=False) or _explain_failure(done, reply, turn)


def _explain_failure(done: ExecResult, reply: Reply | None, turn: str) -> RunEnd:
    if reply is not None and reply.error is not None:
        if reply.timed_out:
            return make_end("timed_out", "run_timeout", f"OpenClaw's own time limit ended {turn}: {reply.error}")
        return make_end("failed", "openclaw_failed", f"OpenClaw failed in {turn}: {reply.error}")
    if done.exit_code == 0:
        cut = " (the output was truncated)" if done.truncated else ""
        reason = f"OpenClaw ended {turn} without a JSON reply{cut}; its last lines:\n{select_last_lines(done.output)}"
        return make_end("invalid", "no_reply", reason)
    reason = f"OpenClaw ended {turn} with exit code {done.exit_code}; its last lines:\n{select_last_lines(done.output)}"
    return make_end("failed", "openclaw_crashed", reason)


_RELAY, _SOCKET = "relay.mjs", "model.sock"
# Linux accepts 128 KB for one argument.
_MOST_AS_ARGUMENT = 64 * 1024
_OUTPUT_BYTES = 8 * 2**20


async def open_conversation(case: Case, context: RunContext, texts: Sequence[str]) -> OpenClawConversation:
    """Return a conversation in one session of OpenClaw, whose container runs until its `close`.

    `texts` are the messages of the turns as OpenClaw gets them, if they are known: `list_turn_texts`. By default one
    request to the model may take as long as the whole run.

    The trace gets the tool calls that OpenClaw's model requested with their results; a runner event `turn` contains
    OpenClaw's own counts. Raises UnavailableError, ConfigError and SandboxError.
    """
    if context.client is None or context.model is None:
        raise UnavailableError("the runner openclaw needs a model: name one with --model")
    from pytest_agentbench.runners.gateway.gateway import Gateway  # collecting a case imports no web framework

    prepared = context.prepared
    if not isinstance(prepared, OpenClawRun) or prepared.examined is None:
        raise UnavailableError("the runner openclaw needs an `openclaw` block in the run profile")
    agent, examined = prepared.agent, prepared.examined
    limit = agent.profile.timeout_seconds
    settings = RunnerSettings.model_validate({"timeout_seconds": limit, **context.settings})
    parameters = merge_model_parameters(agent, context.model, settings)
    gateway = Gateway(
        Requests(case.case_id, context.client, settings, context.trace, case.runner.overrides),
        context.model,
        context.trace,
        adapt_parameters(parameters, context.model),
        context.over_budget,
        make_policy(context.model),
        "gateway_partial" if context.needs_sandbox().network else "gateway",
    )
    _describe(context, context.model, agent, examined, parameters=parameters, turns=len(texts) or None)
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(control_folder(context.sandboxes))
        _write_inputs(folder, examined, texts)
        try:
            await stack.enter_async_context(gateway.serving(folder / _SOCKET))
        except OSError as error:
            raise SandboxError(f"cannot listen for OpenClaw's requests to its model: {error}") from error
        sandbox = await stack.enter_async_context(_container(context, folder))
        return OpenClawConversation(case, context, texts, agent, gateway, sandbox, folder, stack.pop_all())


@dataclass(slots=True)
class OpenClawConversation(AgentConversation):
    """The turns of one run. They share one session of OpenClaw and one time limit. `closing` frees everything."""

    case: Case
    context: RunContext
    texts: Sequence[str]
    agent: OpenClawAgent
    gateway: Gateway
    sandbox: Sandbox
    folder: Path
    closing: AsyncExitStack
    _turn_time: TurnTime = field(init=False)

    def __post_init__(self) -> None:
        self._turn_time = TurnTime(self._limit)

    @property
    def _limit(self) -> float:
        return float(self.agent.profile.timeout_seconds)

    def word(self, message: Message, turn: int) -> str:
        """Return the message; with the first one come the case's messages and attachments, and the hint."""
        text = program_turns.word_turn(self.case, self.texts, message, turn)
        return _add_hint(text, self.case) if turn == 1 and not self.texts else text

    async def reply(self, message: Message, turn: int) -> TurnOutput:
        """Call OpenClaw with the message, and return its answer. Raises ProviderError if the model's provider fails."""
        text = self.word(message, turn)
        if turn > len(self.texts):
            _write_text(self.folder, turn, text)
        with self.gateway.turn(text):
            done = await self._ask(turn, text)
        reply = await self.context.in_thread(partial(find_reply, done.output))
        self._trace_turn(turn, done, reply)
        place = name_turn(turn, len(self.texts) or None)
        end = judge_turn(done, reply, self.gateway, limit=self._limit, turn=place)
        if end is not None:
            return TurnOutput(None, end)
        return TurnOutput(reply.text if reply is not None else "")

    async def close(self) -> None:
        """Stop the container and close the gateway."""
        await self.closing.aclose()

    async def _ask(self, number: int, text: str) -> ExecResult:
        # With `=`, because a text may begin with a dash.
        message = f"--message-file={CONTROL}/{_name_file(number)}" if _needs_file(text) else f"--message={clean(text)}"
        command = [
            "node",
            f"{CONTROL}/{_RELAY}",
            str(RELAY_PORT),
            f"{CONTROL}/{_SOCKET}",
            "",  # no marker: replies are recognised by their content
            # --local: in this process, without a gateway, channels and cron.
            *("openclaw", "agent", "--local", "--json"),
            *("--agent", self.agent.openclaw_id),
            # One container for all turns: OpenClaw continues with its files below STATE.
            *("--session-id", f"{slug(self.case.case_id)}-{self.context.repetition}"),
            # Our own limit comes first: OpenClaw's counts the time in which its requests wait, too.
            *("--timeout", str(math.ceil(max(0.0, self._turn_time.remaining) + LONGEST_STAND))),
            message,
        ]
        return await self._turn_time.exec(self.sandbox, command, output_limit=_OUTPUT_BYTES, environment=ENVIRONMENT)

    def _trace_turn(self, number: int, done: ExecResult, reply: Reply | None) -> None:
        self.context.trace.event(
            "turn",
            number=number,
            seconds=done.seconds,
            exit_code=done.exit_code,
            killed=done.killed,
            openclaw=None if reply is None else dict(reply.account),
        )


def _describe(context: RunContext, model: Model, agent: OpenClawAgent, examined: Examined, **details: object) -> None:
    context.trace.request.update(
        model=model.requested_model,
        agent=agent.file.agent_id,
        image=agent.profile.image,
        openclaw=examined.version,
        timeout_seconds=agent.profile.timeout_seconds,
        **details,
    )


def _write_inputs(folder: Path, examined: Examined, texts: Sequence[str]) -> None:
    """Write the container's input files. Raises SandboxError if a file cannot be written."""
    # The examined configuration, byte for byte: OpenClaw might refuse another one in the middle of a run.
    contents = {
        CONFIG_NAME: examined.config,
        _RELAY: files("pytest_agentbench.runners.agents").joinpath(_RELAY).read_bytes(),
    }
    for name, content in contents.items():
        write_readable(folder, name, content)
    for number, text in enumerate(texts, start=1):
        _write_text(folder, number, text)


def _write_text(folder: Path, number: int, text: str) -> None:
    if _needs_file(text):
        write_readable(folder, _name_file(number), text.encode("utf-8", "replace"))


@asynccontextmanager
async def _container(context: RunContext, folder: Path) -> AsyncIterator[Sandbox]:
    """Yield the run's container. At the end stop it and then remove OpenClaw's own files."""
    try:
        yield await context.sandbox((make_mount(folder),))
    finally:
        await context.stop_sandbox()
        try:
            # After the stop: until then processes in the container may write.
            await context.in_thread(partial(_remove_own_folders, context))
        except (OSError, PathRefusedError) as error:
            context.trace.event("state_not_removed", reason=str(error))


def _remove_own_folders(context: RunContext) -> None:
    for folder in (STATE, HOME):
        context.workspace.remove(folder)


def _needs_file(text: str) -> bool:
    return len(text.encode("utf-8", "replace")) > _MOST_AS_ARGUMENT or "\0" in text


def _name_file(number: int) -> str:
    return f"turn-{number}.md"
