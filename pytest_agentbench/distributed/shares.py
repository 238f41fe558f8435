"""Sessions over xdist's workers: their shares, and the messages between workers and controller. Needs xdist.

Every worker gets its whole share at once, so that it can run ahead of its pytest.

Controller and worker send messages over their own channel (execnet lets channels travel in `workerinput`):

- worker to controller: `("cases", n, in_flight, models)`, `("warnings", texts)` and `("variants", mapping)` after
  collection, then `("spent", part, spendings)` after each paid run and judgement, and `("drain", reason)` if it cannot
  go on. At the end follow `("unshared", text)` for results that are missing in the shared store, `("limited",
  model_id, replies, seconds)` for replies of status 429, `("ended", number)` for the signal that ended it, and
  `("finished",)` once nothing is in flight after `finish`
- controller to worker: `("share", indices, suspects, culprits)`, the last a mapping from index to the crash's text;
  `("drain", reason)`: start no further run, skip the rest; `("finish", reason)`: also send no further request;
  `("stop", reason)`: end the session, because xdist's own shutdown order would queue behind the share;
  `("ask", number, request)`, which a worker answers by `("answer", number, mapping)`: see `questions`

`engine.limits` describes the messages for limits over all workers.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import pytest
from xdist.scheduler import LoadScheduling

from pytest_agentbench.distributed.questions import Questions
from pytest_agentbench.engine.driver import WINDOW
from pytest_agentbench.engine.limits import ControllerThrottles, Line, steady_socket

if TYPE_CHECKING:
    from pytest_agentbench.engine.budget import Part, Spending


ROW, _PROPERTIES, _PACKED = "agentbench_row", "user_properties", "agentbench_parcel"
_TEXTS = ("longrepr", "sections")
_PLAIN = (str, int, float, bool, type(None))


class ReportPacker:
    """A packer of a report's row and properties into one string in a worker, and out of it in the controller.

    Nothing else is touched, nor properties that JSON would change. The row is on its way into report.json anyhow. Lone
    surrogates, which an agent may print or raise and execnet cannot carry, are written as escapes.
    """

    @pytest.hookimpl(wrapper=True)
    def pytest_report_to_serializable(self) -> Generator[None, dict[str, Any] | None, dict[str, Any] | None]:
        """Pack row and properties into one string."""
        data = yield
        if data is not None:
            packed = {name: data.pop(name) for name in (ROW, _PROPERTIES) if _is_packable(name, data.get(name))}
            if packed:
                data[_PACKED] = json.dumps(packed)
            for name in _TEXTS:
                if data.get(name):
                    data[name] = _make_sendable(data[name])
        return data

    @pytest.hookimpl(wrapper=True)
    def pytest_report_from_serializable(self, data: dict[str, Any]) -> Generator[None, object, object]:
        """Unpack row and properties."""
        if (text := data.pop(_PACKED, None)) is not None:
            packed = json.loads(text)
            if _PROPERTIES in packed:
                packed[_PROPERTIES] = [tuple(each) for each in packed[_PROPERTIES]]
            data.update(packed)
        return (yield)


def _is_packable(name: str, value: Any) -> bool:
    if not value:
        return False
    return name == ROW or all(type(each) is tuple and all(type(part) in _PLAIN for part in each) for each in value)


def _make_sendable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {name: _make_sendable(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_make_sendable, value))
    return value


CHANNEL = "agentbench"


def deal(indices: Sequence[int], workers: int) -> list[list[int]]:
    """Return one share per worker: blocks of neighbours dealt in turn, each index exactly once."""
    # Eight blocks each: neighbours share files and servers, and a slow file still spreads over several workers.
    size = max(1, len(indices) // (8 * workers))
    blocks = [indices[i : i + size] for i in range(0, len(indices), size)]
    return [[index for block in blocks[number::workers] for index in block] for number in range(workers)]


class ControllerLink:
    """The controller's side: sends shares, adds up spending, keeps limits, and stops workers.

    `spend(part, spendings)` books payments. `drain(reason)` is called if a worker cannot go on. `expect(runs,
    models)` is called for each worker, in its own thread: all workers together make that many runs. `in_flight` is the
    number of runs that one worker makes at a time. `culprits` are the items that crashed a worker, with the crash's
    text: another worker reports them, because it can make their rows. `unplaced` are crashes that no worker could take
    over. `no_more_restarts` is True if xdist does not replace a dead worker.
    """

    def __init__(
        self,
        spend: Callable[[Part, Sequence[Spending]], None],
        drain: Callable[[str], None],
        expect: Callable[[int, Sequence[str]], None],
    ) -> None:
        self.spend, self.drain, self.expect = spend, drain, expect
        self.lines: list[Line] = []
        self.throttles = ControllerThrottles()
        self.cases = 0
        self.in_flight = 1
        self.told: dict[str, str] = {}
        self.decided: set[str] = set()
        self.culprits: dict[str, str] = {}
        self.warnings: dict[str, None] = {}
        self.unplaced: list[str] = []
        self.crashes = 0
        self.no_more_restarts = False
        self.unshared: list[str] = []
        self.limited: list[tuple[str, int, float]] = []
        self.variants: dict[str, Any] = {}
        self.ended_by: int | None = None
        self.questions = Questions()
        self._busy: set[Line] = set()
        """Workers that may have runs in flight."""
        self._idle = threading.Event()

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Add a private channel to the worker's input."""
        for gateway in node.nodemanager.group:  # also the one that others are reached through
            steady_socket(gateway)
        channel = node.workerinput[CHANNEL] = node.gateway.newchannel()
        self.lines.append(line := Line(channel))
        channel.setcallback(partial(self._receive, line), endmarker=None)  # in execnet's thread, in the worker's order

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: Any) -> None:
        """Count crashes like xdist, which does so after this. If a worker ended the session by itself, end the
        others.
        """
        if error:
            from xdist.dsession import get_default_max_worker_restart

            self.crashes += 1
            most = get_default_max_worker_restart(node.config)
            self.no_more_restarts = most is not None and self.crashes > most
            return
        output = getattr(node, "workeroutput", {})
        if reason := output.get("shouldfail") or output.get("shouldstop"):
            self.tell("finish" if self.ended_by else "stop", str(reason))

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str, report: Any, sched: Any) -> None:
        """Give the item of a crashed worker to another worker, or keep the crash's text.

        A crash is an error of the case, and with many runs in flight pytest's item is rarely the culprit.
        """
        report.when = "setup"
        hand_on = getattr(sched, "hand_on", None)
        if hand_on is not None and hand_on(crashitem, str(report.longrepr)):
            report.outcome = "rerun"
        else:
            self.unplaced.append(str(report.longrepr))

    def finish(self, reason: str, seconds: float) -> None:
        """Let the requests that workers have in flight end: wait for that for so many seconds at most."""
        self.tell("finish", reason)
        until = time.monotonic() + seconds
        while self._busy and time.monotonic() < until:
            self._idle.wait(0.1)

    def tell(self, order: Literal["drain", "stop", "finish"], reason: str) -> None:
        """Send an order to every worker, once; to those that start later too."""
        if order in self.told:
            return
        self.told[order] = reason
        for line in self.lines:
            line.send((order, reason))

    def ask(self, question: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the answers of all workers that may have runs in flight. Raises as `Questions.ask` does."""
        return self.questions.ask([*self._busy], question)

    def ended(self, number: int) -> None:
        """Note which signal ended this process, or a worker and so the session."""
        self.ended_by = number

    def close(self) -> None:
        """End the threads of all lines."""
        self.throttles.close()
        for line in self.lines:
            line.close()

    def _receive(self, line: Line, message: Sequence[Any] | None) -> None:
        if message is None:
            self._drop_line(line)
            return
        kind, *rest = message
        if kind == "cases":
            self.cases += rest[0]
            self.in_flight = max(self.in_flight, rest[1])
            if rest[0]:
                self._busy.add(line)
                self.expect(rest[0], rest[2])  # each worker has collected all
            for order in tuple(self.told.items()):  # it takes the place of one that crashed
                line.send(order)
            self.questions.repeat(line)
        elif kind == "answer":
            self.questions.receive(line, *rest)
        elif kind == "warnings":
            self.warnings.update(dict.fromkeys(rest[0]))  # every worker has collected the same
        elif kind == "drain":
            self.drain(rest[0])
        elif kind == "spent":
            self.spend(*rest)
        elif kind == "finished":
            self._note_idle(line)
        elif kind == "unshared":
            self.unshared.append(rest[0])
        elif kind == "variants":
            self.variants = rest[0]  # every worker has collected the same
        elif kind == "limited":
            self.limited.append((rest[0], rest[1], rest[2]))
        elif kind == "ended":
            self.ended(rest[0])
        else:
            self.throttles.receive(line, message)

    def _note_idle(self, line: Line) -> None:
        self._busy.discard(line)
        if not self._busy:
            self._idle.set()

    def _drop_line(self, line: Line) -> None:
        self._note_idle(line)
        line.close()
        self.throttles.gone(line)


class RunAheadScheduling(LoadScheduling):
    """A schedule for sessions with cases, whose workers run ahead; without cases it is LoadScheduling.

    - The whole share is sent at once, in blocks dealt to the workers in turn: files stay together, durations even out.
    - No worker is shut down before all are nearly done, so that a dead worker's share moves to the living at once.
      Items that it may have had in flight are suspects and run alone, when pytest is at them: a second crash shows the
      culprit.
    - If xdist may replace no more workers, the living ones take over, and are shut down at the end.
    """

    def __init__(self, config: pytest.Config, log: Any, link: ControllerLink) -> None:
        super().__init__(config, log)
        self.link = link
        self.ahead = False
        self.collection: list[str] | None
        self.suspects: set[int] = set()
        self.doubtful: set[str] = set()

    def add_node_collection(self, node: Any, collection: Sequence[str]) -> None:
        """Note the items that a worker collected.

        A worker that replaced a dead one, and was shut down before it had collected, is not asked again.
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
        """Return the workers; [] while xdist looks for workers to shut down because it may restart no more."""
        if self._makes_up and not self.tests_finished:
            return []
        return list(self.node2pending)

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
        """Forget a lost worker: items that it may have had in flight become suspects."""
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
        if config.getoption("dist") == "load":
            return RunAheadScheduling(config, log, self._link)
        return None
