"""Let pytest drive the engine: its items await their runs, and its fixtures identify agents."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_agentbench.engine.budget import is_signal
from pytest_agentbench.engine.identities import Identities, Origin
from pytest_agentbench.engine.job import SERVERS_FIXTURE, FixtureValues, Job, Result, StartGroup, Work
from pytest_agentbench.engine.lookahead import LookAhead, RunLimits
from pytest_agentbench.runners.base import CaseRunner

if TYPE_CHECKING:
    from pytest_agentbench.engine.limits import WorkerThrottles

JOB = pytest.StashKey[Job]()
FILE_ID = pytest.StashKey[str]()
"""Part of node ids that a file's collector would have without escapes, if its path steers terminals."""
RESULT = pytest.StashKey[Result]()
RUNNER_FIXTURE = "agentbench_runner"
RUN_FIXTURES = (RUNNER_FIXTURE, SERVERS_FIXTURE)
WINDOW = 8
"""How many times the concurrency the engine may be ahead of pytest: it hides uneven runs and bounds memory."""


def true_nodeid(item: pytest.Item) -> str:
    """Return the node id with the file's real path; pytest's has escapes if the path contains control characters."""
    shown, parent = str(item.nodeid), item.parent
    true = parent.stash.get(FILE_ID, None) if parent is not None else None
    if parent is None or true is None:
        return shown
    return true + shown.removeprefix(str(parent.nodeid))


async def _refuse_work(job: Job, values: FixtureValues) -> Result:
    raise RuntimeError(f"{job.case_id}: the engine has no services yet")


class RunAhead:
    """Starts the session's jobs ahead of pytest and returns each item's result.

    `channel` connects a worker of xdist to its controller, which sends the worker's share of the jobs and answers
    `throttles`; without it all jobs are this process's. `grace` is the seconds that requests in flight get after a
    signal. `serve` has to be called before the first item.
    """

    def __init__(
        self,
        session: pytest.Session,
        limits: RunLimits,
        *,
        warn: Callable[[str], None],
        channel: Any = None,
        throttles: WorkerThrottles | None = None,
        grace: float = 0,
    ) -> None:
        config, concurrency = session.config, limits.concurrency
        self.session, self.limits, self.throttles = session, limits, throttles
        self.tick: Callable[[LookAhead | None], None] = lambda engine: None
        self.channel, self.grace = channel, grace
        self.finishing: threading.Event | None = None
        """Set once nothing is in flight; None while the session goes on."""
        self.shared: list[Any] = []
        self.fixtures: dict[Any, dict[str, Any]] = {}
        """Live values of RUN_FIXTURES by file and fixtures' parameters: items use them instead of pytest's set-up."""
        self.last = {item for item, after in pairwise(session.items) if after.parent is not item.parent}
        self.last.update(session.items[-1:])
        """Items with which fixtures of a file end, as far as the order of the session says."""
        self.values: dict[tuple[int, int], FixtureValues] = {}
        self.culprits: dict[pytest.Item, str] = {}
        self.operate: Callable[[dict[str, Any]], dict[str, Any]] = lambda request: {}
        """Answers the controller's questions about this process, which `collection.operations` describes."""
        jobs = [item.stash[JOB] for item in session.items if JOB in item.stash]
        group_jobs(config, session.items)
        policies = {job.start_group: job.plan.run_profile.execution_policy for job in jobs}
        stops = config.getoption("maxfail") or config.getoption("stepwise", False)
        stops = stops or any(policy.fail_fast or policy.stop_on_runner_error == "first" for policy in policies.values())
        profiles = {group: limits.share(policy.max_concurrency) for group, policy in policies.items()}
        if not limits.profiles:
            profiles = {}
        self.stops = bool(stops)
        window = WINDOW * concurrency
        if stops:  # runs past a stop would be paid for in vain
            window = min(concurrency, max(profiles.values(), default=concurrency)) - 1
        self.engine = LookAhead(_refuse_work, concurrency=concurrency, window=window, limits=profiles, warn=warn)

    def serve(self, work: Work, *, close: Callable[[], Any], tick: Callable[[LookAhead | None], None]) -> None:
        """Give the engine its work, and its jobs or the line to the controller.

        `tick(engine)` is called several times a second while pytest waits, `tick(None)` before it goes on. `close` is
        called on the engine's loop when it ends.
        """
        self._work = work
        self.engine.work = self._limit_work()
        self.engine.on_close, self.tick = close, tick
        if self.channel is not None:
            # In execnet's thread: a share arrives before xdist's order to run it
            self.channel.setcallback(self._receive)
        else:
            jobs = [item.stash[JOB] for item in self.session.items if JOB in item.stash]
            self.engine.post(self.engine.extend, jobs)

    def _limit_work(self) -> Work:
        if self.throttles is None:
            return self._work
        return self.limits.within(self._work, self.throttles)

    def retune(self) -> None:
        """Apply changed `limits` to the runs that start from now on. Callable from any thread."""
        concurrency = self.limits.concurrency
        window = concurrency - 1 if self.stops else WINDOW * concurrency
        self.engine.post(self.engine.retune, self._limit_work(), concurrency, window)

    def result(self, item: pytest.Item, agent: Any, servers: Any) -> Result:
        """Return the item's result, ready or awaited, made with these values of the fixtures."""
        job = item.stash[JOB]
        values, shared = self._pair_values(agent, servers)
        begun = time.perf_counter()
        try:
            result = item.stash[RESULT] = self.engine.result(job, values, shared=shared, tick=self._tick)
        finally:
            self.tick(None)
        result.waited = time.perf_counter() - begun
        return result

    def _pair_values(self, agent: Any, servers: Any) -> tuple[FixtureValues, bool]:
        """Return both values together, and whether they live as long as the session: the same two are then the same
        object.
        """
        needed = (agent,) if servers is None else (agent, servers)  # answers that are in a file need no servers
        if not all(any(each is value for value in self.shared) for each in needed):
            return FixtureValues(agent, servers), False
        return self.values.setdefault((id(agent), id(servers)), FixtureValues(agent, servers)), True

    def _tick(self) -> None:
        self.tick(self.engine)

    def drain(self, reason: str) -> None:
        """Start no further run. Runs in flight end; other items are skipped with the reason."""
        self.engine.drain(reason)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Generator[None, Any, Any]:
        """Note session-scoped values: only these may serve later items."""
        value = yield
        if fixturedef.argname in RUN_FIXTURES and fixturedef.scope == "session":
            self.shared.append(value)
        return value

    def pytest_fixture_post_finalizer(self, fixturedef: Any) -> None:
        """Forget values of fixtures that end: the next item asks pytest for new ones."""
        if fixturedef.argname in RUN_FIXTURES:
            self.fixtures.clear()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Report an item that crashed another worker, without running it."""
        __tracebackhide__ = True
        if item in self.culprits:
            pytest.fail(self.culprits[item], pytrace=False)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self, nextitem: pytest.Item | None) -> None:
        """Pause the engine before session fixtures, for example the runner, are torn down; also after -x.

        The engine is not closed, because pytest-rerunfailures sets the last item up again after this. pytest also
        names no next item once the session is to stop: then requests in flight have the grace first.
        """
        if nextitem is None:
            try:
                self._wait_for_flights()
            finally:
                self.engine.pause()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self) -> Generator[None, Any, Any]:
        """Cancel runs in flight at any end of the loop (Ctrl-C, pytest.exit, an internal error).

        After a signal, requests in flight have the grace to end. A second Ctrl-C cancels them.
        """
        try:
            return (yield)
        except KeyboardInterrupt as error:
            if is_signal(error):
                self._finish("interrupted")
            raise
        finally:
            try:
                self._wait_for_flights()
            finally:
                self.engine.close()

    def _finish(self, reason: str) -> None:
        """Let requests in flight end, and nothing else begin. Callable from any thread."""
        if self.finishing is not None or not self.grace:
            return
        self.finishing = threading.Event()
        self.engine.finish(reason, self.grace, self._note_idle)

    def _note_idle(self) -> None:
        if self.finishing is not None and not self.finishing.is_set():
            self.finishing.set()
            if self.channel is not None:
                self.channel.send(("finished",))

    def _wait_for_flights(self) -> None:
        """Wait until the engine has nothing in flight; it cancels remaining runs after the grace."""
        if self.finishing is None or not (count := len(self.engine.running)):
            return
        if (reporter := self.session.config.pluginmanager.get_plugin("terminalreporter")) is not None:
            runs = "1 run that is" if count == 1 else f"{count} runs that are"
            reporter.ensure_newline()
            reporter.write_line(f"waiting {self.grace:g} s at most for {runs} in flight; Ctrl-C cancels", yellow=True)
        until = time.monotonic() + self.grace + 1  # the agent may swallow cancellations
        while time.monotonic() < until and not self.engine.over and not self.finishing.wait(0.1):
            pass

    def _receive(self, message: Sequence[Any]) -> None:
        order, *rest = message
        if order == "share":
            indices, suspects, culprits = rest
            self.culprits.update((self.session.items[index], text) for index, text in culprits.items())
            share, doubtful = ([self.session.items[i] for i in part] for part in (indices, suspects))
            jobs = [item.stash[JOB] for item in share if JOB in item.stash]
            self.engine.post(self.engine.extend, jobs, [item.stash[JOB] for item in doubtful if JOB in item.stash])
            return
        if order == "drain":
            self.engine.drain(rest[0])
        elif order == "finish" and self.grace:
            self._finish(rest[0])
            self.session.shouldstop = rest[0]  # second: pytest's thread waits for flights once it sees this
        elif order in ("stop", "finish"):
            self.session.shouldstop = rest[0]
            self.engine.halt(rest[0])
        elif order == "ask":
            self._answer(*rest)
        elif self.throttles is not None:
            self.engine.post(self.throttles.receive, message)

    def _answer(self, number: int, request: dict[str, Any]) -> None:
        try:
            answer = self.operate(request)
        except Exception as error:  # noqa: BLE001  # raised in execnet's thread, it would end the channel
            answer = {"error": repr(error)}
        self.channel.send(("answer", number, answer))


AHEAD = pytest.StashKey[RunAhead]()


def group_jobs(config: pytest.Config, items: Sequence[pytest.Item]) -> None:
    """Guess which jobs share a runner and servers: those below the same conftests that override the fixtures.

    The engine compares the guess with the fixtures' values, so a wrong one costs a second run at most.
    """
    conftests = [(n, plugin) for n, plugin in config.pluginmanager.list_name_plugin() if n.endswith("conftest.py")]
    runners, servers = (
        {Path(name).parent for name, plugin in conftests if _defines(plugin, fixture)}
        for fixture in (RUNNER_FIXTURE, SERVERS_FIXTURE)
    )
    groups: dict[StartGroup, StartGroup] = {}
    siblings: dict[Any, Any] = {}
    for item in items:
        if JOB in item.stash:
            job = item.stash[JOB]
            place = (id(item.parent), id(job.plan), _param(item, RUNNER_FIXTURE), _param(item, SERVERS_FIXTURE))
            if place not in siblings:
                runner = _scope(item, RUNNER_FIXTURE, runners) if job.plan.own_agent else job.plan.predictions
                if job.plan.parameters is not None:  # of any fixture that the runner's may ask for
                    runner = runner, job.plan.parameters.name
                group = StartGroup(runner, id(job.plan.run_profile), _scope(item, SERVERS_FIXTURE, servers))
                siblings[place] = groups.setdefault(group, group)  # one object: comparing paths costs each run 7 µs
            job.start_group = siblings[place]


def overrides_runner(place: Any) -> bool:
    """Return whether a plugin, conftest, test module or class defines the fixture `agentbench_runner`, under any
    name.
    """
    return _defines(place, RUNNER_FIXTURE)


def _defines(place: Any, fixture: str) -> bool:
    names = getattr(place, "__dict__", {})
    return any(isinstance(value, _FIXTURE) and fixture in (name, value.name) for name, value in names.items())


def _scope(item: pytest.Item, fixture: str, folders: set[Path]) -> Any:
    """Return the place that defines the item's fixture, with its parameter."""
    places = (getattr(item, "cls", None), getattr(item, "module", None))
    place: Any = next((each for each in places if _defines(each, fixture)), None)
    if place is None and folders:
        place = next((folder for folder in item.path.parents if folder in folders), None)
    return place, _param(item, fixture)


def _param(item: pytest.Item, fixture: str) -> int | None:
    """Return the id() of the fixture's parameter in the item, None without a parameter."""
    params = getattr(getattr(item, "callspec", None), "params", {})
    if fixture in params:
        return id(params[fixture])
    return None


_FIXTURE: Any = type(pytest.fixture(lambda: None))


_NO_PARAM: Any = object()


class Origins:
    """A pytest plugin that records in `identities` the fixtures behind each value of `agentbench_runner`."""

    def __init__(self, identities: Identities) -> None:
        self.identities = identities
        self.item: pytest.Item | None = None
        self.made: dict[str, dict[Any, tuple[Any, int] | None]] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Fixtures are set up for this item now."""
        self.item = item

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> Generator[None, Any, Any]:
        """Record the parameters of every fixture, because any of them may feed the agent fixture."""
        value = yield
        param = getattr(request, "param", _NO_PARAM)
        told = None if param is _NO_PARAM else (param, getattr(request, "param_index", 0))
        self.made.setdefault(fixturedef.argname, {})[fixturedef] = told
        if isinstance(value, CaseRunner):
            return value  # no agent of the user's
        if fixturedef.argname == RUNNER_FIXTURE and self.item is not None and JOB in self.item.stash:
            brief = None if fixturedef.scope == "session" else fixturedef
            origin = self._origin(fixturedef, true_nodeid(self.item))
            self.identities.made(value, self.item.stash[JOB].runner_scope, origin, brief)
        return value

    def _origin(self, fixturedef: Any, nodeid: str) -> Origin:
        found: dict[Any, None] = {}
        todo = [fixturedef]
        while todo:
            each = todo.pop()
            if each not in found:
                found[each] = None
                todo += [below for name in each.argnames for below in self._below(each, name, nodeid)]
        params = {each.argname: told for each in found if (told := self.made[each.argname][each]) is not None}
        is_arm = self.item is not None and self.item.stash[JOB].plan.parameters is not None
        return Origin(tuple(each.func for each in found), params, is_arm)

    def _below(self, fixturedef: Any, name: str, nodeid: str) -> list[Any]:
        """Return the nearest visible fixture that `fixturedef` gets as its argument `name`.

        A fixture that overrides another of the same name gets the overridden one.
        """
        alive = [each for each in self.made.get(name, ()) if each.cached_result is not None]
        visible = [each for each in alive if each is not fixturedef and _sees(nodeid, each.baseid)]
        if name == fixturedef.argname:
            visible = [each for each in visible if len(each.baseid) <= len(fixturedef.baseid)]
        return sorted(visible, key=lambda each: len(each.baseid))[-1:]


def _sees(nodeid: str, base: str) -> bool:
    """Return whether an item may ask for a fixture that is defined at the node `base`."""
    return base in ("", ".") or nodeid == base or nodeid.startswith((f"{base}/", f"{base}::"))
