"""Runner `acp` for the validation of case files. The code that runs agents is imported at the first run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pytest_agentbench.errors import ConfigError
from pytest_agentbench.runners.acp.fields import AcpFields, no_acp
from pytest_agentbench.runners.agents.runner import ProgramRunner, find_tool_problems

if TYPE_CHECKING:
    from pytest_agentbench.config.case_file import TestCaseFile
    from pytest_agentbench.config.documents import Loc
    from pytest_agentbench.runners.agents.turns import ProgramConversation
    from pytest_agentbench.runners.base import RunContext


class AcpRunner(ProgramRunner):
    """Runner `acp`."""

    fields = AcpFields
    takes_skills = True

    def started(self, settings: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Yield the command, or a sandbox without isolation, and the file's own image."""
        if settings.get("command") is not None:
            yield "command", "a command"
        else:
            yield from super().started(settings)
        if settings.get("image") is not None:
            yield "image", f"the image {settings['image']!r}"

    def file_problems(self, file: TestCaseFile) -> Iterator[tuple[Loc, str]]:
        """Yield an error for an adapter without ACP, and for tools and MCP servers with an agent that takes none.

        Unknown agents are no error here, because a config root may define more. The session reports unknown names.
        """
        from pytest_agentbench.runners.agents.adapter import find_adapter

        if (name := file.runner.overrides.get("agent")) is None:
            return
        try:
            program = find_adapter(str(name)).program
        except ConfigError:
            return
        if program.acp is None:
            yield ("runner", "agent"), no_acp(program.name)
        elif program.acp_mcp is None:
            yield from find_tool_problems(file, program.name)

    def form(self, context: RunContext) -> type[ProgramConversation]:
        """Return the class of the conversation."""
        from pytest_agentbench.runners.acp.conversation import AcpConversation

        return AcpConversation


ACP = AcpRunner()
