"""pytest-xdist: every worker gets its whole share at once, so that it can run ahead of its own pytest.

Controller and worker talk over a channel of their own (execnet lets channels travel in `workerinput`):

- worker to controller: `("cases", n, in_flight)` and `("warnings", texts)` after collection, then `("spent", usd)`
  after each paid run
- controller to worker: `("share", indices, suspects, culprits)`, the last a mapping from index to what is said of it;
  `("halt", reason)`: start nothing more, skip the rest; `("stop", reason)`: end the session, because xdist's own
  shutdown order would queue behind the share
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, Literal

import pytest

CHANNEL = "agentbench"


def deal(indices: Sequence[int], workers: int) -> list[list[int]]:
    """One share per worker: blocks of neighbours dealt in turn, each index exactly once."""
    size = max(1, len(indices) // (8 * workers))
    blocks = [indices[i : i + size] for i in range(0, len(indices), size)]
    return [[index for block in blocks[number::workers] for index in block] for number in range(workers)]


class ControllerLink:
    """The controller's side: hands out channels, adds up what workers spend, tells them to stop.

    `spend(usd)` books a cost (None: unknown) and returns the reason to stop once the budget is used up. `in_flight` is
    how many runs one worker makes at a time. `culprits` are the items that crashed a worker, with what is said of them:
    another worker reports them, because it can make their rows. `unplaced` are crashes that no worker could take over.
    """

    def __init__(self, spend: Callable[[float | None], str | None]) -> None:
        self.spend = spend
        self.channels: list[Any] = []
        self.cases = 0
        self.in_flight = 1
        self.told: set[str] = set()
        self.decided: set[str] = set()
        self.culprits: dict[str, str] = {}
        self.warnings: dict[str, None] = {}
        self.unplaced: list[str] = []

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Puts a private channel into what the worker is started with."""
        channel = node.workerinput[CHANNEL] = node.gateway.newchannel()
        channel.setcallback(self._receive)  # in execnet's thread, in the order the worker sent
        self.channels.append(channel)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Any:
        """Ours for the default distribution; an explicit `--dist` is the user's, and its items run when reached."""
        if config.getoption("dist") != "load":
            return None
        from pytest_agentbench.engine.scheduling import RunAheadScheduling

        return RunAheadScheduling(config, log, self)

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str, report: Any, sched: Any) -> None:
        """A crash is an error of the case, and with many runs in flight pytest's item is rarely the culprit."""
        report.when = "setup"
        hand_on = getattr(sched, "hand_on", None)
        if hand_on is not None and hand_on(crashitem, str(report.longrepr)):
            report.outcome = "rerun"
        else:
            self.unplaced.append(str(report.longrepr))

    def tell(self, order: Literal["halt", "stop"], reason: str) -> None:
        """Sends an order to every worker, once."""
        if order in self.told:
            return
        self.told.add(order)
        for channel in self.channels:
            with contextlib.suppress(OSError):  # that worker is gone
                channel.send((order, reason))

    def _receive(self, message: Sequence[Any]) -> None:
        kind, *rest = message
        if kind == "cases":
            self.cases += rest[0]
            self.in_flight = max(self.in_flight, rest[1])
        elif kind == "warnings":
            self.warnings.update(dict.fromkeys(rest[0]))  # every worker has collected the same
        elif reason := self.spend(rest[0]):
            self.tell("halt", reason)
