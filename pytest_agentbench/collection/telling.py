"""What a process that runs items tells the session: its report, or from a worker xdist's controller."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pytest_agentbench.engine import Part, RunAhead, spending
from pytest_agentbench.records import Usage

if TYPE_CHECKING:
    from pytest_agentbench.session import SessionReport


class ToReport:
    """The only process tells its own report."""

    def __init__(self, report: SessionReport) -> None:
        self._report = report

    def warn(self, *texts: str) -> None:
        """What a reader of the figures has to know, once."""
        self._report.warnings += [text for text in dict.fromkeys(texts) if text not in self._report.warnings]

    def spent(self, part: Part, usages: Sequence[Usage]) -> None:
        """What was paid just now."""
        self._report.spend(part, [spending(usage) for usage in usages])

    def drain(self, reason: str) -> None:
        """Nothing more is to start, in any process."""
        self._report.drain(reason)

    def unshared(self, problem: str) -> None:
        """Results that are not in the shared store."""
        self._report.unshared.append(problem)

    def ended(self, number: int) -> None:
        """The signal that ended this process's part."""
        self._report.ended_by = number


class ToController:
    """A worker tells the controller, over the channel that `shares` describes."""

    def __init__(self, channel: Any, ahead: Callable[[], RunAhead]) -> None:
        self._channel, self._ahead = channel, ahead

    def warn(self, *texts: str) -> None:
        """Like `ToReport.warn`."""
        if texts:
            self._channel.send(("warnings", texts))

    def spent(self, part: Part, usages: Sequence[Usage]) -> None:
        """Like `ToReport.spent`."""
        self._channel.send(("spent", part, [spending(usage) for usage in usages]))

    def drain(self, reason: str) -> None:
        """Like `ToReport.drain`; here at once."""
        self._ahead().drain(reason)
        self._channel.send(("drain", reason))

    def unshared(self, problem: str) -> None:
        """Like `ToReport.unshared`."""
        self._channel.send(("unshared", problem))

    def ended(self, number: int) -> None:
        """Like `ToReport.ended`."""
        self._channel.send(("ended", number))


Telling = ToReport | ToController
