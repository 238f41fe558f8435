"""Runner `openclaw` for reading case files. The code that runs it is imported with the first run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pytest_agentbench.config.base import suggest
from pytest_agentbench.packs.openclaw.config import leads_inside
from pytest_agentbench.runners.kinds import RunnerKind

if TYPE_CHECKING:
    from pytest_agentbench.config.case_file import TestCaseFile
    from pytest_agentbench.config.documents import Loc
    from pytest_agentbench.packs.openclaw.runs import OpenClawRuns
    from pytest_agentbench.packs.openclaw.turns import OpenClawConversation
    from pytest_agentbench.records.case import Case
    from pytest_agentbench.runners.base import RunContext, RunEnd, RunOutput
    from pytest_agentbench.runners.kinds import SessionParts

_EXPECTED = "expected_artifact"


class OpenClawRunner(RunnerKind):
    """Runner `openclaw`."""

    own_tools = True
    has_turns = True
    limits_itself = True
    answers_with_files = True

    async def __call__(self, case: Case, context: RunContext) -> RunOutput | RunEnd:
        """Call OpenClaw once, with all messages of the case."""
        from pytest_agentbench.packs.openclaw.turns import list_turn_texts, open_conversation
        from pytest_agentbench.runners.conversation import answer_once

        conversation = await open_conversation(case, context, list_turn_texts(case))
        return await answer_once(conversation, case.messages[-1], context)

    async def converse(self, case: Case, context: RunContext) -> OpenClawConversation:
        """Begin a conversation in one session of OpenClaw: `open_conversation`."""
        from pytest_agentbench.packs.openclaw.turns import list_turn_texts, open_conversation

        return await open_conversation(case, context, list_turn_texts(case) if case.turns else [])

    def open(self, parts: SessionParts) -> OpenClawRuns:
        """Return the state that runs of OpenClaw share."""
        from pytest_agentbench.packs.openclaw.runs import OpenClawRuns

        return OpenClawRuns(parts)

    def file_problems(self, file: TestCaseFile) -> Iterator[tuple[Loc, str]]:
        """Yield the problem of a sandbox that the case does not use."""
        if file.sandbox is not None and file.verify is None:
            message = (
                "the runner openclaw gets its container from the run profile's `openclaw` block, and the case has no "
                "verifier that needs this one; remove it"
            )
            yield ("sandbox",), message

    def require_input(self, case: Case) -> None:
        """Raise ConfigError as `list_turn_texts` does."""
        from pytest_agentbench.packs.openclaw.turns import list_turn_texts

        list_turn_texts(case)

    def context_problems(self, hints: Any) -> Iterator[tuple[Loc, str]]:
        """Yield problems of `input.context.openclaw`: an invalid `expected_artifact`, unknown fields."""
        if not isinstance(hints, dict):
            yield (), f"found {hints!r}, expected a mapping"
            return
        for name, value in hints.items():
            if name != _EXPECTED:
                yield (name,), f"unknown field {name!r}{suggest(str(name), [_EXPECTED])}"
            elif not (isinstance(value, str) and value.strip() and leads_inside(value)):
                yield (name,), f"found {value!r}, expected the path of a file inside the workspace"


RUNNER = OpenClawRunner()
