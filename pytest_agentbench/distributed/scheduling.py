"""Schedule items over xdist's workers where these run ahead. Imported only there: it needs xdist."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import pytest
from xdist.scheduler import LoadScheduling

from pytest_agentbench.distributed.shares import CHANNEL, ControllerLink, deal
from pytest_agentbench.engine.driver import WINDOW


class RunAheadScheduling(LoadScheduling):
    """A schedule for sessions with cases, whose workers run ahead; without cases it is LoadScheduling.

    - The whole share is sent at once, in blocks dealt to the workers in turn: files stay together, durations even out.
    - No worker is sent home before all are nearly done, so a dead worker's share moves to the living at once. What it
      may have had in flight is marked suspect and runs alone, when pytest is on it: a second crash names the culprit.
    - When xdist may replace no more of the dead, the living still make up for them, and are sent home at the end.
    """

    def __init__(self, config: pytest.Config, log: Any, link: ControllerLink) -> None:
        super().__init__(config, log)
        self.link = link
        self.ahead = False
        self.collection: list[str] | None
        self.suspects: set[int] = set()
        self.doubtful: set[str] = set()

    def add_node_collection(self, node: Any, collection: Sequence[str]) -> None:
        """Note what a worker collected.

        One that took the place of a dead worker, and was sent home before it had collected, is not asked again.
        """
        if node in self.node2pending:
            super().add_node_collection(node, collection)

    def schedule(self) -> None:
        """Deal the shares once every worker has collected."""
        first, *others = self.node2collection.values()
        if self.collection is None and all(ids == first for ids in others):  # else xdist reports the difference
            self.ahead = self.link.cases > 0  # announced on the same wire, before the collection itself
            if self.ahead:
                self.collection = first
                self.pending[:] = range(len(first))
        if self.ahead:
            self._deal()
        else:
            super().schedule()

    @property
    def nodes(self) -> list[Any]:
        """Return the workers; none where xdist looks for whom to send home because it may restart no more of them."""
        return [] if self._makes_up and not self.tests_finished else list(self.node2pending)

    @property
    def _makes_up(self) -> bool:
        """Return whether the living are to make up for one that xdist did not replace:
        then nobody but this ends them.
        """
        return self.ahead and self.link.no_more_restarts

    def check_schedule(self, node: Any, duration: float = 0) -> None:
        """Deal again after an item: there is something to deal only when a worker died."""
        if not self.ahead:
            super().check_schedule(node, duration)
            return
        self._deal()
        if self._makes_up and self.tests_finished:
            for each in self.node2pending:
                if not each.shutting_down:
                    each.shutdown()

    def remove_node(self, node: Any) -> str | None:
        """Forget a worker that is gone: what it may have had in flight becomes suspect."""
        pending = self.node2pending[node]
        if self.ahead and pending:
            assert self.collection is not None
            # The first pending item is xdist's culprit, though it may only have been waited for: run it once more
            # before blaming it.
            if pending[0] not in self.suspects:
                self.doubtful.add(self.collection[pending[0]])
            # The worker ran ahead: any of the items within its window may have brought it down, not only pytest's.
            self.suspects.update(pending[: (1 + WINDOW) * self.link.in_flight])
        crashed: str | None = super().remove_node(node)
        return crashed

    def hand_on(self, nodeid: str, crash: str) -> bool:
        """Return whether another worker takes over an item whose worker crashed: to run it again alone, or to report
        it.
        """
        decided = nodeid in self.link.decided  # it died just after its report
        if nodeid in self.doubtful:
            self.doubtful.remove(nodeid)
            if not decided:
                self.mark_test_pending(nodeid)
            return True
        no_worker = not self.node2pending and self.link.no_more_restarts
        if not self.ahead or decided or no_worker or nodeid in self.link.culprits:
            return False
        self.link.culprits[nodeid] = crash
        self.mark_test_pending(nodeid)
        return True

    def _deal(self) -> None:
        nodes = [node for node in self.node2pending if node in self.node2collection and not node.shutting_down]
        if not nodes or not self.pending:
            return
        assert self.collection is not None
        crashes = {self.collection.index(nodeid): text for nodeid, text in self.link.culprits.items()}
        for node, dealt in zip(nodes, deal(self.pending, len(nodes)), strict=True):
            share = sorted(dealt, key=self.suspects.__contains__)  # alone, so last: nothing waits for them
            suspects = [index for index in share if index in self.suspects]
            culprits = {index: text for index, text in crashes.items() if index in share}
            self.node2pending[node].extend(share)
            with contextlib.suppress(OSError):  # it has died: xdist is about to hear of it, and the share comes back
                node.workerinput[CHANNEL].send(("share", share, suspects, culprits))
                node.send_runtest_some(share)
        self.pending.clear()


class Scheduling:
    """Make our schedule for the default distribution; of another its items run when reached."""

    def __init__(self, link: ControllerLink) -> None:
        self._link = link

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Any:
        """Return the schedule, None for another distribution than the default."""
        return RunAheadScheduling(config, log, self._link) if config.getoption("dist") == "load" else None
