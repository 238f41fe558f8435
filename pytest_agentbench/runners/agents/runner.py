"""Runners `command` and `agent` for the validation of case files. The code that runs programs is imported at the
first run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.extensions import extension_names
from pytest_agentbench.runners.agents.fields import (
    AgentFields,
    CommandFields,
    ProgramFields,
    find_field_problems,
    no_turns,
    refuse_tools,
)
from pytest_agentbench.runners.kinds import RunnerKind

if TYPE_CHECKING:
    from pytest_agentbench.config.base import Scope
    from pytest_agentbench.config.case_file import TestCaseFile
    from pytest_agentbench.config.documents import Loc
    from pytest_agentbench.records.case import Case
    from pytest_agentbench.runners.agents.runs import ProgramRuns
    from pytest_agentbench.runners.agents.turns import ProgramConversation
    from pytest_agentbench.runners.base import RunContext, RunEnd, RunOutput
    from pytest_agentbench.runners.kinds import SessionParts


class ProgramRunner(RunnerKind):
    """A runner that starts a program, with its model behind a gateway."""

    own_tools = True
    takes_tools = True
    takes_system_text = False
    has_turns = True
    limits_itself = True
    answers_with_files = True
    fields: type[ProgramFields]

    def __init__(self) -> None:
        self.own_fields = frozenset(self.fields.model_fields)

    async def __call__(self, case: Case, context: RunContext) -> RunOutput | RunEnd:
        """Start the program once, with all messages of the case."""
        from pytest_agentbench.runners.agents.turns import list_turn_texts, open_program
        from pytest_agentbench.runners.conversation import answer_once

        texts = list_turn_texts(case, f"the runner {case.runner.type}")
        conversation = await open_program(case, context, texts, self.form(context))
        return await answer_once(conversation, case.messages[-1], context)

    async def converse(self, case: Case, context: RunContext) -> ProgramConversation:
        """Begin a conversation with the program: `open_program`."""
        from pytest_agentbench.runners.agents.turns import list_turn_texts, open_program

        texts = list_turn_texts(case, f"the runner {case.runner.type}") if case.turns else []
        return await open_program(case, context, texts, self.form(context))

    def form(self, context: RunContext) -> type[ProgramConversation]:
        """Return the class of the conversation with the prepared program."""
        from pytest_agentbench.runners.agents.turns import ProgramConversation

        return ProgramConversation

    def open(self, parts: SessionParts) -> ProgramRuns:
        """Return the state that runs of programs share."""
        from pytest_agentbench.runners.agents.runs import ProgramRuns

        return ProgramRuns(parts.sandboxes)

    def settings_problems(self, settings: Mapping[str, Any], scope: Scope | None) -> Iterable[tuple[Loc, str]]:
        """Yield the errors of the runner's own fields, and programs that a guest's file may not start."""
        yield from find_field_problems(self.fields, settings, scope)
        if scope is not None and scope.guest is not None:
            for name, program in self.started(settings):
                try:
                    scope.refuse_program(program)
                except ValueError as error:
                    yield (name,), str(error)

    def started(self, settings: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Yield the fields that name a program or its sandbox, each with a description of the value."""
        kind = settings.get("sandbox")
        if isinstance(kind, str) and kind in extension_names("sandbox"):  # other values are errors of the field
            from pytest_agentbench.workspaces.sandboxes.base import lacks_isolation

            if lacks_isolation(kind):
                yield "sandbox", f"a program without isolation (sandbox: {kind})"

    def require_input(self, case: Case) -> None:
        """Raise ConfigError as `list_turn_texts` does."""
        from pytest_agentbench.runners.agents.turns import list_turn_texts

        list_turn_texts(case, f"the runner {case.runner.type}")


def find_tool_problems(file: TestCaseFile, agent: str) -> Iterator[tuple[Loc, str]]:
    """Yield an error for each field with tools or MCP servers, of an agent that takes none."""
    if file.mcp_servers:
        yield ("mcp_servers",), refuse_tools(agent, "mcp_servers")
    probe = file.input.context.get("llm_probe") or {}
    if probe.get("tools"):
        yield ("input", "context", "llm_probe", "tools"), refuse_tools(agent, "tools")


class CommandRunner(ProgramRunner):
    """Runner `command`."""

    fields = CommandFields

    def started(self, settings: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Yield the command itself."""
        yield "command", "a command"

    def file_problems(self, file: TestCaseFile) -> Iterator[tuple[Loc, str]]:
        """Yield an error for several turns with a command that cannot continue a session."""
        if len(file.input.turns) > 1 and not file.runner.overrides.get("resume"):
            remedy = "add the command that continues a session, or use one turn"
            yield ("input", "turns"), f"found {len(file.input.turns)} turns and no `resume` in the runner; {remedy}"


class AgentRunner(ProgramRunner):
    """Runner `agent`."""

    fields = AgentFields
    takes_skills = True

    def started(self, settings: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Yield the file's own image, and a sandbox without isolation."""
        yield from super().started(settings)
        if settings.get("image") is not None:
            yield "image", f"the image {settings['image']!r}"

    def file_problems(self, file: TestCaseFile) -> Iterator[tuple[Loc, str]]:
        """Yield an error for several turns with an agent that cannot continue a session, and for tools and MCP servers
        with one that takes none.

        Unknown agents are no error here, because a config root may define more. The session reports unknown names.
        """
        from pytest_agentbench.runners.agents.adapter import find_adapter

        try:
            adapter = find_adapter(str(file.runner.overrides.get("agent")))
        except ConfigError:
            return
        if len(file.input.turns) > 1 and adapter.program.argv and adapter.program.resume_argv is None:
            yield ("input", "turns"), no_turns(adapter.program.name, len(file.input.turns))
        if (adapter.program.mcp if adapter.program.argv else adapter.program.acp_mcp) is None:
            yield from find_tool_problems(file, adapter.program.name)

    def form(self, context: RunContext) -> type[ProgramConversation]:
        """Return the class of the conversation: by ACP if the adapter has no other command."""
        from pytest_agentbench.runners.acp.fields import AcpFields

        if not isinstance(context.prepared.fields, AcpFields):
            return super().form(context)
        from pytest_agentbench.runners.acp.conversation import AcpConversation

        return AcpConversation


COMMAND, AGENT = CommandRunner(), AgentRunner()
