"""The control of a live session: its socket, and the state that requests of `agentbench sessions` read and change."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from pytest_agentbench.distributed.control_socket import ControlSocket
    from pytest_agentbench.distributed.shares import ControllerLink
    from pytest_agentbench.engine.budget import Budget, Part, Spending
    from pytest_agentbench.options import Settings
    from pytest_agentbench.reports.journal import Journal


class OperatedSession(Protocol):
    """The parts of a session's report that its control reads and changes.

    `operate` answers for the runs of the only process, as `collection.operations` describes. It is None with
    pytest-xdist, whose controller asks its workers by `link`.
    """

    config: pytest.Config
    session: pytest.Session
    settings: Settings
    started_at: datetime
    budget: Budget | None
    link: ControllerLink | None
    operate: Callable[[dict[str, Any]], dict[str, Any]] | None
    journal: Journal | None
    drained: str | None
    warnings: list[str]

    @property
    def rows(self) -> Mapping[str, Any]:
        """Return the rows of reported runs by node id, in the order of the reports."""
        ...

    def describe_live(self) -> dict[str, Any]:
        """Return plain facts about the session."""
        ...

    def spend(self, part: Part, spendings: Sequence[Spending]) -> None:
        """Book payments, and look at the limits again."""
        ...

    def drain(self, reason: str) -> None:
        """Start no further run."""
        ...


class SessionControl:
    """Operates one session by its socket. The socket's threads call `answer`, one at a time.

    `changes` are the requests that changed the session, for its report.
    """

    def __init__(self, report: OperatedSession) -> None:
        self._report = report
        self._socket: ControlSocket | None = None
        self._first_concurrency = 0
        self.changes: list[dict[str, Any]] = []
        self.held = False
        """Whether the session starts no more runs until it is told to go on."""

    @property
    def address(self) -> str | None:
        """Return the path of the socket, None if the session has none."""
        if self._socket is None:
            return None
        return str(self._socket.path)

    def open(self, journal: Journal, models: Sequence[str], planned: int) -> None:
        """Open the socket, if the output folder can hold one: some file systems have no sockets."""
        if journal.path is None:
            return
        from pytest_agentbench.distributed.control_socket import ControlSocket

        name = journal.path.stem
        started = self._report.started_at.isoformat()
        facts = {"session": name, "pid": os.getpid(), "started": started, "models": [*models], "planned": planned}
        try:
            self._socket = ControlSocket(self._report.settings.output, name, self.answer, facts)
        except OSError as error:
            self._report.warnings.append(f"`agentbench sessions` cannot operate this session: {error}")
            return
        self._report.config.add_cleanup(self._socket.close)

    def close(self) -> None:
        """Answer nobody any more."""
        if self._socket is not None:
            self._socket.close()

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer a request of `agentbench sessions`. Raises RequestRefused."""
        from pytest_agentbench.distributed.control_socket import RequestRefused
        from pytest_agentbench.distributed.live_session import LiveSession

        report = self._report
        if report.budget is None or (report.link is None and report.operate is None):
            raise RequestRefused("too_late", "the session is starting; try again")
        if not self._first_concurrency:
            # Before any request that changes it: it bounds what a request may ask for
            states = self._ask_processes({"do": "state"})
            self._first_concurrency = max((state["concurrency"] for state in states), default=1)
        stopping = report.drained or report.session.shouldstop or report.session.shouldfail or None
        session = LiveSession(
            facts=report.describe_live(),
            budget=report.budget,
            stopping=None if stopping is None else str(stopping),
            held=self.held,
            ask=self._ask_processes,
            rows=lambda: [*report.rows.values()],  # copied: pytest's thread adds rows meanwhile
            book=lambda: report.spend("run", ()),
            drain=report.drain,
            warn=report.warnings.append,
            concurrency=self._first_concurrency,
            max_cost=report.settings.max_cost,
        )
        answer = session.answer(request)
        self.held = session.held
        if session.changed is not None:
            self._note(session.changed)
        return answer

    def _note(self, change: Mapping[str, Any]) -> None:
        """Note a change in the journal and for the report. Its reason is also a warning, so that people read it."""
        entry = {"at": round(time.time(), 3), "uid": os.getuid(), **change}
        self.changes.append(entry)
        if "reason" in change:
            self._report.warnings.append(f"agentbench sessions {change['do']}: {change['reason']}")
        if self._report.journal is not None:
            self._report.journal.change(entry)

    def _ask_processes(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the answers of the processes that make runs."""
        if self._report.link is not None:
            return self._report.link.ask(request)
        assert self._report.operate is not None
        return [self._report.operate(request)]
