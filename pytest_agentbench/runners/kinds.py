"""The interface of runners with settings, and of the preparation of their runs.

Case files are validated with it wherever they are read, so this module imports no code that runs anything.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_agentbench.config.base import Scope
    from pytest_agentbench.config.case_file import TestCaseFile
    from pytest_agentbench.config.documents import Loc
    from pytest_agentbench.config.profiles import RunProfile, SuiteFile
    from pytest_agentbench.config.roots import ConfigRoot
    from pytest_agentbench.records.case import Case, Model
    from pytest_agentbench.runners.base import RunContext, RunEnd, RunOutput
    from pytest_agentbench.workspaces.sandboxes.base import SandboxSpec
    from pytest_agentbench.workspaces.sandboxes.choice import Sandboxes


@dataclass(frozen=True, slots=True)
class SessionParts:
    """Parts of a session that runners may use. They end with the session.

    `template_digest(folder)` is the fingerprint of a workspace template. `in_thread` runs a plain function off the
    event loop.
    """

    sandboxes: Sandboxes
    template_digest: Callable[[Path], str]
    in_thread: Callable[[Callable[[], Any]], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class RunRequest:
    """A run to be prepared. `suite` is the suite that the session names; `settings` are the merged runner settings."""

    case: Case
    model: Model
    settings: Mapping[str, Any]
    root: ConfigRoot
    profile: RunProfile
    suite: SuiteFile | None = None


@dataclass(frozen=True, slots=True)
class Prepared:
    """Results of preparing a run, for the engine.

    `identity` are parts of the run's fingerprint, by name. `sandbox()` returns the sandbox specification in place of
    that of the case's tools. It is called only when a run is made, so that stored runs are found on machines without
    such a sandbox. `template(context)` yields the folder that the workspace is copied from, in place of the case's own.
    `data` becomes `context.prepared`. `model_roles` are roles of this run in addition to those of the runner.
    """

    identity: Mapping[str, Any] = field(default_factory=dict)
    sandbox: Callable[[], SandboxSpec] | None = None
    template: Callable[[RunContext], AbstractAsyncContextManager[Path | None]] | None = None
    data: Any = None
    model_roles: tuple[str, ...] = ()


class RunnerSession:
    """State that all runs of a session on one runner share, created when the first run is prepared."""

    def prepare(self, request: RunRequest) -> Prepared:
        """Return the preparation of a run. Called for each item, also if its run is stored.

        Raises UnavailableError if it cannot run here, ConfigError for an error in a file.
        """
        return Prepared()

    async def close(self) -> None:
        """Stop everything that the session's runs have left running."""


class RunnerKind(RunnerSession):
    """A runner with more than `(case, context)`. All members have defaults.

    A runner whose runs share no state is its own session: it overrides `prepare` itself.
    """

    run_seconds: float | None = None
    """Seconds that a whole run may take if the run profile sets no limit."""
    own_tools: bool = False
    """It brings its own tools: a case that offers it tools or MCP servers is refused, unless it `takes_tools`."""
    takes_tools: bool = False
    """It gives its agent the case's tools and MCP servers in addition to the agent's own tools."""
    has_turns: bool = False
    """A case may have `turns`: the runner has a method `converse` of type Converse, or goes through them itself."""
    limits_itself: bool = False
    """It has a time limit of its own: of a conversation's limits only those that a file sets apply."""
    takes_system_text: bool = True
    """A variant may set a system message; false: a case in such a variant is skipped."""
    takes_skills: bool = False
    """It gives its agent the case's skills; false: a case with skills is skipped."""
    sends_requests: bool = True
    """Request fields among the settings reach its model; false: they are refused."""
    own_fields: frozenset[str] = frozenset()
    """Fields of a case's `runner` block that the runner reads itself, so they are no request settings."""
    model_roles: tuple[str, ...] = ()
    """Roles of further models that it asks by `context.client_for(role)`; run profiles name the models."""
    answers_with_files: bool = False
    """Its files may be the answer: judges see them, and a run without a text may pass with them."""

    async def __call__(self, case: Case, context: RunContext) -> str | RunOutput | RunEnd | None:
        """Run the case; of a runner with `converse` by a conversation of one message.

        May raise InfrastructureError, and UnavailableError for missing requirements.
        """
        from pytest_agentbench.runners.conversation import Converse, answer_once

        converse: Converse | None = getattr(self, "converse", None)
        if converse is None:
            raise NotImplementedError
        *before, message = case.messages
        conversation = await converse(case.model_copy(update={"messages": tuple(before)}), context)
        return await answer_once(conversation, message, context)

    def open(self, parts: SessionParts) -> RunnerSession:
        """Return a new object with the state that a session's runs share; the runner itself if they share none."""
        return self

    def settings_problems(self, settings: Mapping[str, Any], scope: Scope | None) -> Iterable[tuple[Loc, str]]:
        """Yield the errors of a file's `runner` block, except `type`, each with its place below the block."""
        return ()

    def file_problems(self, file: TestCaseFile) -> Iterable[tuple[Loc, str]]:
        """Yield the errors of a `test.yaml` with this runner, each with its place."""
        return ()

    def require_input(self, case: Case) -> None:
        """Raise ConfigError for a case whose messages or attachments it cannot take, before anything is paid."""

    def context_problems(self, hints: Any) -> Iterable[tuple[Loc, str]]:
        """Yield the errors of `input.context.<runner>`, each with its place below that field."""
        return ()
