"""The session's shared store: opened before anything is paid, and waited for before the report is written."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import pytest

from pytest_agentbench.store import Remote


class StoreWait:
    """Sees to it that all results are in the shared store when the session ends; `tell` is told where some are not."""

    def __init__(self, remote: Remote, tell: Callable[[str], None]) -> None:
        self.remote, self.tell = remote, tell

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self) -> Generator[None, Any, Any]:
        """Registered after the engine, so that nothing is in flight any more when this wrapper goes on."""
        try:
            return (yield)
        finally:
            if (problem := self.remote.close()) is not None:
                self.tell(problem)
