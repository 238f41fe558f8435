"""The session's shared store: opened before anything is paid, and waited for before the report is written."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import pytest

from pytest_agentbench.store import Remote


class StoreWait:
    """Sees to it that all results are in the shared store when the session ends; `tell` is told where some are not.

    `reporter` shows what is waited for, where that takes more than a moment; xdist's workers have none.
    """

    def __init__(
        self, remote: Remote, tell: Callable[[str], None], reporter: pytest.TerminalReporter | None = None
    ) -> None:
        self.remote, self.tell, self.reporter = remote, tell, reporter

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self) -> Generator[None, Any, Any]:
        """Registered after the engine, so that nothing is in flight any more when this wrapper goes on."""
        try:
            return (yield)
        finally:
            try:
                problem = self.remote.close(self._say)
            except KeyboardInterrupt:
                self.tell(self.remote.unsent())
                raise
            if problem is not None:
                self.tell(problem)

    def _say(self, text: str) -> None:
        if self.reporter is not None:
            self.reporter.ensure_newline()
            self.reporter.write_line(text)
