"""Deal items to xdist's workers, and carry orders, costs and reports between them and the controller."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import pytest

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


# pytest-xdist: every worker gets its whole share at once, so that it can run ahead of its own pytest.
#
# Controller and worker talk over a channel of their own (execnet lets channels travel in `workerinput`):
#
# - worker to controller: `("cases", n, in_flight)` and `("warnings", texts)` after collection, then
#   `("spent", part, spendings)` after each paid run and judgement, `("drain", reason)` where it can go on no more, and
#   `("unshared", text)` at the end where results are not in the shared store, `("ended", number)` where a signal ended
#   it
# - controller to worker: `("share", indices, suspects, culprits)`, the last a mapping from index to what is said of it;
#   `("drain", reason)`: start nothing more, skip the rest; `("stop", reason)`: end the session, because xdist's own
#   shutdown order would queue behind the share
#
# and what `throttling` says of limits that hold over all workers.


CHANNEL = "agentbench"


def deal(indices: Sequence[int], workers: int) -> list[list[int]]:
    """Return one share per worker: blocks of neighbours dealt in turn, each index exactly once."""
    # Eight blocks each: neighbours share files and servers, and a slow file still spreads over several workers.
    size = max(1, len(indices) // (8 * workers))
    blocks = [indices[i : i + size] for i in range(0, len(indices), size)]
    return [[index for block in blocks[number::workers] for index in block] for number in range(workers)]


class ControllerLink:
    """The controller's side: hands out channels, adds up spending, keeps limits, tells workers to stop.

    `spend(part, spendings)` books what was paid, `drain(reason)` is for what a worker cannot go on after,
    `expect(runs)` is told how many runs all workers together are to make, by each of them, in a thread of its own.
    `in_flight` is how many runs one worker makes at a time. `culprits` are the items that crashed a worker, with what
    is said of them: another worker reports them, because it can make their rows. `unplaced` are crashes that no worker
    could take over. `no_more_restarts` says that xdist does not replace a worker that died.
    """

    def __init__(
        self,
        spend: Callable[[Part, Sequence[Spending]], None],
        drain: Callable[[str], None],
        expect: Callable[[int], None],
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
        self.ended_by: int | None = None

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Put a private channel into what the worker is started with."""
        for gateway in node.nodemanager.group:  # also the one that others are reached through
            steady_socket(gateway)
        channel = node.workerinput[CHANNEL] = node.gateway.newchannel()
        self.lines.append(line := Line(channel))
        channel.setcallback(partial(self._receive, line), endmarker=None)  # in execnet's thread, in the worker's order

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: Any) -> None:
        """Count crashes as xdist is about to. Where a worker ended the session by itself, the others end theirs."""
        if error:
            from xdist.dsession import get_default_max_worker_restart

            self.crashes += 1
            most = get_default_max_worker_restart(node.config)
            self.no_more_restarts = most is not None and self.crashes > most
            return
        output = getattr(node, "workeroutput", {})
        if reason := output.get("shouldfail") or output.get("shouldstop"):
            self.tell("stop", str(reason))

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str, report: Any, sched: Any) -> None:
        """Hand an item on whose worker crashed, or keep what is said of it.

        A crash is an error of the case, and with many runs in flight pytest's item is rarely the culprit.
        """
        report.when = "setup"
        hand_on = getattr(sched, "hand_on", None)
        if hand_on is not None and hand_on(crashitem, str(report.longrepr)):
            report.outcome = "rerun"
        else:
            self.unplaced.append(str(report.longrepr))

    def tell(self, order: Literal["drain", "stop"], reason: str) -> None:
        """Send an order to every worker, once; to those that start later too."""
        if order in self.told:
            return
        self.told[order] = reason
        for line in self.lines:
            line.send((order, reason))

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
                self.expect(rest[0])  # each worker has collected all
            for order in tuple(self.told.items()):  # it takes the place of one that crashed
                line.send(order)
        elif kind == "warnings":
            self.warnings.update(dict.fromkeys(rest[0]))  # every worker has collected the same
        elif kind == "drain":
            self.drain(rest[0])
        elif kind == "spent":
            self.spend(*rest)
        elif kind == "unshared":
            self.unshared.append(rest[0])
        elif kind == "ended":
            self.ended(rest[0])
        else:
            self.throttles.receive(line, message)

    def _drop_line(self, line: Line) -> None:
        line.close()
        self.throttles.gone(line)
