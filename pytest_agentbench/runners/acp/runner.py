"""Runner `acp` for the validation of case files. The code that runs agents is imported at the first run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pytest_agentbench.runners.acp.fields import AcpFields
from pytest_agentbench.runners.agents.runner import ProgramRunner

if TYPE_CHECKING:
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

    def form(self, context: RunContext) -> type[ProgramConversation]:
        """Return the class of the conversation."""
        from pytest_agentbench.runners.acp.conversation import AcpConversation

        return AcpConversation


ACP = AcpRunner()
