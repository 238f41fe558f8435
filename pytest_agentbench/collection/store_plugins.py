"""Plugins that finish the store at a session's end: the shared store is sent everything, and files are laid out."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

import pytest

from pytest_agentbench.reports.rows import ARTIFACT_PROPERTY

if TYPE_CHECKING:
    from pytest_agentbench.store.database import Documents
    from pytest_agentbench.store.remote import Remote

MOST_LAID_OUT = 1_000
"""Maximum runs whose files are laid out at the end of a session: more would take longer than the database saves."""

_log = logging.getLogger(__name__)


class StoreWait:
    """Waits at a session's end until the shared store has all results.

    `warn` gets a text about results that it lacks. `reporter` shows a wait that takes more than a moment; xdist's
    workers have none.
    """

    def __init__(
        self, remote: Remote, warn: Callable[[str], None], reporter: pytest.TerminalReporter | None = None
    ) -> None:
        self.remote, self.warn, self.reporter = remote, warn, reporter

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self) -> Generator[None, Any, Any]:
        """Wait. The plugin is registered after the engine, so that this part runs with nothing in flight."""
        try:
            return (yield)
        finally:
            try:
                problem = self.remote.close(self._show)
            except KeyboardInterrupt:
                self.warn(self.remote.describe_unsent())
                raise
            if problem is not None:
                self.warn(problem)

    def _show(self, text: str) -> None:
        if self.reporter is not None:
            self.reporter.ensure_newline()
            self.reporter.write_line(text)


class StoreLayout:
    """Lays out the session's runs as files, in a thread, while the reports are written.

    In a session of more than `MOST_LAID_OUT` runs only failed runs get files, because reports name them.
    """

    def __init__(self, documents: Documents, runs: int) -> None:
        self.documents, self._failed = documents, set[str]()
        if runs <= MOST_LAID_OUT:
            documents.note_use()
        self._maker = threading.Thread(target=self._lay_out, name="agentbench-layout", daemon=True)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self) -> Generator[None, Any, Any]:
        """Start the thread once nothing is in flight."""
        try:
            return (yield)
        finally:
            self._maker.start()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the folder of a failed run."""
        if report.failed and len(self._failed) < MOST_LAID_OUT:
            paths = (str(value) for name, value in report.user_properties if name == ARTIFACT_PROPERTY)
            self._failed.update(path.rpartition("/")[0] for path in paths)

    def pytest_unconfigure(self) -> None:
        """Wait for the thread."""
        if self._maker.ident is not None:
            self._maker.join()

    def _lay_out(self) -> None:
        from pytest_agentbench.store.layout import lay_out_used

        try:
            lay_out_used(self.documents, self._failed)
        except OSError as error:  # the database has the same content
            _log.warning("%s: the files of runs and verdicts could not be made: %s", self.documents.output, error)
