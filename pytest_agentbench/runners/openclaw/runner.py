"""The `openclaw` runner: a case's turns, asked of the real program in a container of the run's own."""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path

from pytest_agentbench.config import RunnerSettings
from pytest_agentbench.errors import SandboxError, UnavailableError
from pytest_agentbench.records import Case, Model
from pytest_agentbench.runners.base import RunContext, RunEnd, RunOutput
from pytest_agentbench.runners.openclaw.agent import OpenClawAgent
from pytest_agentbench.runners.openclaw.configuration import RELAY_PORT, model_parameters, wire_parameters
from pytest_agentbench.runners.openclaw.control import (
    CONFIG_NAME,
    CONTROL,
    ENVIRONMENT,
    HOME,
    STATE,
    control_folder,
    furnish,
    mount_of,
)
from pytest_agentbench.runners.openclaw.ends import turn_end
from pytest_agentbench.runners.openclaw.examining import Examined
from pytest_agentbench.runners.openclaw.messages import turn_texts
from pytest_agentbench.runners.openclaw.relay import ModelRelay
from pytest_agentbench.runners.openclaw.replies import Reply, find_reply
from pytest_agentbench.runners.recorder import clean
from pytest_agentbench.runners.requests import Requests
from pytest_agentbench.store import slug
from pytest_agentbench.workspaces import ExecResult, PathRefusedError, Sandbox

_LAUNCHER, _SOCKET = "launch.mjs", "model.sock"
_MOST_AS_ARGUMENT = 64 * 1024
_OUTPUT_BYTES = 8 * 2**20


async def openclaw(case: Case, context: RunContext) -> RunOutput | RunEnd:
    """Ask OpenClaw turn by turn in one session, until a turn fails or all are done.

    Where no setting says how long one request to the model may take, that is as long as the whole run may.

    The trace has each turn's message, the tool calls that its model asked for with their results, and OpenClaw's
    answer; a runner event `turn` holds what OpenClaw itself counted. Raises ProviderError where a turn failed because
    the model's provider did, UnavailableError, ConfigError and SandboxError.
    """
    if context.client is None or context.model is None:
        raise UnavailableError("the runner openclaw needs a model: name one with --model")
    if context.openclaw is None or context.examined is None:
        raise UnavailableError("the runner openclaw needs an `openclaw` block in the run profile")
    texts, limit = turn_texts(case), context.openclaw.profile.timeout_seconds
    settings = RunnerSettings.model_validate({"timeout_seconds": limit, **context.settings})
    parameters = model_parameters(context.openclaw, context.model, settings)
    relay = ModelRelay(
        Requests(case.case_id, context.client, settings, context.trace),
        context.model,
        context.trace,
        wire_parameters(parameters, context.model),
        context.over_budget,
    )
    session = _Session(case, context, context.openclaw, relay)
    _describe(context, context.model, context.openclaw, context.examined, parameters=parameters, turns=len(texts))
    with control_folder(context.sandboxes) as folder:
        _furnish(folder, context.examined, texts)
        async with AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(relay.serving(folder / _SOCKET))
            except OSError as error:
                raise SandboxError(f"cannot listen for OpenClaw's requests to its model: {error}") from error
            sandbox = await stack.enter_async_context(_container(context, folder))
            return await session.run(sandbox, texts)


@dataclass(slots=True)
class _Session:
    """The turns of one run. All of them have one session of OpenClaw's, and one time limit together."""

    case: Case
    context: RunContext
    agent: OpenClawAgent
    relay: ModelRelay

    async def run(self, sandbox: Sandbox, texts: Sequence[str]) -> RunOutput | RunEnd:
        """How the run ended: at its first failed turn, or with the last turn's answer."""
        limit, began = float(self.agent.profile.timeout_seconds), time.monotonic()
        answer = ""
        for number, text in enumerate(texts, start=1):
            self.context.trace.message("user", text)
            with self.relay.turn(text):
                done = await self._ask(sandbox, number, text, began + limit - time.monotonic())
            reply = await self.context.in_thread(partial(find_reply, done.output))
            self._note(number, done, reply)
            end = turn_end(done, reply, self.relay, limit=limit, turn=f"turn {number} of {len(texts)}")
            if end is not None:
                return end
            answer = reply.text if reply is not None else ""
            self.context.trace.message("assistant", answer)
        return RunOutput(output=answer)

    async def _ask(self, sandbox: Sandbox, number: int, text: str, seconds: float) -> ExecResult:
        told = f"--message-file={CONTROL}/{_file_of(number)}" if _needs_file(text) else f"--message={clean(text)}"
        command = [
            "node",
            f"{CONTROL}/{_LAUNCHER}",
            str(RELAY_PORT),
            f"{CONTROL}/{_SOCKET}",
            *("openclaw", "agent", "--local", "--json"),
            *("--agent", self.agent.openclaw_id),
            *("--session-id", f"{slug(self.case.case_id)}-{self.context.repetition}"),
            *("--timeout", str(max(1, math.ceil(seconds)))),
            told,
        ]
        return await sandbox.exec(
            command, seconds=max(0.0, seconds), output_limit=_OUTPUT_BYTES, environment=ENVIRONMENT
        )

    def _note(self, number: int, done: ExecResult, reply: Reply | None) -> None:
        self.context.trace.event(
            "turn",
            number=number,
            seconds=done.seconds,
            exit_code=done.exit_code,
            killed=done.killed,
            openclaw=None if reply is None else dict(reply.account),
        )


def _describe(context: RunContext, model: Model, agent: OpenClawAgent, examined: Examined, **asked: object) -> None:
    context.trace.request.update(
        model=model.requested_model,
        agent=agent.file.agent_id,
        image=agent.profile.image,
        openclaw=examined.version,
        timeout_seconds=agent.profile.timeout_seconds,
        **asked,
    )


def _furnish(folder: Path, examined: Examined, texts: Sequence[str]) -> None:
    """What the container reads there. Raises SandboxError where it cannot be written."""
    given = {
        CONFIG_NAME: examined.config,
        _LAUNCHER: files("pytest_agentbench.runners.openclaw").joinpath(_LAUNCHER).read_bytes(),
    }
    given |= {
        _file_of(number): text.encode("utf-8", "replace")
        for number, text in enumerate(texts, start=1)
        if _needs_file(text)
    }
    for name, content in given.items():
        furnish(folder, name, content)


@asynccontextmanager
async def _container(context: RunContext, folder: Path) -> AsyncIterator[Sandbox]:
    """The run's container. In the end it is stopped, and then what OpenClaw kept for itself is removed."""
    try:
        yield await context.sandbox((mount_of(folder),))
    finally:
        await context.stop_sandbox()
        try:
            await context.in_thread(partial(_remove_own_folders, context))
        except (OSError, PathRefusedError) as error:
            context.trace.event("state_not_removed", reason=str(error))


def _remove_own_folders(context: RunContext) -> None:
    for folder in (STATE, HOME):
        context.workspace.remove(folder)


def _needs_file(text: str) -> bool:
    return len(text.encode("utf-8", "replace")) > _MOST_AS_ARGUMENT or "\0" in text


def _file_of(number: int) -> str:
    return f"turn-{number}.md"
