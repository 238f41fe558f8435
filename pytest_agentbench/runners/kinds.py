"""Define what a runner says of itself, and how runs on it are prepared.

A case file that names a runner has it asked wherever the file is read, so this imports nothing that runs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

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


class SessionParts(NamedTuple):
    """Hold what a session lends its runners.

    `template_digest(folder)` is what fingerprints say of a workspace template.

    `in_thread` runs a plain function off the event loop. All of them end with the session.
    """

    sandboxes: Sandboxes
    template_digest: Callable[[Path], str]
    in_thread: Callable[[Callable[[], Any]], Awaitable[Any]]


class RunRequest(NamedTuple):
    """A run to be prepared. `suite` is the suite that the session names; `settings` are the merged runner settings."""

    case: Case
    model: Model
    settings: Mapping[str, Any]
    root: ConfigRoot
    profile: RunProfile
    suite: SuiteFile | None = None


class Prepared(NamedTuple):
    """Hold what the engine is to know of a run before it runs.

    `identity` are parts of the run's fingerprint, by name. `sandbox()` is where it runs, in place of the sandbox that
    the case's tools ask for; it is called when a run is made, so that a stored one is found where there is no such
    sandbox. `template(context)` lends the folder that the workspace starts as a copy of, in place of the case's own.
    `data` is `context.prepared`.
    """

    identity: Mapping[str, Any] = {}
    sandbox: Callable[[], SandboxSpec] | None = None
    template: Callable[[RunContext], AbstractAsyncContextManager[Path | None]] | None = None
    data: Any = None


class RunnerSession:
    """Hold what all runs of a session on one runner share; made when the first of them is prepared."""

    def prepare(self, request: RunRequest) -> Prepared:
        """Return what the engine is to know of a run. Asked for each item, also where its run is stored already.

        Raises UnavailableError where it cannot run here, ConfigError for what a file has wrong.
        """
        return Prepared()

    async def close(self) -> None:
        """End what the session's runs have left running."""


class RunnerKind:
    """A runner with more than `(case, context)`. All of it has a default, so that one says only what is special."""

    run_seconds: float | None = None
    """Limit of a whole run where the run profile gives none."""
    own_tools: bool = False
    """It brings its own tools: a case that offers it tools or MCP servers is refused."""
    has_turns: bool = False
    """It holds a conversation: a case may have `turns`."""
    sends_requests: bool = True
    """Request fields among the settings reach its model; false: they are refused."""
    own_fields: frozenset[str] = frozenset()
    """What it reads of a case's `runner` block itself: no settings of requests."""
    answers_with_files: bool = False
    """Files that it leaves may stand for its answer: judges see them, and a run without a text may pass by them."""

    async def __call__(self, case: Case, context: RunContext) -> str | RunOutput | RunEnd | None:
        """Run the case. May raise InfrastructureError, and UnavailableError for what is not to be had here."""
        raise NotImplementedError

    def open(self, parts: SessionParts) -> RunnerSession:
        """Return what the session's runs share."""
        return RunnerSession()

    def settings_problems(self, settings: Mapping[str, Any], scope: Scope | None) -> Iterable[tuple[Loc, str]]:
        """Yield what a file's `runner` block has wrong beside `type`, each at its place below the block."""
        return ()

    def file_problems(self, file: TestCaseFile) -> Iterable[tuple[Loc, str]]:
        """Yield what a `test.yaml` with this runner has wrong, each at its place."""
        return ()

    def require_input(self, case: Case) -> None:
        """Raise ConfigError for a case whose messages or attachments it cannot take, before anything is paid."""

    def context_problems(self, hints: Any) -> Iterable[tuple[Loc, str]]:
        """Yield what `input.context.<runner>` has wrong, each at its place below that."""
        return ()
