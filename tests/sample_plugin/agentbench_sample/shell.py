"""Runner: what the user says is a command, what it prints is the answer; each turn is one more command.

    runner: {type: shell, image: "alpine:3.20"}
    input: {messages: [{role: user, content: cat notes.txt}], turns: [{role: user, content: wc -l notes.txt}]}

With an image it runs in a container, without one in the sandbox of the run profile. It asks no model.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from agentbench_sample.settings import SHELL
from pytest_agentbench import (
    Case,
    Prepared,
    RunContext,
    RunnerKind,
    RunnerSession,
    RunOutput,
    RunRequest,
    SandboxSpec,
    SessionParts,
)

TEMPLATE = Path(__file__).with_name("template")


class ShellSession(RunnerSession):
    """What runs share: nothing but what the session lends them."""

    def __init__(self, parts: SessionParts) -> None:
        self.parts = parts

    def prepare(self, request: RunRequest) -> Prepared:
        """Return where the run takes place, what its workspace begins with, and what tells it from other runs."""
        settings = request.profile.section(SHELL)
        sandbox = request.profile.sandbox_settings

        def spec() -> SandboxSpec:
            image = request.settings.get("image")
            sandboxes = self.parts.sandboxes
            return (
                sandboxes.spec(sandbox, request.case.sandbox) if image is None else sandboxes.container(image, sandbox)
            )

        return Prepared(
            identity={"shell": {"template": self.parts.template_digest(TEMPLATE), "sandbox": sandbox}},
            sandbox=spec,
            template=self._template,
            data=settings,
        )

    @asynccontextmanager
    async def _template(self, context: RunContext) -> AsyncIterator[Path]:
        # One that is made for each run would be removed after the yield: the workspace has its copy by then.
        yield TEMPLATE


class ShellRunner(RunnerKind):
    """Runs the commands of a case, one after the other, in one sandbox."""

    own_tools = True
    has_turns = True

    def open(self, parts: SessionParts) -> ShellSession:
        """Return what the session's runs share."""
        return ShellSession(parts)

    async def __call__(self, case: Case, context: RunContext) -> RunOutput:
        """Return what the last command prints. The run fails with the first that takes too long."""
        answer = ""
        sandbox = await context.sandbox()
        for message in (*case.messages, *case.turns):
            context.trace.message("user", message.content)
            done = await sandbox.exec(["sh", "-c", message.content], seconds=context.prepared.seconds)
            if done.killed is not None:
                return RunOutput(output=None, status="failed", error=f"killed for its {done.killed}: {message.content}")
            answer = done.output
            context.trace.message("assistant", answer)
        return RunOutput(output=answer)


RUNNER = ShellRunner()
